// Line charts as SVG, as wide as their container, in the colours of the page; with a read-out under the pointer, and the
// numbers as a table for screen readers.
const {make, format} = page;
const SVG = "http://www.w3.org/2000/svg";
const LEFT = 58,
  RIGHT = 24,
  ABOVE = 36,
  BELOW = 44;

page.svg = (tag, attributes = {}, ...children) => {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
};
const {svg} = page;

const scale = (values, {log = false, least, most}, from, to) => {
  let low = least ?? Math.min(...values),
    high = most ?? Math.max(...values);
  if (low === high) [low, high] = log ? [low / 2, high * 2] : [low - 1, high + 1];
  const f = log ? Math.log : x => x;
  const place = x => from + ((f(x) - f(low)) / (f(high) - f(low))) * (to - from);
  return Object.assign(place, {low, high, log});
};

const tickMarks = ({low, high, log}, wanted) => {
  if (log) {
    const first = Math.ceil(Math.log10(low) - 1e-9),
      last = Math.floor(Math.log10(high) + 1e-9);
    const step = Math.max(1, Math.ceil((last - first) / wanted));
    const tens = [];
    for (let power = first; power <= last; power += step) tens.push(10 ** power);
    return tens.length > 1 ? tens : [low, high].map(value => Number(value.toPrecision(3)));
  }
  const rough = (high - low) / wanted,
    ten = 10 ** Math.floor(Math.log10(rough));
  const step = ten * [1, 2, 5, 10].find(m => m * ten >= rough);
  const marks = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k += 1)
    marks.push(Number((k * step).toPrecision(12)));
  return marks;
};

// As `posenc.figures.axes.tick`: 131k, 10M; small powers of ten in short.
const ticked = (value, {log}) => {
  if (log && value < 1e-3) return `1e${Math.round(Math.log10(value))}`;
  const [size, sign] = value >= 1e6 ? [1e6, "M"] : value >= 1e4 ? [1e3, "k"] : [1, ""];
  return log ? format(value / size) + sign : format(value);
};

const frame = (x, y, height, width, labels, marks) => {
  const parts = [];
  for (const value of marks ?? tickMarks(x, width < 500 ? 4 : 8)) {
    parts.push(
      svg("line", {class: "grid", x1: x(value), x2: x(value), y1: ABOVE, y2: height - BELOW}),
      svg("text", {x: x(value), y: height - BELOW + 17, "text-anchor": "middle"}, ticked(value, x)),
    );
  }
  for (const value of tickMarks(y, 5)) {
    parts.push(
      svg("line", {class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value)}),
      svg("text", {x: LEFT - 6, y: y(value) + 4, "text-anchor": "end"}, ticked(value, y)),
    );
  }
  parts.push(
    svg("text", {class: "axis", x: (LEFT + width - RIGHT) / 2, y: height - 7, "text-anchor": "middle"}, labels.x),
    svg("text", {class: "axis", x: 2, y: 13}, labels.y),
  );
  return parts;
};

const rulesOf = (rules, x, y, width, height) =>
  rules.flatMap(({at, along = "y", name}) => {
    const place = along === "y" ? y(at) : x(at);
    if (!Number.isFinite(place)) return [];
    if (along === "y") {
      return [
        svg("line", {class: "rule", x1: LEFT, x2: width - RIGHT, y1: place, y2: place}),
        svg("text", {class: "ruled", x: LEFT + 6, y: place - 5}, name),
      ];
    }
    const right = place > width * 0.7;
    return [
      svg("line", {class: "rule", x1: place, x2: place, y1: ABOVE, y2: height - BELOW}),
      svg("text", {class: "ruled", x: place, y: ABOVE - 6, "text-anchor": right ? "end" : "middle"}, name),
    ];
  });

const legendOf = series =>
  make(
    "ul",
    {className: "legend"},
    ...series.map((one, i) =>
      make(
        "li",
        {},
        svg(
          "svg",
          {viewBox: "0 0 26 8", "aria-hidden": "true"},
          svg("path", {class: `line s${(one.colour ?? i) % 8}${one.dashed ? " dashed" : ""}`, d: "M1 4h24"}),
        ),
        one.name,
      ),
    ),
  );

