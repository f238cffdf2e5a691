// Frequencies of rotary pairs and their scalings, by the names and options of posenc.frequencies, in doubles.
// A spectrum is {theta, gain}: radians per token of each pair (of each head's pairs under MultiScale), and the factor on
// rotated queries and keys. A scaling takes a spectrum, its options, and the sequence length (null: as in training).
numbers.TURN = 2 * Math.PI;
const {TURN} = numbers;

numbers.geometric = (dim, base) =>
  Array.from({length: Math.ceil(dim / 2)}, (_, j) => Math.exp((-2 * j * Math.log(base)) / dim));

const clip = (x, low, high) => Math.min(high, Math.max(low, x));
const changed = (spectrum, rule, gain = 1) => ({theta: spectrum.theta.map(rule), gain: spectrum.gain * gain});
const longer = (length, original) => (length == null ? 1 : Math.max(1, length / original));
const withLargerBase = (theta, scale) => theta.map((t, j) => t * scale ** (-j / (theta.length - 1)));
const byTurns = (t, original, low, high) => {
  const turns = (original * t) / TURN;
  return low === high ? Number(turns >= high) : clip((turns - low) / (high - low), 0, 1);
};

// The fractional number of the pair that completes so many rotations within the training length, on a geometric spectrum.
const indexOf = (theta, turns, original) => {
  const first = Math.log(theta[0]),
    last = Math.log(theta.at(-1));
  return ((theta.length - 1) * (first - Math.log((TURN * turns) / original))) / (first - last);
};

// How far each pair is on the way from plain, 0, to interpolated, 1: a ramp in the number of the pair.
const byIndex = (theta, original, fast, slow, truncate = true, last = 2 * theta.length - 1) => {
  let low = indexOf(theta, fast, original),
    high = indexOf(theta, slow, original);
  if (truncate) [low, high] = [Math.floor(low), Math.ceil(high)];
  low = Math.max(low, 0);
  high = Math.min(high, last);
  if (low === high) high += 0.001;
  return theta.map((_, j) => clip((j - low) / (high - low), 0, 1));
};

const sharper = (factor, mscale) => 0.1 * mscale * Math.log(factor) + 1;
const gainOf = (gain, factor, original) =>
  gain === "su"
    ? factor > 1
      ? Math.sqrt(1 + Math.log(factor) / Math.log(original))
      : 1
    : gain === "yarn"
      ? sharper(factor, 1)
      : gain;
const yarnGain = o =>
  o.attention_factor ??
  (o.mscale && o.mscale_all_dim // one alone, or 0, counts as absent
    ? sharper(o.factor, o.mscale) / sharper(o.factor, o.mscale_all_dim)
    : sharper(o.factor, 1)) * o.attn_factor;
const staysUnderYarn = (theta, o) =>
  o.ramp === "rotations"
    ? theta.map(t => byTurns(t, o.original_length, o.beta_slow, o.beta_fast))
    : byIndex(theta, o.original_length, o.beta_fast, o.beta_slow, o.truncate).map(share => 1 - share);
// Slow pairs linear, middle ones NTK-aware, fast ones plain, blended by index between so many times the usual rotations.
const partNTK = (theta, o, times = 1, last = undefined) => {
  const aware = withLargerBase(theta, o.factor);
  const stays = (fast, slow) =>
    byIndex(theta, o.original_length, times * fast, times * slow, true, last).map(ramp => 1 - ramp);
  const ntk = stays(1.25, 0.75).map(share => share * o.ntk_factor),
    plain = stays(16, 2).map(share => share * o.extrapolation_factor);
  return theta.map((t, j) => ((t / o.factor) * (1 - ntk[j]) + aware[j] * ntk[j]) * (1 - plain[j]) + t * plain[j]);
};
numbers.halfEven = x => {
  const below = Math.floor(x),
    rest = x - below;
  return rest > 0.5 || (rest === 0.5 && below % 2 !== 0) ? below + 1 : below;
};
const RAMP = {beta_fast: 32, beta_slow: 1, truncate: true, ramp: "index"};

