// The form of the decision page. For a new model it evaluates the rules of `posenc recommend` (recommend-rules.js); for a
// released one it shows an answer that was made when the site was built (recommend-models.js); of a pasted config it shows
// the facts and the command that answers.
(() => {
  "use strict";
  const data = window.posencRules;
  const root = document.getElementById("recommend");
  if (!data || !root) return;

  const known = window.posencModels ?? {models: {}, lengths: [], texts: []};
  const PASTED = "pasted";
  const fields = {
    model: {label: "You have", choices: {
      new: "a model to train",
      ...(known.numbers ? {[PASTED]: "a trained model: paste its config.json"} : {}),
      checkpoint: "a trained model, without its config",
      ...Object.fromEntries(Object.keys(known.models).map((name) => [name, name])),
    }},
    kind: {label: "Kind of model", choices: data.kinds},
    task: {label: "What must work", choices: data.tasks},
    train_length: {label: "Training length, tokens", number: 4096},
    length: {label: "Longest context, tokens", number: 131072},
    engine: {label: "Served by", choices: data.engines},
    memory: {label: "GiB for the cache of one sequence (optional)", number: ""},
    tune: {label: "Fine-tuning is possible", check: true},
    config: {label: "config.json", text: true},
  };
  const DESCRIBED = ["model", "kind", "task", "train_length", "length", "engine", "memory", "tune"];
  const shownFields = (model) =>
    model in known.models ? ["model", "length", "tune"] : model === PASTED ? ["model", "length", "config"] : DESCRIBED;

  // Exactly the features of posenc.recommend.rule.features, without those that a configuration gives.
  function features(needs) {
    const cache = data.cacheAToken * needs.length / data.gib;
    const over = needs.memory !== null && cache > needs.memory;
    const fitting = needs.memory === null ? null
      : Math.min(needs.length, Math.floor(needs.memory * data.gib / data.cacheAToken));
    return {
      ...needs, ratio: needs.length / needs.train_length,
      algorithmic: data.algorithmic.includes(needs.task) || needs.kind === "algorithmic",
      budget: needs.memory === null ? "none" : over ? "over" : "fits", cache,
      fitting, kept: fitting === null ? needs.train_length : Math.min(fitting, needs.train_length), weights: "MODEL",
      ...data.withoutConfig,
    };
  }

  const whole = (value) => String(value).replace(/\B(?=(\d{3})+(?!\d))/g, ",");
  const significant = (value, digits) => String(Number(value.toPrecision(digits)));

  function words(values) {
    const shown = {};
    for (const [name, value] of Object.entries(values)) {
      shown[name] = Number.isInteger(value) ? whole(value) : String(value);
    }
    shown.factor = significant(values.ratio, 4);
    shown.cache = significant(values.cache, 3);
    shown.memory = values.memory === null ? "" : significant(values.memory, 3);
    shown.length_digits = String(values.length);
    shown.train_length_digits = String(values.train_length);
    shown.what = data.kinds[values.kind];
    shown.a_what = (/^[aeiou]/.test(shown.what) ? "an " : "a ") + shown.what;
    shown.goal = data.tasks[values.task];
    shown.server = data.engines[values.engine];
    shown.shape = data.shape;
    return shown;
  }

  function holds(condition, value) {
    if (Array.isArray(condition)) return condition.includes(value);
    if (condition !== null && typeof condition === "object") {
      const {above = -Infinity, upto = Infinity} = condition;
      return value !== null && above < value && value <= upto;
    }
    return condition === value;
  }

  // The error of posenc.recommend.Needs, or "" where the needs are possible.
  function problem(needs) {
    for (const name of ["train_length", "length"]) {
      if (!Number.isInteger(needs[name]) || needs[name] < 1) return `${fields[name].label}: a whole number from 1`;
    }
    if (needs.memory !== null && !(needs.memory > 0)) return "GiB for the cache: a number above 0";
    if (needs.tune && needs.model === "new") return "Fine-tuning is for a trained model";
    const fits = [...data.decoders, "algorithmic"].includes(needs.kind);
    if (data.algorithmic.includes(needs.task) && !fits) {
      return `${data.tasks[needs.task]} is answered for decoders and models of algorithms`;
    }
    return "";
  }

  function recommend(needs) {
    const values = features(needs), shown = words(values);
    const fitting = data.rules.filter((rule) => Object.entries(rule.when).every(([name, c]) => holds(c, values[name])));
    const chosen = [fitting.find((rule) => rule.section === "default")];
    for (const section of Object.keys(data.sections)) {
      if (section !== "default") chosen.push(...fitting.filter((rule) => rule.section === section));
    }
    const filled = (text) => text.replace(/\{(\w+)\}/g, (_, name) => shown[name]);
    return chosen.map((rule) => ({section: rule.section, text: filled(rule.text), basis: rule.basis,
      sources: rule.sources}));
  }
  window.posencRecommend = {recommend, problem};  // for tests

  function element(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  }

  const inputs = {}, boxes = {};
  const form = element("form", {class: "recommend-form", "aria-label": "What do you need?"});
  for (const [name, field] of Object.entries(fields)) {
    const id = `recommend-${name}`;
    let input;
    if (field.choices) {
      input = element("select", {id});
      for (const [value, text] of Object.entries(field.choices)) input.append(element("option", {value}, text));
    } else if (field.check) {
      input = element("input", {id, type: "checkbox"});
    } else if (field.text) {
      input = element("textarea", {id, rows: "8", spellcheck: "false", placeholder: "{\"model_type\": …}"});
    } else {
      input = element("input", {id, type: "number", min: name === "memory" ? "0" : "1", step: "any",
        value: field.number, ...(name === "length" ? {list: "recommend-lengths"} : {})});
    }
    inputs[name] = input;
    boxes[name] = element("label", {for: id, class: field.text ? "wide" : ""}, element("span", {}, field.label), input);
    form.append(boxes[name]);
  }
  form.append(element("datalist", {id: "recommend-lengths"}, ...known.lengths.map((value) => element("option", {value}))));
  const answer = element("div", {class: "recommend-answer", "aria-live": "polite"});
  root.replaceChildren(form, answer);

  function read() {
    const needs = {};
    for (const [name, field] of Object.entries(fields)) {
      const input = inputs[name];
      if (field.check) needs[name] = input.checked;
      else if (field.choices || field.text) needs[name] = input.value;
      else needs[name] = input.value === "" ? null : Number(input.value);
    }
    return needs;
  }

  function basis(sentence) {
    const links = sentence.sources.map((key) => {
      const source = data.sources[key];
      if (source) return element("a", {href: source.url, title: source.where}, source.title);
      const page = key.replace(/^docs\//, "").replace(/(results\/[\w-]+)$/, "$1/table.md").replace(/\.md$/, ".html");
      return element("a", {href: page}, page.replace(/\.html$/, ""));
    });
    const parts = links.flatMap((link, i) => (i ? [", ", link] : [link]));
    return element("span", {class: "recommend-basis"}, ` ${sentence.basis}: `, ...parts);
  }

  // A list of sentences by section; commands as code.
  function listed(sentences, {withBasis}) {
    const list = element("dl");
    let last = "";
    for (const sentence of sentences) {
      if (sentence.section !== last) list.append(element("dt", {}, data.sections[sentence.section]));
      last = sentence.section;
      const code = sentence.section === "check" && sentence.text.startsWith("posenc ");
      const text = code ? element("code", {}, sentence.text) : sentence.text;
      list.append(element("dd", {}, text, ...(withBasis ? [basis(sentence)] : [])));
    }
    return list;
  }

  const withLinks = (text) => text.split(/(https?:\/\/\S+?)(?=\.?(?:\s|$))/).map((part, i) =>
    (i % 2 ? element("a", {href: part}, "its source") : part));
  const command = (text) => element("pre", {}, element("code", {}, text));
  const folded = (summary, ...inside) => element("details", {}, element("summary", {}, summary), ...inside);
  const FIRST = ["note", "costs", "memory", "engine", "check"]; // sections that are read before one acts

  function answered([first, ...rest], {run = "", serve = []} = {}) {
    const text = run ? first.text.replace(/ Run: .*$/, "") : first.text;
    const shown = rest.filter(({section}) => FIRST.includes(section));
    answer.replaceChildren(
      element("p", {class: "recommend-default"}, element("strong", {}, ...withLinks(text))),
      ...(run ? [command(run)] : []),
      listed(shown, {withBasis: false}),
      ...(serve.length ? [folded("Serve it", ...serve.map(([name, line, why]) =>
        element("div", {}, element("p", {}, `${name} (${why})`), command(line))))] : []),
      folded("Evidence, alternatives, what is not known",
        listed(rest.filter(({section}) => !FIRST.includes(section)), {withBasis: true}),
        element("p", {}, "The lines above rest on:"),
        element("ul", {}, ...[first, ...shown].map((sentence) =>
          element("li", {}, `${data.sections[sentence.section]}:`, basis(sentence))))),
    );
  }

  // Of the lengths that have an answer, the shortest that holds the one that was asked for.
  function ofKnown(needs) {
    const held = known.lengths.find((length) => length >= needs.length) ?? known.lengths.at(-1);
    const found = known.models[needs.model].answers[`${held}${needs.tune ? "+tune" : ""}`];
    const sentence = (index) => {
      const [section, text, kind, sources] = known.texts[index];
      return {section, text, basis: kind, sources};
    };
    answered(found.sentences.map(sentence), {
      run: found.command === null ? "" : known.texts[found.command][0], serve: found.serve.map((index) => known.texts[index]),
    });
    if (held !== needs.length) {
      answer.prepend(element("p", {}, `Answered for ${whole(held)} tokens; for another length: `,
        element("code", {}, `posenc recommend ${needs.model} --length ${needs.length}`)));
    }
  }

  function ofPasted(needs) {
    const say = (...words) => answer.replaceChildren(element("p", {}, ...words));
    if (!needs.config.trim()) return say("Paste the whole config.json of the model.");
    let config;
    try {
      config = JSON.parse(needs.config);
    } catch (error) {
      return say(`This is not JSON: ${error.message}`);
    }
    const {judged, kinds, findings} = known.numbers.readConfig(config, known.forms);
    const facts = Object.entries(kinds).map(([kind, of]) =>
      `${kind === "all" ? "" : `${kind}: `}base ${whole(of.base)}, ${of.rotaryDim} of ${of.dim} channels rotated, ` +
      `${of.scalings.map(({name, factor}) => (factor ? `${name} ${factor}` : name)).join(" + ") || "no scaling"}, ` +
      `${of.longest === null ? "no length declared" : `meant for ${whole(of.longest)} tokens`}`);
    answer.replaceChildren(
      element("p", {class: "recommend-default"}, element("strong", {}, judged ? "Run the command on your file: it plans the extension." : "Run the command on your file: this page cannot read it.")),
      command(`posenc recommend config.json --length ${needs.length}`),
      ...(facts.length ? [element("p", {}, "What the config says:"), element("ul", {}, ...facts.map((fact) => element("li", {}, fact)))] : []),
      folded("Findings", element("ul", {}, ...findings.map(({level, key, text}) => element("li", {}, `${level}: ${key} ${text}`)))),
    );
    return undefined;
  }

  function show() {
    const needs = read(), visible = shownFields(needs.model);
    for (const [name, box] of Object.entries(boxes)) box.hidden = !visible.includes(name);
    inputs.tune.disabled = needs.model === "new";
    if (inputs.tune.disabled) inputs.tune.checked = needs.tune = false;
    const wrong = problem(needs);
    if (wrong) answer.replaceChildren(element("p", {role: "alert"}, wrong));
    else if (needs.model in known.models) ofKnown(needs);
    else if (needs.model === PASTED) ofPasted(needs);
    else answered(recommend(needs));
  }

  // The address holds the needs, so that an answer can be linked; a config is too long for it.
  function remember() {
    const state = new URLSearchParams(), needs = read();
    for (const name of shownFields(needs.model)) {
      if (needs[name] !== null && needs[name] !== false && name !== "config") state.set(name, needs[name]);
    }
    history.replaceState(null, "", `#${state}`);
  }

  function restore() {
    const hash = location.hash.slice(1), state = new URLSearchParams(hash.includes("=") ? hash : "");
    for (const [name, field] of Object.entries(fields)) {
      const value = state.get(name);
      if (field.check) inputs[name].checked = value === "true";
      else if (field.choices) inputs[name].value = value in field.choices ? value : Object.keys(field.choices)[0];
      else if (!field.text) inputs[name].value = value === null ? field.number : value;
    }
    show();
  }

  for (const title of document.querySelectorAll("[data-needs]")) {
    title.replaceWith(element("a", {href: `#${title.dataset.needs}`}, title.textContent));
  }
  form.addEventListener("input", () => { show(); remember(); });
  form.addEventListener("submit", (event) => event.preventDefault());
  window.addEventListener("hashchange", () => {
    restore();
    if (location.hash.includes("=")) root.scrollIntoView();
  });
  restore();
})();
