// Light and dark: the system's setting until the button overrides it. Only the view that is shown draws.
const root = document.documentElement;
document.getElementById("theme").addEventListener("click", () => {
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  for (const view of Object.values(page.views)) view.draw();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const view of Object.values(page.views)) view.draw();
});

// All views are there, and the address says which is shown.
page.start();

// In a frame of another page, such as a chapter of the guide, the view stands alone: that page sets the colours and takes
// the height from here. `?brief` leaves out the explanations, `?play` starts what a view can play, unless the reader has
// asked the system for less motion.
const options = new URLSearchParams(location.search);
if (self !== top) {
  root.classList.add("framed");
  root.classList.toggle("brief", options.has("brief"));
  const tellHeight = () => {
    parent.postMessage({height: document.querySelector("main").scrollHeight}, "*");
  };
  addEventListener("message", event => {
    if (event.source !== parent || !["light", "dark"].includes(event.data?.scheme)) return;
    root.dataset.theme = event.data.scheme;
    for (const view of Object.values(page.views)) view.draw();
    tellHeight();
  });
  new ResizeObserver(tellHeight).observe(document.querySelector("main"));
}
if (options.has("play") && !matchMedia("(prefers-reduced-motion: reduce)").matches) {
  document.querySelector("section:not([hidden]) .play")?.click();
}
