// The configurations that come with the page, and what views share: spectra by model and kind of layers.
const {data} = page;

page.modelChoices = () => data.models.map((model, i) => [String(i), model.name]);

// Every kind of layers that rotates, of all configurations that could be read: [key, words].
page.turning = () =>
  data.models.flatMap((model, i) =>
    Object.entries(model.kinds).map(([kind]) => [
      `${i} ${kind}`,
      kind === "all" ? model.name : `${model.name}: ${kind.replaceAll("_", " ")}`,
    ]),
  );

page.kindOf = key => {
  const [index, ...kind] = key.split(" ");
  return data.models[Number(index)].kinds[kind.join(" ")];
};

// Options for each scaling as a person would try it: for `factor` times the training length.
page.optionsFor = (name, {dim, factor, original}) => {
  const pairs = dim / 2,
    long = Array.from({length: pairs}, (_, j) => 1 + ((factor - 1) * j) / Math.max(1, pairs - 1));
  const common = {factor, original_length: original};
  return (
    {
      PositionInterpolation: {factor},
      NTKAware: {factor},
      Resonance: {},
      Clipped: {count: Math.min(20, Math.floor(pairs / 3))},
      Proportional: {fraction: 0.25},
      MultiScale: {num_heads: 8},
      DynamicNTK: {original_length: original},
      DynamicPositionInterpolation: {original_length: original},
      DynamicYaRN: {original_length: original},
      CLEX: {original_length: original},
      LongRoPE: {...common, short: long.map(() => 1), long},
      DynamicLongRoPE: {...common, factors: long},
    }[name] ?? common
  );
};

page.scalingChoices = [
  ["", "none"],
  ["PositionInterpolation", "Position interpolation"],
  ["DynamicPositionInterpolation", "Position interpolation, dynamic"],
  ["NTKAware", "NTK-aware"],
  ["DynamicNTK", "NTK-aware, dynamic"],
  ["NTKByParts", "NTK by parts"],
  ["PartNTK", "NTK by parts, first code"],
  ["YaRN", "YaRN"],
  ["DynamicYaRN", "YaRN, dynamic"],
  ["Llama3", "Llama 3"],
  ["LongRoPE", "LongRoPE (example factors)"],
  ["DynamicLongRoPE", "LongRoPE, dynamic (example factors)"],
  ["Resonance", "Resonance"],
  ["CLEX", "CLEX before training"],
  ["Proportional", "p-RoPE, a quarter of the pairs"],
  ["Clipped", "Clipped, the slowest third"],
  ["MultiScale", "Multiscale, a base a head"],
];

page.wavesOf = theta => theta.map((t, j) => [j, numbers.TURN / t]).filter(([, wave]) => Number.isFinite(wave));
page.unfinished = (theta, length) => theta.filter(t => t > 0 && numbers.TURN / t > length).length;
