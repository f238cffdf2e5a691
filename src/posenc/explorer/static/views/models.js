// The configs that come with the page, and what views share: spectra by model and kind of layers. Names in the address are
// the models' names, and for scalings those of posenc's catalogue.
const {data} = page;

page.modelChoices = () => data.models.map((model, i) => [String(i), model.name, model.name]);

// Every kind of layers that rotates, of all configs that could be read, as options of a choice.
page.rotatingLayers = () =>
  data.models.flatMap((model, i) =>
    Object.entries(model.kinds).map(([kind]) => {
      const words = kind === "all" ? model.name : `${model.name}: ${kind.replaceAll("_", " ")}`;
      return [`${i} ${kind}`, words, words];
    }),
  );

page.kindOf = key => {
  const [index, ...kind] = key.split(" ");
  return data.models[Number(index)].kinds[kind.join(" ")];
};

// The pair, from 1, whose period is nearest to so many tokens, at the usual base.
const nearestPair = (dim, tokens) => {
  const gaps = numbers.geometric(dim, 10000).map(t => Math.abs(numbers.TURN / t - tokens));
  return gaps.indexOf(Math.min(...gaps)) + 1;
};

// Options for each scaling as a person would try it: for a context `factor` times the training length.
page.optionsFor = (name, {dim, factor, original}) => {
  const pairs = dim / 2,
    long = Array.from({length: pairs}, (_, j) => 1 + ((factor - 1) * j) / Math.max(1, pairs - 1));
  const common = {factor, original_length: original};
  return (
    {
      PositionInterpolation: {factor},
      NTKAware: {factor},
      Resonance: {},
      RIFLEx: {k: nearestPair(dim, original), length: Math.round(original * factor)},
      DyPE: {length: Math.round(original * factor), original_length: original, timestep: 0.5},
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
  ["", "none", "none"],
  ["PositionInterpolation", "Position interpolation", "pi"],
  ["DynamicPositionInterpolation", "Position interpolation, dynamic", "dynamic_pi"],
  ["NTKAware", "NTK-aware", "ntk"],
  ["DynamicNTK", "NTK-aware, dynamic", "dynamic_ntk"],
  ["NTKByParts", "NTK by parts", "ntk_by_parts"],
  ["PartNTK", "NTK by parts, first released code", "part_ntk"],
  ["YaRN", "YaRN", "yarn"],
  ["DynamicYaRN", "YaRN, dynamic", "dynamic_yarn"],
  ["Llama3", "Llama 3", "llama3"],
  ["LongRoPE", "LongRoPE (example factors)", "longrope"],
  ["DynamicLongRoPE", "LongRoPE, dynamic (example factors)", "dynamic_longrope"],
  ["Resonance", "Resonance", "resonance"],
  ["RIFLEx", "RIFLEx, the pair that repeats", "riflex"],
  ["DyPE", "DyPE in the middle of denoising", "dype"],
  ["CLEX", "CLEX before training", "clex"],
  ["Proportional", "p-RoPE, a quarter of the pairs", "proportional"],
  ["Clipped", "Clipped RoPE, the slowest third", "clipped"],
  ["MultiScale", "Multiscale, a base for each head", "multiscale"],
];

page.wavesOf = theta => theta.map((t, j) => [j, numbers.TURN / t]).filter(([, wave]) => Number.isFinite(wave));
page.unfinished = (theta, length) => theta.filter(t => t > 0 && numbers.TURN / t > length).length;
