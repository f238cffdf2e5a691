"use strict";
const root = document.documentElement;
document.getElementById("theme").addEventListener("click", () => {
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});
for (const tabs of document.querySelectorAll(".tabs")) {
  const buttons = [...tabs.children], parts = [...document.getElementById(tabs.dataset.of).children];
  const show = chosen => {
    parts.forEach((part, i) => { part.hidden = i !== chosen; });
    buttons.forEach((button, i) => button.setAttribute("aria-pressed", i === chosen));
  };
  buttons.forEach((button, i) => button.addEventListener("click", () => show(i)));
  show(0);
}
// Colours of a page are names of its style; a file needs the colours themselves.
const colour = name => {
  const probe = document.createElement("i");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
};
for (const link of document.querySelectorAll("a[data-svg]")) {
  link.addEventListener("click", event => {
    event.preventDefault();
    const svg = link.closest("figure").querySelector(".wide svg").cloneNode(true);
    svg.setAttribute("style", "background:var(--paper)");
    const text = svg.outerHTML.replace(/var\((--\w+)\)/g, (_, name) => colour(name));
    const file = document.createElement("a");
    file.href = URL.createObjectURL(new Blob([text], {type: "image/svg+xml"}));
    file.download = link.dataset.svg;
    file.click();
    URL.revokeObjectURL(file.href);
  });
}
const opened = () => {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const folded = target && target.closest("details");
  if (folded) { folded.open = true; target.scrollIntoView(); }
};
addEventListener("hashchange", opened);
opened();
