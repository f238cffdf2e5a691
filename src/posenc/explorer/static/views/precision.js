const {format} = page;
const DTYPES = Object.keys(numbers.dtypes),
  NEAR = 4,
  EXACT = "full rotations removed first (posenc)";

page.view(
  "precision",
  "precision",
  "Angles lose precision at large positions: bfloat16 within hundreds of tokens, float32 within millions",
  "The error of the computed angle when position, frequency and their product are rounded. At 3.14 the angle is arbitrary. Only removing full rotations before rounding keeps the error flat.",
  view => {
    const shown = view.ticks(
      "dtypes",
      "Computed in",
      [...DTYPES.map(name => [name, name]), [EXACT, EXACT, "exact"]],
      ["bfloat16", "float16", "float32", EXACT],
    );
    const base = view.tens("base", "Base", {least: 2, most: 8, value: 4});
    const dim = view.slider("channels", "Rotated channels", {least: 8, most: 128, step: 8, value: 64});
    const which = view.slider("pair", "Pair (−1: the worst)", {least: -1, most: 63, value: -1});
    const at = view.powers("position", "Read at position", {least: 4, most: 24, value: 17});
    return () => {
      const all = numbers.geometric(dim.value, base.value);
      which.limit(-1, all.length - 1);
      if (which.value > all.length - 1) which.value = all.length - 1;
      const theta = which.value < 0 ? all : [all[which.value]];
      const error = (name, p) =>
        Math.max(...theta.map(t => (name === EXACT ? numbers.exactError(p, t) : numbers.angleError(p, t, name))));
      const worst = (name, p) =>
        Math.max(...Array.from({length: NEAR}, (_, k) => error(name, p + k)).filter(Number.isFinite), 0);
      const overflows = (name, p) => name !== EXACT && !Number.isFinite(error(name, p));
      const positions = Array.from({length: 61}, (_, k) => Math.round(2 ** (k * 0.4)));
      const errors = shown.value.map(name =>
        overflows(name, at.value) ? `${name} overflows` : `${name} ${format(worst(name, at.value))}`,
      );
      view.say(
        `From position ${format(at.value)} on, the largest error over ${NEAR} tokens in radians: ${errors.join(", ") || "nothing is chosen"}.`,
      );
      page.lines(view.figure, {
        label: "Error of the angle by position for each dtype",
        x: {label: "position (log scale)", log: true},
        y: {label: "error of the angle (radians, log scale)", log: true, least: 1e-10, most: 4},
        series: shown.value.map(name => ({
          name,
          colour: [...DTYPES, EXACT].indexOf(name),
          points: positions.filter(p => !overflows(name, p)).map(p => [p, worst(name, p)]),
        })),
        rules: [
          {at: at.value, along: "x", name: format(at.value)},
          {at: Math.PI, name: "half a rotation"},
        ],
      });
    };
  },
);
