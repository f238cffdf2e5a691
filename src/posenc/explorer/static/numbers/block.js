// One rope block of a configuration: its values, whether they are plain, and the scalings that they mean. Whatever is
// not plainly right is refused with its key.
class NotPlain extends Error {}
const refuse = (key, text) => {
  throw Object.assign(new NotPlain(text), {key});
};
const shownValue = value => {
  const text = JSON.stringify(value) ?? "nothing";
  return text.length > 60 ? `${text.slice(0, 57)}…` : text;
};
const isObject = value => value !== null && typeof value === "object" && !Array.isArray(value);
const number =
  (least, above = false) =>
  v =>
    Number.isFinite(v) && (above ? v > least : v >= least) && v <= 1e18;
const count = v => Number.isInteger(v) && v >= 1 && v <= 2 ** 31;
const factors = v => Array.isArray(v) && v.length > 0 && v.every(number(1e-9));
const VALUE = {
  rope_theta: number(1, true),
  factor: number(1),
  partial_rotary_factor: v => number(0)(v) && v <= 1,
  rotary_dim: count,
  original_max_position_embeddings: count,
  max_position_embeddings: count,
  attention_factor: number(1e-9),
  beta_fast: number(1e-9),
  beta_slow: number(1e-9),
  mscale: number(0),
  mscale_all_dim: number(0),
  truncate: v => typeof v === "boolean",
  low_freq_factor: number(1e-9),
  high_freq_factor: number(1e-9),
  short_factor: factors,
  long_factor: factors,
  short_mscale: number(1e-9),
  long_mscale: number(1e-9),
  mrope_section: v => Array.isArray(v) && v.length === 3 && v.every(count),
};
const BESIDE = {
  rope_theta: ["rope_theta", "rotary_emb_base"],
  partial_rotary_factor: ["partial_rotary_factor", "rotary_pct", "rope_pct"],
  rotary_dim: ["rotary_dim"],
  original_max_position_embeddings: ["original_max_position_embeddings"],
};
const SCALED_FROM = ["yarn", "llama3", "longrope"];

// One block with what stands beside it, under the names of version 5 of transformers.
const valuesOf = (config, block, forms) => {
  const found = {};
  for (const [name, value] of Object.entries(block)) {
    const key = name === "type" ? "rope_type" : name,
      plain = key === "rope_type" ? (forms.aliases[value] ?? value) : value;
    if (key === "rope_type" && typeof value !== "string") refuse(key, `must be a string, found ${shownValue(value)}`);
    if (key in found && found[key] !== plain) refuse(key, "is given twice, with different values");
    if (value === null && name === "factor") refuse(key, "is null");
    if (value !== null) found[key] = plain;
  }
  for (const [key, names] of Object.entries(BESIDE)) {
    for (const name of names) {
      const value = config[name];
      if (value == null) continue;
      if (key in found && found[key] !== value)
        refuse(key, `is given twice, with different values: ${shownValue(found[key])} and ${shownValue(value)}`);
      found[key] = value;
    }
  }
  if (found.rope_type === "yarn" && "short_factor" in found) found.rope_type = "longrope";
  return found;
};

const checked = (found, forms) => {
  const type = found.rope_type ?? "default",
    form = forms.types[type];
  if (form === undefined) refuse("rope_type", `${shownValue(type)} is not a rope type that this page supports`);
  for (const [key, value] of Object.entries(found)) {
    if (![...forms.free, ...form.required, ...form.optional].includes(key))
      refuse(key, `is not a key of rope type ${type}`);
    if (key in VALUE && !VALUE[key](value)) refuse(key, `cannot be ${shownValue(value)}`);
  }
  return type;
};

const scalingsOf = (type, v, longest) => {
  const original_length = v.original_max_position_embeddings,
    {factor = 1} = v;
  if (type === "default") return [];
  if (type === "linear") return [{name: "PositionInterpolation", factor}];
  if (type === "proportional") {
    const share = {name: "Proportional", fraction: v.partial_rotary_factor ?? 1};
    return factor === 1 ? [share] : [share, {name: "PositionInterpolation", factor}];
  }
  if (type === "dynamic") {
    if (longest === undefined || (original_length ?? longest) !== longest)
      refuse("max_position_embeddings", "and the original length disagree");
    return [{name: "DynamicNTK", factor, original_length: longest}];
  }
  if (original_length === undefined) refuse("original_max_position_embeddings", "is missing");
  const common = {factor, original_length};
  if (type === "llama3") {
    if (v.high_freq_factor < v.low_freq_factor) refuse("high_freq_factor", "is below low_freq_factor");
    return [{name: "Llama3", ...common, low_freq_factor: v.low_freq_factor, high_freq_factor: v.high_freq_factor}];
  }
  if (type === "longrope") {
    const gains = {gain: v.attention_factor ?? "su", short_gain: v.short_mscale, long_gain: v.long_mscale};
    return [
      {
        name: "LongRoPE",
        ...common,
        factor: v.factor ?? Math.max(1, (longest ?? original_length) / original_length),
        short: v.short_factor,
        long: v.long_factor,
        ...gains,
      },
    ];
  }
  const {beta_fast = 32, beta_slow = 1, truncate = true, attention_factor, mscale, mscale_all_dim} = v;
  if (beta_fast < beta_slow) refuse("beta_fast", "must not be below beta_slow");
  return [{name: "YaRN", ...common, beta_fast, beta_slow, truncate, attention_factor, mscale, mscale_all_dim}];
};

numbers.block = {NotPlain, refuse, shownValue, isObject, count, SCALED_FROM, valuesOf, checked, scalingsOf};
