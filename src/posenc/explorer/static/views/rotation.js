const {svg, make, format} = page;
const DEGREES = 180 / Math.PI,
  TRAIL = 12,
  SIDE = 190; // half the side of the plane, in pixels; a unit vector has 100

const tip = (angle, length) => [length * Math.cos(angle), -length * Math.sin(angle)]; // y points upwards
const arrow = (angle, length, name) => {
  const [x2, y2] = tip(angle, length);
  return svg("line", {class: name, x1: 0, y1: 0, x2, y2});
};
// The smaller of the two arcs from one angle to another.
const arc = (from, to, radius) => {
  const [x1, y1] = tip(from, radius),
    [x2, y2] = tip(to, radius);
  return svg("path", {
    class: "apart",
    d: `M${x1} ${y1}A${radius} ${radius} 0 0 ${numbers.wrapped(to - from) > 0 ? 0 : 1} ${x2} ${y2}`,
  });
};

// One pair in its plane: query and key, the angle between them, and where the query was at the positions before.
const plane = (theta, position, distance, names) => {
  const query = theta * position,
    key = theta * (position - distance);
  const label = (angle, words) => {
    const [x, y] = tip(angle, 118);
    return svg("text", {class: "axis", x, y: y + 4, "text-anchor": "middle"}, words);
  };
  const trail = Array.from({length: Math.min(TRAIL, position)}, (_, back) => {
    const [cx, cy] = tip(theta * (position - back - 1), 100);
    return svg("circle", {class: "trail", cx, cy, r: 4, "fill-opacity": 0.7 * (1 - back / TRAIL)});
  });
  return svg(
    "svg",
    {
      viewBox: `${-SIDE} ${20 - SIDE} ${2 * SIDE} ${2 * SIDE - 40}`,
      class: "plane",
      role: "img",
      "aria-label": `the plane of the pair: query at ${format(numbers.wrapped(query) * DEGREES)}°, key at ${format(numbers.wrapped(key) * DEGREES)}°`,
    },
    svg("path", {class: "grid", d: `M${-SIDE} 0H${SIDE}M0 ${-SIDE}V${SIDE}`}),
    svg("circle", {class: "face", r: 100}),
    svg("text", {x: SIDE - 2, y: -8, "text-anchor": "end"}, names[0]),
    svg("text", {x: 6, y: 30 - SIDE}, names[1]),
    ...[-1, 1].flatMap(end => [
      svg("text", {x: end * 100 + 4, y: 14, "text-anchor": "start"}, String(end)),
      svg("text", {x: -5, y: -end * 100 + (end > 0 ? -4 : 13), "text-anchor": "end"}, String(end)),
    ]),
    ...trail,
    arc(key, query, 40),
    arrow(key, 100, "key"),
    arrow(query, 100, "query"),
    label(key, distance ? "key" : ""),
    label(query, distance ? "query" : "query, key"),
  );
};

const small = (query, key, number, chosen) =>
  svg(
    "svg",
    {
      viewBox: "-40 -40 80 94",
      class: chosen ? "clock chosen" : "clock",
      role: "img",
      "aria-label": `pair ${number}: query at ${format(numbers.wrapped(query) * DEGREES)}°, key at ${format(numbers.wrapped(key) * DEGREES)}°`,
    },
    svg("circle", {class: "face", r: 36}),
    arc(key, query, 12),
    arrow(key, 30, "key"),
    arrow(query, 30, "query"),
    svg("text", {y: 51, "text-anchor": "middle"}, `pair ${number}`),
  );

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
  "rotation",
  "rotation",
  "RoPE rotates each pair of channels: only the angle between query and key enters the dot product",
  "Each pair of channels is a vector in a plane that rotates at its own frequency. Press play: query and key move along the sequence, all vectors rotate, and the angle between query and key stays. Change the distance: the angle opens, fast pairs first. Below, which two channels form the chosen pair: a checkpoint read in the wrong layout rotates the wrong channels together.",
  view => {
    const query = view.slider("position", "Position of the query", {least: 0, most: 4096, value: 40});
    view.player(query, "move query and key along the sequence");
    const distance = view.slider("distance", "Distance of the key, tokens", {least: 0, most: 512, value: 3});
    const chosen = view.slider("pair", "Pair", {least: 0, most: 15, value: 2});
    const dim = view.slider("channels", "Channels of a head", {least: 4, most: 32, step: 4, value: 16});
    const base = view.tens("base", "Base", {least: 1, most: 6, value: 4});
    return () => {
      const pairs = dim.value / 2,
        theta = numbers.geometric(dim.value, base.value);
      chosen.limit(0, pairs - 1);
      if (chosen.value > pairs - 1) chosen.value = pairs - 1;
      const pair = chosen.value,
        p = query.value,
        apart = distance.value;
      const half = Array.from({length: dim.value}, (_, c) => c % pairs),
        interleaved = Array.from({length: dim.value}, (_, c) => Math.floor(c / 2));
      const rotations = (theta[pair] * p) / numbers.TURN,
        open = numbers.wrapped(theta[pair] * apart);
      view.say(
        `Pair ${pair} rotates by ${format(theta[pair])} radians a token, once in ${format(numbers.TURN / theta[pair])} tokens. At position ${format(p)} it has completed ${format(Math.floor(rotations))} full rotations ` +
          `and stands at ${format((rotations % 1) * 360)}°. Query and key are ${apart} tokens apart, so the angle between them is ${format(open * DEGREES)}° at any position, and a unit vector's dot product with itself is ${format(Math.cos(open))}. The pair is channels ${pair} and ${pair + pairs} in the half layout, ${2 * pair} and ${2 * pair + 1} interleaved.`,
      );
      view.figure.replaceChildren(
        plane(theta[pair], p, apart, ["first channel", "second channel"]),
        make(
          "p",
          {className: "readout"},
          `The plane of pair ${pair}. Thick line: the query. Thin line: the key. Arc: the angle in the dot product. Dots: the query at the ${TRAIL} positions before.`,
        ),
        make("h3", {}, "All pairs"),
        make("div", {className: "clocks"}, ...theta.map((t, j) => small(t * p, t * (p - apart), j, j === pair))),
        make("h3", {}, "Channels of the pair in two layouts"),
        strip("half", half, pair),
        strip("interleaved", interleaved, pair),
      );
    };
  },
);
