// Figures. Python gives traces and axes; day and night, width, names at the ends of curves and the legend come from here.
const narrow = window.matchMedia("(max-width: 619px)"), dark = window.matchMedia("(prefers-color-scheme: dark)");
const chosen = {}; // the view of each chart

const shade = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const specOf = trace => (trace.meta || {}).spec;
const shownOf = chart => Object.assign({}, chart, (chart.views || [])[chosen[chart.id] || 0]);

// Colours that depend on day and night are written as the names of the page's variables.
function lit(value) {
  if (typeof value === "string") return value.startsWith("--") ? shade(value) : value;
  if (Array.isArray(value)) return value.map(lit);
  if (value && typeof value === "object") return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, lit(v)]));
  return value;
}

function draw(chart) {
  const shown = lit(shownOf(chart)), div = document.getElementById(chart.id);
  const axis = extra => Object.assign(
    {gridcolor: shade("--grid"), linecolor: shade("--line"), zeroline: false, automargin: true}, extra);
  const legend = shown.traces.some(specOf) ? {showlegend: false} : {legend: narrow.matches ? {orientation: "h", y: -0.25} : {}};
  const layout = {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: {color: shade("--ink"), size: narrow.matches ? 12 : 13, family: "system-ui, sans-serif"},
    margin: {l: 48, r: shown.ends && !narrow.matches ? 128 : 12, t: 12, b: 44},
    hovermode: "closest", dragmode: narrow.matches ? false : "zoom",
    hoverlabel: {bgcolor: shade("--card"), bordercolor: shade("--line"), font: {color: shade("--ink")}, align: "left"},
    xaxis: axis(shown.xaxis), yaxis: axis(shown.yaxis), shapes: shown.shapes || [], annotations: shown.annotations || [],
    ...legend,
  };
  if (shown.ends && layout.xaxis.type === "category" && !layout.xaxis.range) {
    layout.xaxis.range = [-0.35, Math.max(...shown.traces.map(trace => new Set(trace.x).size)) - 0.9]; // names stand close to the ends
  }
  if (shown.crowded && narrow.matches) layout.xaxis.showticklabels = false; // the lines have the same names
  if (shown.height) div.style.height = `${shown.height}px`;
  return Plotly.react(div, shown.traces, layout, {responsive: true, displaylogo: false, displayModeBar: false});
}

// The names of curves stand at their right ends, moved apart where they would overlap.
function nameEnds(chart) {
  const shown = shownOf(chart), div = document.getElementById(chart.id);
  if (!shown.ends || narrow.matches) return;
  const axis = div._fullLayout.yaxis, [low, high] = axis.range;
  const ends = shown.traces.filter(trace => specOf(trace) && !trace.meta.band).map(trace => {
    const last = trace.y.findLastIndex(y => y !== null);
    return {spec: specOf(trace), colour: trace.line.color, place: (trace.y[last] - low) / (high - low), whole: last === trace.y.length - 1};
  }).filter(end => end.whole && end.place >= 0 && end.place <= 1);
  const gap = 14 / axis._length, groups = [];
  for (const end of ends.sort((a, b) => a.place - b.place)) {
    groups.push([end]);
    while (groups.length > 1 && bottom(groups.at(-1), gap) - top_(groups.at(-2), gap) < gap) groups.splice(-2, 2, groups.at(-2).concat(groups.at(-1)));
  }
  const labels = groups.flatMap(group => group.map((end, number) => ({
    xref: "paper", yref: "paper", x: 1, y: end.place, xanchor: "left", yanchor: "middle", text: end.spec, name: end.spec,
    font: {size: 12, color: end.colour}, showarrow: true, arrowhead: 0, arrowwidth: 0.7, arrowcolor: end.colour, standoff: 2,
    ax: 20, ay: (end.place - bottom(group, gap) - number * gap) * axis._length,
  })));
  return Plotly.relayout(div, {annotations: lit(shown.annotations || []).concat(labels)});
}
// Where a stack of names begins and ends: centred where they belong, but inside the figure.
const middle = group => group.reduce((sum, end) => sum + end.place, 0) / group.length;
const bottom = (group, gap) => Math.max(0, Math.min(1 - gap * (group.length - 1), middle(group) - gap * (group.length - 1) / 2));
const top_ = (group, gap) => bottom(group, gap) + gap * (group.length - 1);

// What is not picked is toned down, where it is drawn: drawing again would be too slow to follow a pointer.
function emphasise(chart) {
  const div = document.getElementById(chart.id);
  for (const element of div.querySelectorAll(".scatterlayer .trace")) {
    const trace = element.__data__ && element.__data__[0].trace;
    if (trace) element.style.opacity = counts(specOf(trace)) ? 1 : 0.08;
  }
  const names = ((div.layout || {}).annotations || []).map(annotation => annotation.name);
  for (const element of div.querySelectorAll(".annotation")) {
    element.style.opacity = counts(names[element.dataset.index]) ? 1 : 0.15;
  }
  for (const chip of div.parentElement.querySelectorAll(".chip")) chip.setAttribute("aria-pressed", picked.has(chip.dataset.spec));
}

