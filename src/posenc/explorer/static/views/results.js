const {data, make, format, some} = page;
const FIRST = ["nope", "rope", "alibi", "t5", "cope", "fox", "stick-breaking"];

page.view(
  "results",
  "Measurements: which encodings extrapolate beyond the training length, and which do not",
  "Small models, trained at one length and evaluated at longer ones; bars are 95 % confidence intervals. Follow a line to the right: flat means that an encoding extrapolates, a bend at the training length that it degrades.",
  view => {
    const studies = data.results.map((study, i) => [String(i), `${study.study}: ${study.title}`]);
    if (studies.length === 0) {
      view.say("This copy of posenc carries no measurements.");
      return () => {};
    }
    const study = view.choice("Comparison", studies);
    const names = [...new Set(data.results.flatMap(one => Object.keys(one.rows)))],
      few = FIRST.filter(name => names.includes(name));
    const chosen = view.ticks(
      "Encodings",
      names.map(name => [name, name]),
      few.length ? few : names.slice(0, 6),
    );
    return () => {
      const one = data.results[Number(study.value)],
        rows = chosen.value.filter(name => name in one.rows);
      const trained = one.train_length,
        lengths = [...new Set(Object.values(one.rows).flatMap(row => row.means.map(([length]) => length)))].sort(
          (a, b) => a - b,
        );
      const verdicts = rows.map(name => `${name} (${one.rows[name].verdict})`),
        seeds = rows.map(name => one.rows[name].seeds);
      const [least, most] = [Math.min(...seeds), Math.max(...seeds)];
      const count =
        seeds.length === 0
          ? "nothing chosen"
          : least === most
            ? `${some(least, "training")} each`
            : `${least} to ${most} trainings each`;
      const missing = chosen.value.filter(name => !(name in one.rows));
      view.say(
        `Trained at ${format(trained)} tokens, ${one.better} is better, ${count}. Verdicts: ${verdicts.join(", ") || "–"}.${missing.length ? ` Not in this comparison: ${missing.join(", ")}.` : ""}`,
      );
      const chart = make("div");
      view.figure.replaceChildren(chart);
      page.lines(chart, {
        label: `${one.title}, by length`,
        x: {label: "length, tokens", log: true, ticks: lengths},
        y: {label: one.unit},
        series: rows.map(name => ({
          name,
          colour: names.indexOf(name),
          dashed: names.indexOf(name) % 16 > 7,
          marks: true,
          points: one.rows[name].means.map(([length, mean]) => [length, mean]),
          spans: one.rows[name].means.map(([length, , low, high]) => [length, low, high]),
        })),
        rules: [{at: trained, along: "x", name: "training length"}],
      });
    };
  },
);
