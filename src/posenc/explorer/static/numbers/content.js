// Attention whose positions come from the content: CoPE, FoX, stick-breaking. Scores are rows of queries over keys, both in
// the order of the text; a query attends to itself and to earlier tokens. Each gives rows of weights.
numbers.sigmoid = x => (x >= 0 ? 1 / (1 + Math.exp(-x)) : Math.exp(x) / (1 + Math.exp(x)));
numbers.logSigmoid = x => (x >= 0 ? -Math.log1p(Math.exp(-x)) : x - Math.log1p(Math.exp(x)));

numbers.causalSoftmax = scores =>
  scores.map((row, i) => {
    const seen = row.slice(0, i + 1),
      most = Math.max(...seen),
      parts = seen.map(s => Math.exp(s - most));
    const sum = parts.reduce((a, b) => a + b, 0);
    return row.map((_, j) => (j <= i ? parts[j] / sum : 0));
  });

// For each query and key, the sum of f(query, l) over the keys l from `from(key)` to the query, newest first.
const sumsBack = (scores, f, from) =>
  scores.map((row, i) => {
    const sums = row.map(() => 0);
    let sum = 0;
    for (let j = i; j >= 0; j -= 1) {
      if (from === "after") {
        sums[j] = sum;
        sum += f(i, j);
      } else {
        sum += f(i, j);
        sums[j] = sum;
      }
    }
    return sums;
  });

// gates: logits like scores; by_position: what each query adds at counts 0 … P.
numbers.cope = ({scores, gates, by_position}) => {
  const last = by_position[0].length - 1;
  const counts = sumsBack(scores, (i, j) => numbers.sigmoid(gates[i][j]), "own").map(row =>
    row.map(p => Math.min(p, last)),
  );
  const term = (i, p) => {
    const below = Math.floor(p),
      share = p - below;
    return by_position[i][below] * (1 - share) + by_position[i][Math.ceil(p)] * share;
  };
  const weights = numbers.causalSoftmax(
    scores.map((row, i) => row.map((s, j) => (j <= i ? s + term(i, counts[i][j]) : s))),
  );
  return {weights, counts};
};

// log_gates: of each token, at most 0.
numbers.fox = ({scores, log_gates}) => {
  const decay = sumsBack(scores, (i, j) => log_gates[j], "after");
  return {weights: numbers.causalSoftmax(scores.map((row, i) => row.map((s, j) => s + decay[i][j]))), decay};
};

numbers.stickBreaking = ({scores, attend_current = false, remainder = "drop"}) => {
  const sees = (i, j) => (attend_current ? j <= i : j < i);
  const broken = (i, j) => (sees(i, j) ? numbers.logSigmoid(-scores[i][j]) : 0);
  const left = sumsBack(scores, broken, "after");
  const remainders = scores.map((_, i) => Math.exp(left[i][0] + broken(i, 0)));
  const weights = scores.map((row, i) =>
    row.map((s, j) => {
      const share = sees(i, j) ? Math.exp(numbers.logSigmoid(s) + left[i][j]) : 0;
      return share + (remainder === "own" && i === j ? remainders[i] : 0);
    }),
  );
  return {weights, remainders};
};
