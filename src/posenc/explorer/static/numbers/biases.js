// What a bias adds to an attention logit, by the names and options of posenc.bias: each entry takes its options and gives a function
// of the head (from 0), of the distance p_key − p_query in tokens (negative in the past) and, for FIRE, of p_query.
const powers = (heads, exponent) => Array.from({length: heads}, (_, h) => 2 ** ((-exponent * (h + 1)) / heads));

numbers.alibiSlopes = (heads, kind = "press", exponent = 8) => {
  if (kind === "geometric") return powers(heads, exponent);
  const whole = 2 ** Math.floor(Math.log2(heads));
  const rest = powers(2 * whole, exponent)
    .filter((_, h) => h % 2 === 0)
    .slice(0, heads - whole);
  const slopes = [...powers(whole, exponent), ...rest];
  return kind === "kerple" ? slopes.map(slope => Math.max(slope, 0.01)) : slopes;
};

// The first distance of each bucket of one direction, exact in integers.
numbers.bucketStarts = (buckets, farthest) => {
  const exact = Math.floor(buckets / 2),
    wide = buckets - exact;
  const starts = Array.from({length: exact + 1}, (_, n) => n);
  for (let step = 1; step < wide; step += 1) {
    const edge = BigInt(farthest) ** BigInt(step) * BigInt(exact) ** BigInt(wide - step);
    let low = 0,
      high = farthest;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (BigInt(middle) ** BigInt(wide) < edge) low = middle + 1;
      else high = middle;
    }
    starts.push(low);
  }
  return starts;
};

numbers.bucketOf = ({num_buckets, max_distance, bidirectional = false}) => {
  const half = bidirectional ? num_buckets / 2 : num_buckets,
    starts = numbers.bucketStarts(half, max_distance);
  return distance => {
    const past = bidirectional ? Math.abs(distance) : Math.max(0, -distance);
    return starts.findLastIndex(start => start <= past) + (bidirectional && distance > 0 ? half : 0);
  };
};

numbers.biases = {
  ALiBi: o => {
    const named = !Array.isArray(o.slopes);
    const slopes = named ? numbers.alibiSlopes(o.num_heads, o.slopes, o.max_exponent) : o.slopes;
    return (head, distance) => -Math.abs(distance) * slopes[head] * (o.bias_scale ?? 1);
  },
  // table: one row a bucket, one number a head
  T5Bias: o => {
    const bucket = numbers.bucketOf(o);
    return (head, distance) => o.table[bucket(distance)][head] * (o.bias_scale ?? 1);
  },
  KERPLE: o => (head, distance) => {
    const far = Math.abs(distance),
      a = Math.max(0.01, o.a[head]),
      p = Math.max(0.01, o.p[head]);
    if (o.kind === "power") return far > 0 ? -a * far ** Math.min(p, 2) : 0;
    return -p * Math.log1p(a * far);
  },
  Sandwich: given => {
    const o = {dim: 128, start: 0, ...given};
    const waves = Array.from({length: o.dim / 2}, (_, k) => Math.exp((-2 * (k + o.start) * Math.log(1e4)) / o.dim));
    const sums = new Map(); // of a distance, which all heads have in common
    return (head, distance) => {
      if (!sums.has(distance))
        sums.set(
          distance,
          waves.reduce((sum, wave) => sum + Math.cos(distance * wave), 0),
        );
      return (sums.get(distance) * o.num_heads) / (8 * (head + 1));
    };
  },
  // inner, inner_bias: of the hidden units; outer: one row a head; outer_bias: of the heads
  FIRE: given => {
    const o = {multiplier: 1, leak: 0, ...given},
      psi = tokens => Math.log1p(Math.abs(o.c * tokens));
    return (head, distance, query) => {
      const limit = Math.max(query, Math.abs(o.multiplier * o.threshold));
      const ratio = psi(Math.abs(distance)) / (psi(limit) + 1e-6);
      return o.inner.reduce((sum, weight, unit) => {
        const x = weight * ratio + o.inner_bias[unit];
        return sum + o.outer[head][unit] * (x < 0 ? o.leak * x : x);
      }, o.outer_bias[head]);
    };
  },
};

// The score of a query for an equal key: the cosines of a rotation, whose mean is 1 at distance 0, times `strength`, and the
// biases of a list [{name, …options}]; `rope` is a spectrum or null.
numbers.scorer = ({rope = null, strength = 1, biases = []}) => {
  const functions = biases.map(({name, ...options}) => numbers.biases[name](options));
  return (head, distance, query) => {
    const waves =
      rope === null
        ? 1
        : (rope.gain ** 2 * rope.theta.reduce((sum, t) => sum + Math.cos(distance * t), 0)) / rope.theta.length;
    return functions.reduce((sum, bias) => sum + bias(head, distance, query), strength * waves);
  };
};
