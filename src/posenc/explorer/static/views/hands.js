const {svg, make, format} = page;
const DEGREES = 180 / Math.PI;

const clock = (angleOfQuery, angleOfKey, number, chosen) => {
  const hand = (angle, name) =>
    svg("line", {class: name, x1: 0, y1: 0, x2: 30 * Math.sin(angle), y2: -30 * Math.cos(angle)});
  const [from, to] = [angleOfKey, angleOfQuery],
    apart = numbers.wrapped(to - from);
  const arc = `M${12 * Math.sin(from)} ${-12 * Math.cos(from)}A12 12 0 0 ${apart > 0 ? 1 : 0} ${12 * Math.sin(to)} ${-12 * Math.cos(to)}`;
  return svg(
    "svg",
    {
      viewBox: "-40 -40 80 94",
      class: chosen ? "clock chosen" : "clock",
      role: "img",
      "aria-label": `pair ${number}: query ${format(angleOfQuery * DEGREES)}°, key ${format(angleOfKey * DEGREES)}°`,
    },
    svg("circle", {class: "face", r: 36}),
    svg("path", {class: "apart", d: arc}),
    hand(angleOfKey, "key"),
    hand(angleOfQuery, "query"),
    svg("text", {y: 51, "text-anchor": "middle"}, `pair ${number}`),
  );
};

const strip = (name, channels, pair) =>
  make(
    "div",
    {className: "strip"},
    make("span", {className: "name"}, name),
    make(
      "div",
      {className: "channels"},
      ...channels.map((of, c) =>
        make(
          "span",
          {className: of === pair ? "channel chosen" : "channel", title: `channel ${c}: pair ${of}`},
          String(c),
        ),
      ),
    ),
  );

page.view(
  "hands",
  "A rotation is a set of clock hands: only the angle between query and key enters the dot product",
  "Each pair of channels is a hand that rotates at its own frequency. Move both tokens along the sequence: all hands rotate, and the angle between query and key stays. Change the distance: the angle opens, fast pairs first. Below, which two channels form the chosen pair: a checkpoint read in the wrong layout rotates the wrong channels together.",
  view => {
    const dim = view.slider("Channels of a head", {least: 4, most: 32, step: 4, value: 16});
    const base = view.slider("Base", {
      least: 1,
      most: 6,
      step: 0.1,
      value: 4,
      of: x => Number((10 ** x).toPrecision(3)),
    });
    const query = view.slider("Position of the query", {least: 0, most: 4096, value: 40});
    const distance = view.slider("Distance of the key, tokens", {least: 0, most: 512, value: 3});
    const chosen = view.slider("Pair", {least: 0, most: 7, value: 2});
    return () => {
      const pairs = dim.value / 2,
        theta = numbers.geometric(dim.value, base.value);
      chosen.limit(0, pairs - 1);
      const pair = Math.min(chosen.value, pairs - 1),
        p = query.value,
        apart = distance.value;
      const half = Array.from({length: dim.value}, (_, c) => c % pairs),
        interleaved = Array.from({length: dim.value}, (_, c) => Math.floor(c / 2));
      const turn = (theta[pair] * p) / numbers.TURN,
        open = numbers.wrapped(theta[pair] * apart) * DEGREES;
      view.say(
        `Pair ${pair} rotates by ${format(theta[pair])} radians a token, once in ${format(numbers.TURN / theta[pair])} tokens. At position ${format(p)} it has made ${format(Math.floor(turn))} full rotations ` +
          `and stands at ${format((turn % 1) * 360)}°. Between query and key, ${apart} tokens apart, lie ${format(open)}°, wherever they stand. It is channels ${pair} and ${pair + pairs} in the half layout, ${2 * pair} and ${2 * pair + 1} interleaved.`,
      );
      view.figure.replaceChildren(
        make("div", {className: "clocks"}, ...theta.map((t, j) => clock(t * p, t * (p - apart), j, j === pair))),
        make(
          "p",
          {className: "readout"},
          "Long hand in colour: the query. Thin hand: the key. Arc: the angle in the dot product.",
        ),
        strip("half", half, pair),
        strip("interleaved", interleaved, pair),
      );
    };
  },
);