function refresh(chart) {
  return draw(chart).then(() => nameEnds(chart)).then(() => emphasise(chart));
}

function chip(spec, {colour, control}) {
  const dot = make("i", {});
  dot.style.setProperty("--c", colour);
  const found = make("button", {type: "button", className: control ? "chip control" : "chip", onclick: () => pick(spec)}, dot, spec);
  found.dataset.spec = spec;
  found.addEventListener("pointerenter", event => event.pointerType === "mouse" && hover(spec));
  found.addEventListener("pointerleave", () => hover(null));
  return found;
}

// Few encodings are listed. Of many, the verdicts are, each of which picks all its encodings; names open on demand.
function legend(chart) {
  const groups = new Map();
  for (const trace of chart.traces.filter(specOf)) {
    const {spec, group, control} = trace.meta;
    const members = groups.get(group) || groups.set(group, new Map()).get(group);
    if (!members.has(spec)) members.set(spec, {colour: (trace.line || trace.marker).color, control});
  }
  const order = [...groups.keys()].sort((a, b) => place(a) - place(b)), box = make("div", {className: "legend"});
  const count = order.reduce((sum, verdict) => sum + groups.get(verdict).size, 0);
  if (count <= 9) {
    for (const verdict of order) for (const [spec, look] of groups.get(verdict)) box.append(chip(spec, look));
    return box;
  }
  const names = make("details", {}, make("summary", {textContent: "names"}));
  for (const verdict of order) {
    const specs = [...groups.get(verdict).keys()], dot = make("i", {});
    dot.style.setProperty("--c", report.colours[verdict] || "#8a8f94");
    const whole = make("button", {type: "button", className: "chip", title: specs.join(", "), onclick: () => pickAll(specs)}, dot, `${verdict} `, make("small", {textContent: specs.length}));
    box.append(whole);
    names.append(make("div", {}, make("span", {className: "group", textContent: verdict}), make("div", {}, ...specs.map(spec => chip(spec, groups.get(verdict).get(spec))))));
  }
  box.append(names);
  return box;
}
const place = verdict => (report.verdicts.indexOf(verdict) + report.verdicts.length + 1) % (report.verdicts.length + 1);

function csv(chart) {
  const shown = shownOf(chart), title = axis => ((axis || {}).title || {}).text || "";
  const traces = shown.traces.filter(trace => !(trace.meta || {}).band);
  const extra = [...new Set(traces.flatMap(trace => Object.keys((trace.meta || {}).columns || {})))];
  const lines = [["series", title(shown.xaxis) || "x", title(shown.yaxis) || "y", ...extra]];
  for (const trace of traces) {
    if (trace.type === "heatmap") {
      trace.z.forEach((line, i) => line.forEach((z, j) => lines.push([trace.y[i], trace.x[j], z, ...extra.map(name => trace.meta.columns[name][i][j])])));
      continue;
    }
    trace.x.forEach((x, i) => lines.push([trace.name, x, trace.y[i], ...extra.map(name => (((trace.meta || {}).columns || {})[name] || [])[i])]));
  }
  return lines;
}

function tools(chart) {
  const box = make("div", {className: "tools"});
  if (chart.views) {
    const views = make("div", {className: "views"});
    chart.views.forEach((view, number) => {
      const button = make("button", {type: "button", textContent: view.name, onclick: () => {
        chosen[chart.id] = number;
        [...views.children].forEach((other, i) => other.setAttribute("aria-pressed", i === number));
        refresh(chart);
      }});
      button.setAttribute("aria-pressed", number === 0);
      views.append(button);
    });
    box.append(views);
  }
  box.append(dataLink(chart.id, () => csv(chart)));
  return box;
}

function begin(chart) {
  const div = document.getElementById(chart.id), figure = make("figure", {});
  div.replaceWith(figure);
  figure.append(tools(chart), div);
  if (chart.traces.some(specOf)) figure.append(legend(chart));
  return refresh(chart).then(() => {
    div.on("plotly_hover", event => hover(specOf(event.points[0].data) || null));
    div.on("plotly_unhover", () => hover(null));
    div.on("plotly_click", event => pick(specOf(event.points[0].data)));
    div.on("plotly_relayout", change => {
      if (Object.keys(change).some(key => key.startsWith("yaxis"))) nameEnds(chart);
    });
    div.on("plotly_afterplot", () => emphasise(chart));
  });
}

listeners.push(() => report.charts.forEach(emphasise));
const redraw = () => report.charts.forEach(refresh);
dark.addEventListener("change", redraw);
narrow.addEventListener("change", redraw);
const drawn = Promise.all(report.charts.map(begin)).then(() => { document.documentElement.dataset.drawn = "yes"; });