const readOut = (drawn, series, x, labels, output) => {
  const xs = [...new Set(series.flatMap(one => one.points.map(([at]) => at)))].sort((a, b) => a - b);
  const cursor = svg("line", {class: "cursor", y1: ABOVE, y2: drawn.height - BELOW, visibility: "hidden"});
  drawn.root.append(cursor);
  drawn.root.addEventListener("pointermove", event => {
    const at = event.clientX - drawn.root.getBoundingClientRect().left;
    const near = xs.reduce((best, one) => (Math.abs(x(one) - at) < Math.abs(x(best) - at) ? one : best), xs[0]);
    cursor.setAttribute("visibility", "visible");
    for (const end of ["x1", "x2"]) cursor.setAttribute(end, x(near));
    const told = series.map(one => [one.name, one.points.find(([a]) => a === near)]).filter(([, point]) => point);
    output.textContent = `${labels.x} ${format(near)}: ${told.map(([name, [, v]]) => `${name} ${format(v)}`).join(", ")}`;
  });
  drawn.root.addEventListener("pointerleave", () => {
    cursor.setAttribute("visibility", "hidden");
    output.textContent = "";
  });
};

const tableOf = (series, labels) => {
  const box = make("details", {}, make("summary", {}, "The numbers"));
  box.addEventListener("toggle", () => {
    if (!box.open || box.querySelector("table")) return;
    const xs = [...new Set(series.flatMap(one => one.points.map(([at]) => at)))].sort((a, b) => a - b);
    const columns = series.map(one => new Map(one.points));
    const cells = (tag, values, more = {}) => make("tr", {}, ...values.map(value => make(tag, more, value)));
    const body = xs.map(at =>
      cells("td", [format(at), ...columns.map(column => (column.has(at) ? format(column.get(at)) : "–"))]),
    );
    box.append(
      make(
        "div",
        {className: "scroll", tabIndex: 0, role: "region", "aria-label": `The numbers by ${labels.x}`},
        make(
          "table",
          {},
          make("thead", {}, cells("th", [labels.x, ...series.map(one => one.name)], {scope: "col"})),
          make("tbody", {}, ...body),
        ),
      ),
    );
  });
  return box;
};

// series: {name, points [[x, y]], dashed, marks, spans [[x, low, high]], colour}; axes: {label, log, least, most, ticks}.
page.lines = (place, {series, x: across, y: up, rules = [], label}) => {
  const width = Math.max(260, place.clientWidth),
    height = width < 500 ? 300 : 380;
  const kept = series.map(one => ({
    ...one,
    points: one.points.filter(([a, b]) => Number.isFinite(b) && (!up.log || b > 0) && (!across.log || a > 0)),
  }));
  const points = kept.flatMap(one => [
    ...one.points,
    ...(one.spans ?? []).flatMap(([at, low, high]) => [
      [at, low],
      [at, high],
    ]),
  ]);
  const open = place.querySelector("details")?.open ?? false;
  if (points.length === 0) {
    place.replaceChildren(make("p", {}, "There is nothing to draw: choose something above."));
    return;
  }
  const labels = {x: across.label, y: up.label};
  const ys = [...points.map(([, b]) => b), ...rules.filter(rule => rule.along !== "x").map(rule => rule.at)];
  const x = scale(
      points.map(([a]) => a),
      across,
      LEFT,
      width - RIGHT,
    ),
    y = scale(ys, up, height - BELOW, ABOVE);
  const root = svg(
    "svg",
    {width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label},
    ...frame(x, y, height, width, labels, across.ticks),
  );
  kept.forEach((one, i) => {
    const kind = `s${(one.colour ?? i) % 8}`,
      corners = one.points.map(([a, b]) => `${x(a).toFixed(1)},${y(Math.min(Math.max(b, y.low), y.high)).toFixed(1)}`);
    root.append(svg("polyline", {class: `line ${kind}${one.dashed ? " dashed" : ""}`, points: corners.join(" ")}));
    for (const [at, low, high] of one.spans ?? [])
      root.append(svg("line", {class: `span ${kind}`, x1: x(at), x2: x(at), y1: y(low), y2: y(high)}));
    if (one.marks)
      for (const corner of corners) {
        const [cx, cy] = corner.split(",");
        root.append(svg("circle", {class: `mark ${kind}`, cx, cy, r: 2.6}));
      }
  });
  root.append(...rulesOf(rules, x, y, width, height)); // over the lines, which would cross their words
  const output = make("p", {className: "readout"}),
    table = tableOf(kept, labels);
  readOut({root, height}, kept, x, labels, output);
  place.replaceChildren(root, output, legendOf(kept), table);
  table.open = open;
};
