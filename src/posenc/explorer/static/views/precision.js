const {format} = page;
const DTYPES = Object.keys(numbers.dtypes),
  NEAR = 4,
  EXACT = "full rotations removed first (posenc)";

page.view(
  "precision",
  "Angles lose precision at large positions: bfloat16 within hundreds of tokens, float32 within millions",
  "The error of the computed angle when position, frequency and their product are rounded. At 3.14 the angle is arbitrary. Only removing full rotations before rounding keeps the error flat.",
  view => {
    const shown = view.ticks(
      "Computed in",
      [...DTYPES.map(name => [name, name]), [EXACT, EXACT]],
      ["bfloat16", "float16", "float32", EXACT],
    );
    const base = view.slider("Base", {
      least: 2,
      most: 8,
      step: 0.05,
      value: 4,
      of: x => Number((10 ** x).toPrecision(3)),
    });
    const dim = view.slider("Rotated channels", {least: 8, most: 128, step: 8, value: 64});
    const which = view.slider("Pair (−1: the worst)", {least: -1, most: 31, value: -1});
    const at = view.powers("Read at position", {least: 4, most: 24, value: 17});
    return () => {
      const all = numbers.geometric(dim.value, base.value);
      which.limit(-1, all.length - 1);
      const theta = which.value < 0 ? all : [all[Math.min(which.value, all.length - 1)]];
      const error = (name, p) =>
        Math.max(...theta.map(t => (name === EXACT ? numbers.exactError(p, t) : numbers.angleError(p, t, name))));
      const worst = (name, p) =>
        Math.max(...Array.from({length: NEAR}, (_, k) => error(name, p + k)).filter(Number.isFinite), 0);
      const overflows = (name, p) => name !== EXACT && !Number.isFinite(error(name, p));
      const places = Array.from({length: 61}, (_, k) => Math.round(2 ** (k * 0.4)));
      const errors = shown.value.map(name =>
        overflows(name, at.value) ? `${name} overflows` : `${name} ${format(worst(name, at.value))}`,
      );
      view.say(
        `From position ${format(at.value)} on, the largest error over ${NEAR} tokens in radians: ${errors.join(", ") || "nothing is chosen"}.`,
      );
      page.lines(view.figure, {
        label: "Error of the angle by position for each dtype",
        x: {label: "position", log: true},
        y: {label: "radians off", log: true, least: 1e-10, most: 4},
        series: shown.value.map(name => ({
          name,
          colour: [...DTYPES, EXACT].indexOf(name),
          points: places.filter(p => !overflows(name, p)).map(p => [p, worst(name, p)]),
        })),
        rules: [
          {at: at.value, along: "x", name: format(at.value)},
          {at: Math.PI, name: "half a turn"},
        ],
      });
    };
  },
);
