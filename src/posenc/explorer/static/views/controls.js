// Controls with labels and read-outs, and the frame of a view. Every control is a plain form element, so that keys reach it.
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

const slider = (view, label, {least, most, step = 1, value, show = page.format, of = x => x}) => {
  const input = make("input", {type: "range", min: least, max: most, step, value});
  const output = make("output");
  const box = labelled(view.form, label, input, output);
  const control = {
    box,
    input,
    get value() {
      return of(Number(input.value));
    },
    set value(x) {
      input.value = x;
      tell();
    },
  };
  const tell = () => {
    output.textContent = show(control.value);
    input.setAttribute("aria-valuetext", output.textContent);
  };
  input.addEventListener("input", () => {
    tell();
    view.draw();
  });
  control.limit = (low, high) => {
    input.min = low;
    input.max = high;
    tell();
  };
  tell();
  return control;
};

const choice = (view, label, options, value = options[0][0]) => {
  const select = make("select", {}, ...options.map(([key, words]) => make("option", {value: key}, words)));
  select.value = value;
  const box = labelled(view.form, label, select);
  select.addEventListener("input", () => view.draw());
  return {
    box,
    input: select,
    get value() {
      return select.value;
    },
    set value(x) {
      select.value = x;
    },
  };
};

const ticks = (view, label, options, chosen) => {
  const boxes = options.map(([key, words]) => {
    const input = make("input", {type: "checkbox", value: key, checked: chosen.includes(key)});
    input.addEventListener("input", () => view.draw());
    return [input, make("label", {}, input, ` ${words}`)];
  });
  const box = make("fieldset", {className: "ticks"}, make("legend", {}, label), ...boxes.map(([, one]) => one));
  view.form.append(box);
  return {
    box,
    get value() {
      return boxes.filter(([input]) => input.checked).map(([input]) => input.value);
    },
  };
};

const writing = (view, label, value, rows = 3) => {
  const area = make("textarea", {rows, value, spellcheck: false});
  const box = labelled(view.form, label, area);
  box.classList.add("wide");
  area.addEventListener("input", () => view.draw());
  return {
    box,
    input: area,
    get value() {
      return area.value;
    },
  };
};

// A view: `see` says what to look for; `start(view)` makes its controls and gives what draws it anew.
page.view = (id, title, see, start) => {
  const section = make("section", {id, tabIndex: -1}, make("h2", {}, title), make("p", {className: "see"}, see));
  const form = make("form", {className: "controls"}),
    figure = make("figure"),
    said = make("p", {className: "said", role: "status"});
  form.setAttribute("aria-label", title);
  form.addEventListener("submit", event => event.preventDefault());
  section.append(form, said, figure);
  document.querySelector("main").append(section);
  document.querySelector("nav").append(make("a", {href: `#${id}`}, id.replaceAll("-", " ")));
  const view = {
    section,
    form,
    figure,
    draw: () => {},
    say: text => {
      if (said.textContent !== text) said.textContent = text;
    },
  };
  Object.assign(view, {
    slider: (label, options) => slider(view, label, options),
    choice: (label, ...rest) => choice(view, label, ...rest),
    ticks: (label, ...rest) => ticks(view, label, ...rest),
    writing: (label, ...rest) => writing(view, label, ...rest),
    powers: (label, {least, most, value, show}) =>
      slider(view, label, {least, most, step: 0.25, value, show, of: x => Math.round(2 ** x)}),
  });
  const draw = start(view);
  view.draw = draw;
  draw();
  let width = figure.clientWidth;
  new ResizeObserver(() => {
    if (figure.clientWidth !== width) {
      width = figure.clientWidth;
      draw();
    }
  }).observe(figure);
  page.views[id] = view;
};
page.shown = (control, wanted) => {
  control.box.hidden = !wanted;
};
page.some = (count, one, several = `${one}s`) => `${count.toLocaleString("en")} ${count === 1 ? one : several}`;
