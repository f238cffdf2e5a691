// The form of the decision page: the rules of `posenc recommend` (recommend-rules.js), evaluated in place.
(() => {
  "use strict";
  const data = window.posencRules;
  const root = document.getElementById("recommend");
  if (!data || !root) return;

  const fields = {
    model: {label: "You have", choices: {new: "a model to train", checkpoint: "a trained model"}},
    kind: {label: "Kind of model", choices: data.kinds},
    task: {label: "What must work", choices: data.tasks},
    train_length: {label: "Training length, tokens", number: 4096},
    length: {label: "Longest context, tokens", number: 131072},
    engine: {label: "Served by", choices: data.engines},
    memory: {label: "GiB for the cache of one sequence (optional)", number: ""},
    tune: {label: "Fine-tuning is possible", check: true},
  };

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
      fitting, kept: fitting === null ? needs.train_length : Math.min(fitting, needs.train_length), path: "MODEL", weights: "MODEL",
      given: false, plan: "unknown", documented: false, noted: false, window: null, windowed: "No", model_type: "", declares: false,
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

  const inputs = {};
  const form = element("form", {class: "recommend-form", "aria-label": "What do you need?"});
  for (const [name, field] of Object.entries(fields)) {
    const id = `recommend-${name}`;
    let input;
    if (field.choices) {
      input = element("select", {id});
      for (const [value, text] of Object.entries(field.choices)) input.append(element("option", {value}, text));
    } else if (field.check) {
      input = element("input", {id, type: "checkbox"});
    } else {
      input = element("input", {id, type: "number", min: name === "memory" ? "0" : "1", step: "any",
        value: field.number});
    }
    inputs[name] = input;
    form.append(element("label", {for: id}, element("span", {}, field.label), input));
  }
  const answer = element("div", {class: "recommend-answer", "aria-live": "polite"});
  root.replaceChildren(form, answer);

  function read() {
    const needs = {};
    for (const [name, field] of Object.entries(fields)) {
      const input = inputs[name];
      if (field.check) needs[name] = input.checked;
      else if (field.choices) needs[name] = input.value;
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

  function show() {
    const needs = read(), wrong = problem(needs);
    inputs.tune.disabled = needs.model === "new";
    if (inputs.tune.disabled) inputs.tune.checked = needs.tune = false;
    if (wrong) {
      answer.replaceChildren(element("p", {role: "alert"}, wrong));
      return;
    }
    const sentences = recommend(needs);
    const list = element("dl");
    let last = "";
    for (const sentence of sentences.slice(1)) {
      if (sentence.section !== last) list.append(element("dt", {}, data.sections[sentence.section]));
      last = sentence.section;
      const code = sentence.section === "check" && sentence.text.startsWith("posenc ");
      const text = code ? element("code", {}, sentence.text) : sentence.text;
      list.append(element("dd", {}, text, ...(sentence.section === "check" ? [] : [basis(sentence)])));
    }
    answer.replaceChildren(
      element("p", {class: "recommend-default"}, element("strong", {}, sentences[0].text), basis(sentences[0])), list);
  }

  // The address holds the needs, so that an answer can be linked; an address of a situation opens it.
  function remember() {
    const state = new URLSearchParams();
    for (const [name, value] of Object.entries(read())) if (value !== null && value !== false) state.set(name, value);
    history.replaceState(null, "", `#${state}`);
  }

  function restore() {
    const hash = decodeURIComponent(location.hash.slice(1));
    const target = hash && document.getElementById(hash);
    if (target && target.tagName === "DETAILS") target.open = true;
    const state = new URLSearchParams(hash.includes("=") ? location.hash.slice(1) : "");
    for (const [name, field] of Object.entries(fields)) {
      const value = state.get(name);
      if (field.check) inputs[name].checked = value === "true";
      else if (field.choices) inputs[name].value = value in field.choices ? value : Object.keys(field.choices)[0];
      else inputs[name].value = value === null ? field.number : value;
    }
    show();
  }

  form.addEventListener("input", () => { show(); remember(); });
  form.addEventListener("submit", (event) => event.preventDefault());
  window.addEventListener("hashchange", restore);
  restore();
})();