numbers.scalings = {
  PositionInterpolation: (s, o) => changed(s, t => t / o.factor),
  DynamicPositionInterpolation: (s, o, length) => changed(s, t => t / longer(length, o.original_length)),
  NTKAware: (s, o) => ({...s, theta: withLargerBase(s.theta, o.factor)}),
  DynamicNTK: (s, given, length) => {
    const o = {factor: 1, schedule: "continuous", ...given},
      times = longer(length, o.original_length);
    const powers = times > 1 ? 2 ** Math.ceil(Math.log2(times) + 1) - 1 : 1;
    const scale = o.schedule === "powers" ? powers : Math.max(1, o.factor * times - (o.factor - 1));
    return {...s, theta: withLargerBase(s.theta, scale)};
  },
  NTKByParts: (s, given) => {
    const o = {alpha: 1, beta: 32, ...given};
    return changed(s, t => {
      const stays = byTurns(t, o.original_length, o.alpha, o.beta);
      return ((1 - stays) * t) / o.factor + stays * t;
    });
  },
  PartNTK: (s, given) => ({...s, theta: partNTK(s.theta, {ntk_factor: 1, extrapolation_factor: 1, ...given})}),
  YaRN: (s, given) => {
    const o = {...RAMP, extrapolation_factor: 1, attn_factor: 1, ...given},
      stays = staysUnderYarn(s.theta, o);
    const kept = stays.map(share => share * o.extrapolation_factor);
    return changed(s, (t, j) => (t / o.factor) * (1 - kept[j]) + t * kept[j], yarnGain(o));
  },
  DynamicYaRN: (s, given, length) => {
    const o = {...RAMP, ...given},
      times = longer(length, o.original_length),
      stays = staysUnderYarn(s.theta, o);
    return changed(s, (t, j) => (t / times) * (1 - stays[j]) + t * stays[j], sharper(times, 1));
  },
  Llama3: (s, given) => {
    const o = {low_freq_factor: 1, high_freq_factor: 4, ...given};
    return changed(s, t => {
      const stays = byTurns(t, o.original_length, o.low_freq_factor, o.high_freq_factor);
      return ((1 - stays) * t) / o.factor + stays * t;
    });
  },
  LongRoPE: (s, given, length) => {
    const o = {gain: "su", ...given},
      past = longer(length, o.original_length) > 1;
    const gain = (past ? o.long_gain : o.short_gain) ?? gainOf(o.gain, o.factor, o.original_length);
    return changed(s, (t, j) => t / (past ? o.long : o.short)[j], gain);
  },
  DynamicLongRoPE: (s, given, length) => {
    const o = {gain: "su", ...given},
      times = Math.min(o.factor, longer(length, o.original_length));
    const share = o.factor > 1 ? (times - 1) / (o.factor - 1) : 1;
    return changed(s, (t, j) => t / (1 + (o.factors[j] - 1) * share), gainOf(o.gain, o.factor, o.original_length));
  },
  RIFLEx: (s, given) => {
    const o = {share: 0.9, ...given};
    return changed(s, (t, j) => (j === o.k - 1 ? (o.share * TURN) / o.length : t));
  },
  DyPE: (s, given) => {
    const o = {original_length: 64, timestep: 1, method: "yarn", dynamic: true, ...given},
      factor = o.length / o.original_length,
      clock = o.dynamic ? o.timestep ** 2 : 1;
    if (factor <= 1) return s;
    if (o.method === "ntk") return {...s, theta: withLargerBase(s.theta, o.dynamic ? factor ** (2 * clock) : factor)};
    const part = {factor, original_length: o.original_length, ntk_factor: 1, extrapolation_factor: 1};
    const theta = clock === 0 ? s.theta : partNTK(s.theta, part, clock, s.theta.length);
    return {theta, gain: s.gain * sharper(factor, 1)};
  },
  Resonance: s => changed(s, t => TURN / Math.max(1, numbers.halfEven(TURN / t))),
  Proportional: (s, o) => {
    const rotated = Math.floor(Math.trunc(o.fraction * 2 * s.theta.length) / 2);
    return changed(s, (t, j) => (j < rotated ? t : 0));
  },
  Clipped: (s, given) => {
    const o = {count: 20, kind: "soft", ...given},
      count = Math.min(o.count, s.theta.length);
    const start = s.theta.length - count;
    const share = j =>
      j < start ? 1 : o.kind === "hard" ? 0 : (1 + Math.cos((Math.PI * (j - start)) / Math.max(1, count - 1))) / 2;
    return changed(s, (t, j) => t * share(j));
  },
  // As it begins, before its network has learned anything: NTK-aware by 2t − 1.
  CLEX: (s, given, length) => {
    const o = {max_factor: 16, continuous: false, ...given},
      times = longer(length, o.original_length);
    const scale = Math.min(o.max_factor, o.continuous ? times : Math.ceil(times));
    return {...s, theta: withLargerBase(s.theta, 2 * scale - 1)};
  },
  MultiScale: (s, given) => {
    const o = {min_base: 1e3, max_base: 1e5, ...given},
      kv = o.num_kv_heads ?? o.num_heads;
    const low = Math.log(o.min_base),
      high = Math.log(o.max_base);
    const bases = Array.from({length: kv}, (_, h) =>
      Math.exp(kv === 1 ? (low + high) / 2 : low + ((high - low) * h) / (kv - 1)),
    );
    const rows = bases.flatMap(base =>
      Array.from({length: o.num_heads / kv}, () => numbers.geometric(2 * s.theta.length, base)),
    );
    return {...s, theta: rows};
  },
};

// The spectrum of so many rotated channels under a list of scalings, each with its name and options.
numbers.spectrum = ({dim, base, scalings = [], length = null}) => {
  let spectrum = {theta: numbers.geometric(dim, base), gain: 1};
  for (const {name, ...options} of scalings) spectrum = numbers.scalings[name](spectrum, options, length);
  return spectrum;
};
