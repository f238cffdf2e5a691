// Controls with labels and read-outs, and the frame of a view. Every control is a plain form element, so that the keyboard
// reaches it, and has a key, under which the address of the page carries its value: `write()` gives the text for the
// address, `read(text)` takes it back and gives the reason where it cannot.
page.make = (tag, properties = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in element) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
};
const {make} = page;
let made = 0;

page.format = value => {
  if (!Number.isFinite(value)) return String(value);
  const size = Math.abs(value);
  if (size >= 1e10 || (size > 0 && size < 1e-3)) return value.toExponential(1).replace("e+", "e");
  const short = Number(value.toPrecision(4));
  return size >= 1000
    ? (Number.isInteger(value) ? value : Math.round(size >= 1e5 ? short : value)).toLocaleString("en")
    : String(short);
};

const labelled = (form, label, input, output) => {
  made += 1;
  input.id = `control-${made}`;
  const box = make(
    "div",
    {className: "control"},
    make("label", {htmlFor: input.id}, label),
    ...(output ? [output] : []),
    input,
  );
  form.append(box);
  return box;
};

// `of` is the value at a place of the slider, and `to` the place of a value: a value from the address is exact, also
// where the slider's steps have no place for it. `whole` values are integers.
const slider = (
  view,
  label,
  {least, most, step = 1, value, show = page.format, of = x => x, to = x => x, whole = false},
) => {
  const input = make("input", {type: "range", min: least, max: most, step, value});
  const output = make("output");
  const box = labelled(view.form, label, input, output);
  const linear = of(least) === least && of(most) === most,
    first = of(least),
    last = of(most);
  let current = of(value);
  const tell = () => {
    input.value = to(current);
    output.textContent = show(current);
    input.setAttribute("aria-valuetext", output.textContent);
  };
  const control = {
    box,
    input,
    get value() {
      return current;
    },
    set value(x) {
      current = x;
      tell();
    },
    get most() {
      return of(Number(input.max));
    },
    limit: (low, high) => {
      input.min = low;
      input.max = high;
      tell();
    },
    reset: () => {
      input.min = least;
      input.max = most;
      control.value = of(value);
    },
    write: () => String(current),
    read: text => {
      const x = text.trim() === "" ? NaN : Number(text),
        steps = (x - least) / step;
      const range = `${show(first)} to ${show(last)}`;
      if (!(x >= first && x <= last)) return `it must be a number from ${range}`;
      if (whole && !Number.isInteger(x)) return `it must be a whole number from ${range}`;
      if (linear && Math.abs(steps - Math.round(steps)) > 1e-6) return `it must be ${range} in steps of ${step}`;
      control.value = x;
      return null;
    },
  };
  input.addEventListener("input", () => {
    current = of(Number(input.value));
    tell();
    view.changed(control);
  });
  tell();
  return control;
};

const listed = names => names.slice(0, 9).join(", ") + (names.length > 9 ? ", …" : "");

// Options are [value, words, name in the address]; the name is the value where it is left out.
const choice = (view, label, options, value = options[0][0]) => {
  const select = make("select", {}, ...options.map(([key, words]) => make("option", {value: key}, words)));
  select.value = value;
  const box = labelled(view.form, label, select);
  const names = options.map(([key, , name]) => name ?? key);
  const control = {
    box,
    input: select,
    get value() {
      return select.value;
    },
    set value(x) {
      select.value = x;
    },
    reset: () => {
      select.value = value;
    },
    write: () => names[select.selectedIndex],
    read: text => {
      const at = names.findIndex(name => name.toLowerCase() === text.trim().toLowerCase());
      if (at < 0) return `there are ${listed(names)}`;
      select.selectedIndex = at;
      return null;
    },
  };
  select.addEventListener("input", () => view.changed(control));
  return control;
};

// Check boxes; `options` and `chosen` may be functions, where they depend on other controls. Names as in `choice`.
const ticks = (view, label, options, chosen) => {
  const [offered, standard] = [options, chosen].map(given => (typeof given === "function" ? given : () => given));
  const box = make("fieldset", {className: "ticks"}, make("legend", {}, label));
  let wanted = null, // nothing chosen yet: the standard ones
    inputs = [];
  const name = ([key, , short]) => short ?? key;
  const control = {
    box,
    get value() {
      const keys = offered().map(([key]) => key),
        kept = keys.filter(key => (wanted ?? []).includes(key));
      return wanted === null || (wanted.length > 0 && kept.length === 0) ? standard() : kept;
    },
    // Boxes for the options of now, which stay the same elements, with the focus, while the options do.
    refresh: () => {
      const now = offered();
      if (now.length !== inputs.length || now.some(([key], i) => inputs[i].value !== key)) {
        inputs = now.map(([key]) => make("input", {type: "checkbox", value: key}));
        for (const input of inputs) {
          input.addEventListener("input", () => {
            wanted = inputs.filter(one => one.checked).map(one => one.value);
            view.changed(control);
          });
        }
        const labels = now.map(([, words], i) => make("label", {}, inputs[i], ` ${words}`));
        box.replaceChildren(box.firstChild, ...labels);
      }
      const on = control.value;
      for (const input of inputs) input.checked = on.includes(input.value);
    },
    reset: () => {
      wanted = null;
    },
    write: () =>
      offered()
        .filter(([key]) => control.value.includes(key))
        .map(name),
    read: (text, list) => {
      const now = offered(),
        names = now.map(one => name(one).toLowerCase()),
        places = list.map(part => names.indexOf(part.trim().toLowerCase()));
      const known = places.filter(place => place >= 0),
        strange = list.filter((_, i) => places[i] < 0);
      if (known.length > 0 || list.length === 0) wanted = known.map(place => now[place][0]);
      return strange.length ? `${strange.join(", ")} ${strange.length > 1 ? "are" : "is"} not among ${listed(now.map(name))}` : null;
    },
  };
  view.form.append(box);
  return control;
};

