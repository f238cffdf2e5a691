// The state of the page in its address, so that a view can be linked: #view=wavelengths&scaling=yarn&factor=4. It holds the
// view and the value of each control that the view shows. What an address says and this page cannot take is left out, and
// a note says so.
const {make} = page;
const FIRST = "config";
const note = document.getElementById("note");
let shown = null, // the view
  last = null, // the control that was changed last
  waiting = null; // the address that is still to be written, and its timer

// Of what encodeURIComponent escapes, these are read the same as they are.
const escaped = text => encodeURIComponent(text).replace(/%(2B|3A|2F|40)/g, sign => decodeURIComponent(sign));

const addressOf = view => {
  const parts = [...view.controls]
    .filter(([, control]) => !control.box.hidden)
    .map(([key, control]) => `${key}=${[control.write()].flat().map(escaped).join(",")}`);
  return `#${[`view=${view.id}`, ...parts].join("&")}`;
};

const partsOf = hash =>
  new Map(
    hash
      .replace(/^#/, "")
      .split("&")
      .filter(Boolean)
      .map(part => {
        const at = part.indexOf("=");
        return at < 0 ? [part, ""] : [part.slice(0, at), part.slice(at + 1)];
      }),
  );

const unescaped = text => {
  try {
    return decodeURIComponent(text);
  } catch {
    return null;
  }
};

const tell = problems => {
  note.hidden = problems.length === 0;
  note.textContent = problems.length ? `Ignored in the address: ${problems.join("; ")}.` : "";
};

const show = view => {
  for (const one of Object.values(page.views)) {
    one.section.hidden = one !== view;
    if (one === view) one.link.setAttribute("aria-current", "page");
    else one.link.removeAttribute("aria-current");
  }
  shown = view;
};

// A control of its own takes each value; they are read in the order of the controls, as later ones may depend on earlier.
const take = (view, parts) => {
  const problems = [];
  for (const [key, control] of view.controls) {
    control.reset();
    if (!parts.has(key)) continue;
    const text = unescaped(parts.get(key)),
      list = parts.get(key).split(",").filter(Boolean).map(unescaped);
    const why = text === null ? "it is not percent-encoded text" : control.read(text, list);
    if (why) problems.push(`${key}=${(text ?? parts.get(key)).slice(0, 40)}: ${why}`);
  }
  for (const key of parts.keys()) {
    if (key !== "view" && !view.controls.has(key))
      problems.push(`${key}: this view has ${[...view.controls.keys()].join(", ")}`);
  }
  return problems;
};

const write = (address, push) => {
  clearTimeout(waiting?.timer);
  waiting = null;
  // In a frame, a step of the history would be one of the page around it.
  history[push && self === top ? "pushState" : "replaceState"](null, "", address);
};

const restore = () => {
  const parts = partsOf(location.hash),
    wanted = parts.get("view") ?? [...parts.keys()].find(key => key in page.views && parts.get(key) === "") ?? FIRST;
  if (!parts.has("view")) parts.delete(wanted); // #wavelengths alone
  const before = shown,
    known = Object.hasOwn(page.views, wanted),
    view = page.views[known ? wanted : FIRST];
  for (const one of Object.values(page.views)) one.stop();
  clearTimeout(waiting?.timer);
  waiting = null;
  last = null;
  show(view);
  const problems = known ? take(view, parts) : [`view=${wanted}: there are ${Object.keys(page.views).join(", ")}`];
  view.draw();
  tell(problems);
  view.link.href = addressOf(view);
  write(view.link.href, false);
  if (before !== null && before !== view) {
    scrollTo(0, 0);
    view.section.focus({preventScroll: true});
  }
};

// Called at each change by hand. Changes of one control after another are one step of the history.
page.changed = (view, control) => {
  tell([]);
  const address = addressOf(view);
  view.link.href = address;
  if (control !== last) {
    if (waiting) write(waiting.address, false);
    last = control;
    write(address, true);
    return;
  }
  clearTimeout(waiting?.timer); // browsers count how often an address is written
  waiting = {address, timer: setTimeout(() => write(address, false), 200)};
};

page.start = () => {
  addEventListener("hashchange", restore);
  restore();
};
