const {make, svg, some, data} = page;
const PASTED = JSON.stringify(
  {
    model_type: "llama",
    hidden_size: 2048,
    num_attention_heads: 32,
    num_hidden_layers: 16,
    max_position_embeddings: 131072,
    rope_theta: 500000.0,
    rope_scaling: {
      rope_type: "llama3",
      factor: 32.0,
      low_freq_factor: 1.0,
      high_freq_factor: 4.0,
      original_max_position_embeddings: 8192,
    },
  },
  null,
  1,
);
const LEVELS = {fault: "fault", suspicion: "suspicion", note: "note"};

// A configuration read by the page itself, in the same form as those that posenc has read.
page.pasted = text => {
  let whole;
  try {
    whole = JSON.parse(text);
  } catch (error) {
    return {
      name: "pasted",
      error: `This is not JSON: ${error.message}`,
      kinds: {},
      schedule: [],
      layers: [],
      findings: [],
    };
  }
  const found = numbers.readConfig(whole, data.forms),
    names = found.layers ? [...new Set(found.layers)] : [];
  const kinds = Object.fromEntries(
    Object.entries(found.kinds).map(([kind, one]) => {
      const plain = numbers.spectrum({dim: one.turning, base: one.base}),
        scaled = numbers.spectrum({dim: one.turning, base: one.base, scalings: one.scalings, length: one.longest});
      const facts = [
        ["rotates", `${one.turning} of ${some(one.dim, "channel")}, ${one.layout}`],
        ["base", page.format(one.base)],
        ["scaling", one.scalings.map(s => s.name).join(", ") || "none"],
        ["training length", one.trained === null ? "not given" : some(one.trained, "token")],
        ["declared length", one.longest === null ? "not given" : some(one.longest, "token")],
        ["gain", page.format(scaled.gain)],
      ];
      return [
        kind,
        {
          plain: plain.theta,
          scaled: scaled.theta,
          gain: scaled.gain,
          trained: one.trained,
          longest: one.longest,
          facts,
        },
      ];
    }),
  );
  const words = name =>
    `${name.replaceAll("_", " ")}${name.includes("sliding") && found.window ? `, window ${found.window}` : ""}`;
  return {
    name: "pasted",
    error: null,
    kinds,
    schedule: names.map(words),
    layers: (found.layers ?? []).map(name => names.indexOf(name)),
    findings: found.findings,
  };
};

page.layerMap = (model, width) => {
  const count = model.layers.length;
  if (count === 0) return make("p", {className: "readout"}, "The configuration does not say which layers there are.");
  const columns = Math.max(1, Math.min(count, Math.floor(width / (width < 500 ? 26 : 34)))),
    side = Math.min(40, width / columns),
    rows = Math.ceil(count / columns);
  const cells = model.layers.flatMap((kind, n) => {
    const x = (n % columns) * side,
      y = Math.floor(n / columns) * side;
    return [
      svg(
        "rect",
        {class: `cell f${kind % 8}`, x: x + 1, y: y + 1, width: side - 2, height: side - 2, rx: 4},
        svg("title", {}, `layer ${n}: ${model.schedule[kind]}`),
      ),
      svg("text", {x: x + side / 2, y: y + side / 2 + 4, "text-anchor": "middle", class: "inside"}, String(n)),
    ];
  });
  return svg(
    "svg",
    {
      width: columns * side,
      height: rows * side,
      viewBox: `0 0 ${columns * side} ${rows * side}`,
      role: "img",
      "aria-label": `map of ${some(count, "layer")}`,
    },
    ...cells,
  );
};

const legend = model =>
  make(
    "ul",
    {className: "legend kinds"},
    ...model.schedule.map((words, kind) => {
      const number = model.layers.filter(one => one === kind).length;
      return make(
        "li",
        {},
        make("span", {className: `swatch f${kind % 8}`}),
        number ? `${words}: ${some(number, "layer")}` : words,
      );
    }),
  );

const factsOf = model =>
  Object.entries(model.kinds).map(([kind, one]) =>
    make(
      "div",
      {className: "facts"},
      make("h3", {}, kind === "all" ? "Rotation" : kind.replaceAll("_", " ")),
      make("dl", {}, ...one.facts.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)])),
    ),
  );

const findings = model =>
  make(
    "ul",
    {className: "findings"},
    ...model.findings.map(one =>
      make(
        "li",
        {className: one.level},
        make("strong", {}, LEVELS[one.level]),
        " ",
        make("code", {}, one.key),
        ` ${one.text}`,
      ),
    ),
  );

page.view(
  "layers",
  "A configuration, layer by layer: which layers rotate, which attend globally, and what looks wrong",
  "Each square is a layer; its colour shows how it uses positions. Below, the rotation and the findings. Paste a config.json of your own: this page reads the common forms and names what only posenc reads.",
  view => {
    const model = view.choice("Configuration", [...page.modelChoices(), ["pasted", "the pasted one"]]);
    const text = view.writing("config.json", PASTED, 8);
    return () => {
      page.shown(text, model.value === "pasted");
      const one = model.value === "pasted" ? page.pasted(text.value) : data.models[Number(model.value)];
      const faults = one.findings.filter(finding => finding.level === "fault").length,
        suspicions = one.findings.filter(finding => finding.level === "suspicion").length;
      view.say(
        one.error
          ? `${one.name}: cannot be read.`
          : `${one.name}: ${one.layers.length ? some(one.layers.length, "layer") : "layers unknown"}, ${some(faults, "fault")}, ${some(suspicions, "suspicion")}.`,
      );
      view.figure.replaceChildren(
        ...(one.error
          ? [make("pre", {className: "fault"}, one.error)]
          : [
              page.layerMap(one, Math.max(260, view.figure.clientWidth)),
              legend(one),
              ...factsOf(one),
              make("h3", {}, "Findings"),
              one.findings.length ? findings(one) : make("p", {}, "No findings."),
            ]),
      );
    };
  },
);