const writing = (view, label, value, rows = 3) => {
  const area = make("textarea", {rows, value, spellcheck: false});
  const box = labelled(view.form, label, area);
  box.classList.add("wide");
  const control = {
    box,
    input: area,
    get value() {
      return area.value;
    },
    reset: () => {
      area.value = value;
    },
    write: () => area.value,
    read: text => {
      area.value = text;
      return null;
    },
  };
  area.addEventListener("input", () => view.changed(control));
  return control;
};

// A button that moves a slider by a step four times a second, from its start again after its end.
const player = (view, moved, words) => {
  const button = make("button", {type: "button", className: "play"}, `▶ Play: ${words}`);
  let timer = null;
  const stop = () => {
    if (timer === null) return;
    clearInterval(timer);
    timer = null;
    button.textContent = `▶ Play: ${words}`;
    view.said.setAttribute("aria-live", "polite");
    view.changed(moved);
  };
  button.addEventListener("click", () => {
    if (timer !== null) {
      stop();
      return;
    }
    button.textContent = "❚❚ Pause";
    view.said.setAttribute("aria-live", "off"); // four sentences a second are no news
    timer = setInterval(() => {
      moved.value = moved.value >= moved.most ? 0 : moved.value + 1;
      view.draw();
    }, 250);
  });
  view.form.append(make("div", {className: "control"}, button));
  view.stop = stop;
};

// A view: `nav` its name in the navigation, `see` what to look for; `start(view)` makes its controls and gives what draws
// it anew. Only one view is shown at a time: see address.js.
page.view = (id, nav, title, see, start) => {
  const heading = make("h2", {id: `${id}-title`}, title);
  const section = make("section", {id, tabIndex: -1, hidden: true}, heading, make("p", {className: "see"}, see));
  section.setAttribute("aria-labelledby", heading.id);
  const form = make("form", {className: "controls"}),
    figure = make("figure"),
    said = make("p", {className: "said", role: "status"});
  form.setAttribute("aria-label", `Controls: ${nav}`);
  form.addEventListener("submit", event => event.preventDefault());
  section.append(form, said, figure);
  document.querySelector("main").append(section);
  const link = make("a", {href: `#view=${id}`}, nav);
  document.querySelector("nav").append(link);
  let width = 0;
  const view = {
    id,
    section,
    form,
    figure,
    said,
    link,
    controls: new Map(),
    stop: () => {},
    changed: control => {
      view.draw();
      page.changed(view, control);
    },
    say: text => {
      if (said.textContent !== text) said.textContent = text;
    },
  };
  const keyed =
    create =>
    (key, ...rest) => {
      const control = create(view, ...rest);
      view.controls.set(key, control);
      return control;
    };
  Object.assign(view, {
    slider: keyed(slider),
    choice: keyed(choice),
    ticks: keyed(ticks),
    writing: keyed(writing),
    // Whole numbers of tokens by powers of two, factors by powers of two, bases by powers of ten.
    powers: keyed((_, label, options) =>
      slider(view, label, {step: 0.25, of: x => Math.round(2 ** x), to: Math.log2, whole: true, ...options}),
    ),
    times: keyed((_, label, options) =>
      slider(view, label, {step: 0.25, of: x => 2 ** x, to: Math.log2, show: x => `${page.format(x)} ×`, ...options}),
    ),
    tens: keyed((_, label, options) =>
      slider(view, label, {step: 0.05, of: x => Number((10 ** x).toPrecision(3)), to: Math.log10, ...options}),
    ),
    player: (moved, words) => player(view, moved, words),
  });
  const draw = start(view);
  view.draw = () => {
    if (section.hidden) return;
    for (const control of view.controls.values()) control.refresh?.();
    width = figure.clientWidth;
    draw();
  };
  new ResizeObserver(() => {
    if (figure.clientWidth !== width) view.draw();
  }).observe(figure);
  page.views[id] = view;
};
page.shown = (control, wanted) => {
  control.box.hidden = !wanted;
};
page.some = (count, one, several = `${one}s`) => `${count.toLocaleString("en")} ${count === 1 ? one : several}`;
