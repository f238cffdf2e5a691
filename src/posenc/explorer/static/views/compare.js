const {make, format} = page;

page.view(
  "two-models",
  "Two models side by side: the same config block may mean very different wavelengths",
  "Wavelengths of two models after their scaling, and their facts; rows that differ are marked. A line that ends higher has longer wavelengths; where lines coincide, both models rotate alike.",
  view => {
    const known = page.turning(),
      first = view.choice("First", known),
      second = view.choice("Second", known, known[Math.min(1, known.length - 1)]?.[0]);
    return () => {
      if (known.length === 0) {
        view.say("No configuration could be read.");
        return;
      }
      const [one, other] = [first, second].map(control => page.kindOf(control.value)),
        names = [first, second].map(control => control.input.selectedOptions[0].textContent);
      const chart = make("div"),
        left = new Map(one.facts),
        right = new Map(other.facts);
      const rows = [...new Set([...left.keys(), ...right.keys()])].map(key => {
        const differs = left.get(key) !== right.get(key);
        return make(
          "tr",
          {className: differs ? "differs" : ""},
          make("th", {scope: "row"}, key),
          make("td", {}, left.get(key) ?? "–"),
          make("td", {}, right.get(key) ?? "–"),
        );
      });
      const slow = kind =>
        kind.trained === null ? "unknown" : `${page.unfinished(kind.plain, kind.trained)} of ${kind.plain.length}`;
      const reach = kind => format(Math.max(...page.wavesOf(kind.scaled).map(([, wave]) => wave)));
      view.say(
        `Pairs that never complete a rotation in training: ${slow(one)} and ${slow(other)}. Slowest pair after the scaling: ${reach(one)} and ${reach(other)} tokens per rotation.`,
      );
      view.figure.replaceChildren(
        chart,
        make(
          "div",
          {className: "scroll two", tabIndex: 0},
          make(
            "table",
            {},
            make("thead", {}, make("tr", {}, make("th", {}, ""), ...names.map(name => make("th", {}, name)))),
            make("tbody", {}, ...rows),
          ),
        ),
      );
      page.lines(chart, {
        label: "Wavelengths of two models",
        x: {label: "pair, as a share of all"},
        y: {label: "tokens per rotation", log: true},
        series: [one, other].map((kind, i) => ({
          name: i && names[0] === names[1] ? `${names[1]} again` : names[i],
          points: page.wavesOf(kind.scaled).map(([j, wave]) => [j / kind.scaled.length, wave]),
          marks: true,
          dashed: i === 1,
          colour: i,
        })),
      });
    };
  },
);
