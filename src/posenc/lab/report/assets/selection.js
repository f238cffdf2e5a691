// One choice of encodings for the whole page: what is picked stays bright in every figure and table.
"use strict";
const report = JSON.parse(document.getElementById("report-data").textContent);
const picked = new Set(); // none: all count
const listeners = [];
let hovered = null;

function counts(spec) {
  if (!spec) return true;
  if (hovered) return spec === hovered || picked.has(spec);
  return picked.size === 0 || picked.has(spec);
}

function tell() {
  for (const listener of listeners) listener();
}

function pick(spec) {
  if (!spec) return;
  if (!picked.delete(spec)) picked.add(spec);
  tell();
}

// All of them, or none if they are picked already.
function pickAll(specs) {
  const all = specs.every(spec => picked.has(spec));
  for (const spec of specs) all ? picked.delete(spec) : picked.add(spec);
  tell();
}

function hover(spec) {
  if (spec === hovered) return;
  hovered = spec;
  tell();
}

function make(tag, properties, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

// A link that makes its file when it is clicked; fields with a comma or a quote are quoted.
function dataLink(name, lines) {
  const link = make("a", {className: "data", href: "#", download: `${name}.csv`, textContent: "data", title: "Download as CSV"});
  const field = value => {
    const text = value === null || value === undefined ? "" : String(value);
    return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  link.addEventListener("click", () => {
    const text = lines().map(line => line.map(field).join(",")).join("\n") + "\n";
    link.href = URL.createObjectURL(new Blob([text], {type: "text/csv"}));
  });
  return link;
}

const bar = make("div", {className: "picked", hidden: true});
document.body.append(bar);
listeners.push(() => {
  bar.hidden = picked.size === 0;
  const clear = make("button", {type: "button", textContent: "show all", onclick: () => { picked.clear(); tell(); }});
  bar.replaceChildren(make("span", {textContent: [...picked].join(", ")}), clear);
});
