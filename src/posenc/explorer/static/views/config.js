const {make, svg, some, data} = page;
const EXAMPLE = JSON.stringify(
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

// A configuration read by the page itself, in the same form as those that posenc has read.
page.pasted = text => {
  let config;
  try {
    config = JSON.parse(text);
  } catch (error) {
    return {
      name: "Pasted config",
      error: `This is not JSON: ${error.message}`,
      kinds: {},
      schedule: [],
      layers: [],
      findings: [],
    };
  }
  const read = numbers.readConfig(config, data.forms),
    names = read.layers ? [...new Set(read.layers)] : [];
  const kinds = Object.fromEntries(
    Object.entries(read.kinds).map(([kind, layer]) => {
      const {base, rotaryDim: dim, scalings, longest, trained} = layer;
      const unscaled = numbers.spectrum({dim, base}),
        scaled = numbers.spectrum({dim, base, scalings, length: longest});
      const facts = [
        ["rotates", `${dim} of ${some(layer.dim, "channel")}, ${layer.layout}`],
        ["base", page.format(base)],
        ["scaling", scalings.map(scaling => scaling.name).join(", ") || "none"],
        ["training length", trained === null ? "not given" : some(trained, "token")],
        ["declared length", longest === null ? "not given" : some(longest, "token")],
        ["gain", page.format(scaled.gain)],
      ];
      return [kind, {unscaled: unscaled.theta, scaled: scaled.theta, gain: scaled.gain, trained, longest, facts}];
    }),
  );
  const words = name =>
    `${name.replaceAll("_", " ")}${name.includes("sliding") && read.window ? `, window ${read.window}` : ""}`;
  return {
    name: "Pasted config",
    error: null,
    kinds,
    schedule: names.map(words),
    layers: (read.layers ?? []).map(name => names.indexOf(name)),
    findings: read.findings,
  };
};

page.layerMap = (model, width) => {
  const count = model.layers.length;
  if (count === 0) return make("p", {className: "readout"}, "The config does not say which layers there are.");
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
      "aria-label": `map of ${some(count, "layer")}: ${model.schedule.map(words => words.split(":")[0]).join(", ")}`,
    },
    ...cells,
  );
};

const legend = model =>
  make(
    "ul",
    {className: "legend kinds"},
    ...model.schedule.map((words, kind) => {
      const number = model.layers.filter(layer => layer === kind).length;
      return make(
        "li",
        {},
        make("span", {className: `swatch f${kind % 8}`}),
        number ? `${words}: ${some(number, "layer")}` : words,
      );
    }),
  );

const titleOf = kind => (kind === "all" ? "Rotation" : `Rotation of ${kind.replaceAll("_", " ")} layers`);

const factsOf = (kind, layer) =>
  make(
    "div",
    {className: "facts"},
    make("h3", {}, titleOf(kind)),
    make("dl", {}, ...layer.facts.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)])),
  );

const findings = model =>
  make(
    "ul",
    {className: "findings"},
    ...model.findings.map(finding =>
      make(
        "li",
        {className: finding.level},
        make("strong", {}, finding.level),
        " ",
        make("code", {}, finding.key),
        ` ${finding.text}`,
      ),
    ),
  );

page.view(
  "config",
  "your config",
  "Paste a config.json: which layers rotate, which attend globally, and what looks wrong",
  "Each square is a layer; its colour shows how it uses positions. Below are the findings, and the facts and wavelengths of each rotation. An example is filled in: replace it with a config.json of your own. This page reads common configs; for the others it names the posenc command.",
  view => {
    const given = data.given > 0 ? "0" : "pasted"; // what the command line named is shown first
    const model = view.choice("config", "Config", [["pasted", "pasted below"], ...page.modelChoices()], given);
    const text = view.writing("json", "config.json: paste yours here", EXAMPLE, 8);
    text.input.addEventListener("focus", () => {
      if (text.value === EXAMPLE) text.input.select();
    });
    return () => {
      page.shown(text, model.value === "pasted");
      const config = model.value === "pasted" ? page.pasted(text.value) : data.models[Number(model.value)];
      if (config.error) {
        view.say(`${config.name}: cannot be read.`);
        view.figure.replaceChildren(make("pre", {className: "fault"}, config.error));
        return;
      }
      const [faults, suspicions] = ["fault", "suspicion"].map(
        level => config.findings.filter(finding => finding.level === level).length,
      );
      view.say(
        `${config.name}: ${config.layers.length ? some(config.layers.length, "layer") : "layers unknown"}, ${some(faults, "fault")}, ${some(suspicions, "suspicion")}.`,
      );
      const rotations = Object.entries(config.kinds).map(([kind, layer]) => [kind, layer, make("div")]);
      view.figure.replaceChildren(
        page.layerMap(config, Math.max(260, view.figure.clientWidth)),
        legend(config),
        make("h3", {}, "Findings"),
        config.findings.length ? findings(config) : make("p", {}, "No findings."),
        ...rotations.flatMap(([kind, layer, chart]) => [factsOf(kind, layer), chart]),
      );
      for (const [kind, layer, chart] of rotations) page.spectrumChart(chart, layer, titleOf(kind));
    };
  },
);
