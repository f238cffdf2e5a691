const {format} = page;
const METHODS = [
  ["ALiBi", "ALiBi", "alibi"],
  ["T5Bias", "T5", "t5"],
  ["KERPLE log", "KERPLE, logarithm", "kerple-log"],
  ["KERPLE power", "KERPLE, power", "kerple-power"],
  ["FIRE", "FIRE", "fire"],
  ["Sandwich", "Sandwich", "sandwich"],
];

// Options of a bias for so many heads, with an example where a model would learn: heads differ as ALiBi's slopes do.
page.biasOptions = (
  name,
  heads,
  {strength = 1, slopes = "press", buckets = 32, farthest = 128, c = 0.1, threshold = 512, dim = 128} = {},
) => {
  const slope = numbers.alibiSlopes(heads);
  const table = Array.from({length: buckets}, (_, bucket) => slope.map(one => -strength * 2 * one * bucket));
  const {fire} = page.data;
  return {
    ALiBi: {name: "ALiBi", num_heads: heads, slopes, bias_scale: strength},
    T5Bias: {name: "T5Bias", num_heads: heads, num_buckets: buckets, max_distance: farthest, table},
    "KERPLE log": {name: "KERPLE", kind: "log", p: slope.map(() => 2 * strength), a: slope},
    "KERPLE power": {
      name: "KERPLE",
      kind: "power",
      p: slope.map((_, h) => 0.3 + (0.7 * h) / heads),
      a: slope.map(one => strength * one),
    },
    FIRE: {
      name: "FIRE",
      c,
      threshold,
      inner: fire.inner,
      inner_bias: fire.inner_bias,
      outer: fire.outer.slice(0, heads),
      outer_bias: fire.outer_bias.slice(0, heads),
    },
    Sandwich: {name: "Sandwich", num_heads: heads, dim},
  }[name];
};
page.biasMethods = METHODS;

const WORDS = {
  ALiBi: "a straight line for each head: some heads attend to near keys, others to far ones. Nothing is learned.",
  T5Bias:
    "a step for each bucket: near distances have a bucket each, far ones share, and all distances from the start of the last bucket on have one value. A model learns the values; these are examples.",
  "KERPLE log":
    "the penalty grows like a logarithm, ever more slowly. A model learns strength and scale of each head; these are examples.",
  "KERPLE power":
    "the penalty grows like a power of the distance. A model learns both numbers of each head; these are examples.",
  FIRE: "a small network of the distance divided by the query's position: move the query past the threshold, and the same curve is interpolated over the longer context. Its weights are random, as before training.",
  Sandwich: "sums of cosines: steep at first, then like a logarithm, with ripples. Nothing is learned.",
};

page.view(
  "biases",
  "biases",
  "A bias by distance decides how far each head attends",
  "The bias added to the attention logit of a key by its distance, for each head: a bias lower by 2 is a seventh of the weight. See where lines stay flat, where they fall, and what happens beyond the training length.",
  view => {
    const method = view.choice("encoding", "Encoding", METHODS),
      heads = view.slider("heads", "Heads", {least: 1, most: 8, value: 8});
    const farthest = view.powers("farthest", "Tokens back, shown up to", {least: 4, most: 14, value: 8});
    const strength = view.slider("strength", "Strength", {least: 0.1, most: 3, step: 0.1, value: 1, show: x => `${format(x)} ×`});
    const slopes = view.choice("slopes", "Slopes", [
      ["press", "the paper's"],
      ["geometric", "geometric for every number of heads"],
      ["kerple", "at least 0.01"],
    ]);
    const buckets = view.slider("buckets", "Buckets", {least: 4, most: 64, step: 2, value: 32});
    const shared = view.powers("last", "Last bucket from, tokens", {least: 6, most: 12, value: 7});
    const query = view.powers("position", "Position of the query", {least: 4, most: 14, value: 10});
    const c = view.tens("c", "c, scale in the logarithm", {least: -2, most: 1, step: 0.1, value: -1});
    const threshold = view.powers("threshold", "Threshold, tokens", {least: 4, most: 12, value: 9});
    const dim = view.slider("dim", "Channels: two for each cosine", {least: 8, most: 256, step: 8, value: 128});
    return () => {
      const name = method.value,
        of = (control, ...names) => page.shown(control, names.includes(name));
      of(strength, "ALiBi", "T5Bias", "KERPLE log", "KERPLE power");
      of(slopes, "ALiBi");
      of(buckets, "T5Bias");
      of(shared, "T5Bias");
      of(query, "FIRE");
      of(c, "FIRE");
      of(threshold, "FIRE");
      of(dim, "Sandwich");
      const given = {
        strength: strength.value,
        slopes: slopes.value,
        buckets: buckets.value,
        farthest: shared.value,
        c: c.value,
        threshold: threshold.value,
        dim: dim.value,
      };
      const options = page.biasOptions(name, heads.value, given),
        bias = numbers.biases[options.name](options);
      const most = name === "FIRE" ? Math.min(farthest.value, query.value) : farthest.value,
        step = Math.max(1, Math.floor(most / 240));
      const distances = Array.from({length: Math.floor(most / step) + 1}, (_, i) => i * step);
      view.say(`${METHODS.find(([key]) => key === name)[1]}: ${WORDS[name]}`);
      page.lines(view.figure, {
        label: `Bias of ${name} by distance for each head`,
        x: {label: "distance (tokens back)"},
        y: {label: "bias on the attention logit"},
        series: Array.from({length: heads.value}, (_, h) => ({
          name: `head ${h + 1}`,
          points: distances.map(d => [d, bias(h, -d, query.value)]),
        })),
      });
    };
  },
);
