const {data, make, format, some} = page;
const FIRST = ["nope", "rope", "alibi", "t5", "cope", "fox", "stick-breaking"],
  OPENS = "quick";

page.view(
  "results",
  "results",
  "Measurements: which encodings extrapolate beyond the training length, and which degrade",
  "Small models, trained at one length and evaluated at longer ones; bars are 95 % confidence intervals. Follow a line to the right: a flat line is an encoding that extrapolates, a bend at the training length one that degrades.",
  view => {
    const studies = data.results.map((study, i) => [String(i), `${study.study}: ${study.title}`, study.study]);
    if (studies.length === 0) {
      view.say("This copy of posenc carries no measurements.");
      return () => {};
    }
    const opens = studies.find(([, , name]) => name === OPENS) ?? studies[0];
    const study = view.choice("comparison", "Comparison", studies, opens[0]);
    study.box.classList.add("wide");
    const current = () => data.results[Number(study.value)],
      names = () => Object.keys(current().rows);
    const chosen = view.ticks(
      "encodings",
      "Encodings of this comparison",
      () => names().map(name => [name, name]),
      () => {
        const few = names().filter(name => FIRST.includes(name));
        return few.length > 1 ? few : names().slice(0, 6);
      },
    );
    return () => {
      const {rows, train_length: trained, better, title, unit, counting} = current(),
        shown = chosen.value;
      const lengths = [...new Set(shown.flatMap(name => rows[name].means.map(([length]) => length)))].sort(
        (a, b) => a - b,
      );
      const verdicts = shown.map(name => `${name} (${rows[name].verdict})`),
        seeds = shown.map(name => rows[name].seeds);
      const [least, most] = [Math.min(...seeds), Math.max(...seeds)];
      const count =
        seeds.length === 0
          ? "nothing chosen"
          : least === most
            ? `${some(least, "training")} each`
            : `${least} to ${most} trainings each`;
      view.say(
        `Trained at ${format(trained)} tokens, ${better} is better, ${count}. Verdicts: ${verdicts.join(", ") || "–"}.${counting ? " A flat loss says nothing about the use of far context: a model of a few tokens is flat trivially." : ""}`,
      );
      const line = (name, i) => ({
        name,
        colour: i,
        dashed: i % 16 > 7,
        marks: true,
        points: rows[name].means.map(([length, mean]) => [length, mean]),
        spans: rows[name].means.map(([length, , low, high]) => [length, low, high]),
      });
      const ngram = ([order, value]) => ({
        name: `${order}-gram`,
        colour: shown.length,
        dashed: true,
        points: lengths.map(length => [length, value]),
      });
      const chart = make("div");
      view.figure.replaceChildren(chart);
      page.lines(chart, {
        label: `${title}, by length`,
        x: {label: "length (tokens, log scale)", log: true, ticks: lengths},
        y: {label: unit},
        series: [...shown.map(line), ...(counting && shown.length ? [ngram(counting)] : [])],
        rules: [{at: trained, along: "x", name: "training length"}],
      });
    };
  },
);
