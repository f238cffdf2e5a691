const {make, format} = page;

page.view(
  "two-models",
  "two models",
  "Two models side by side: similar config blocks may mean very different wavelengths",
  "Wavelengths of two models after their scaling, and their facts; rows that differ are marked. A line that ends higher has longer wavelengths; where lines coincide, both models rotate alike.",
  view => {
    const known = page.rotatingLayers(),
      first = view.choice("first", "First", known),
      second = view.choice("second", "Second", known, known[Math.min(1, known.length - 1)]?.[0]);
    return () => {
      if (known.length === 0) {
        view.say("No config could be read.");
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
        kind.trained === null ? "unknown" : `${page.unfinished(kind.unscaled, kind.trained)} of ${kind.unscaled.length}`;
      const reach = kind => format(Math.max(...page.wavesOf(kind.scaled).map(([, wave]) => wave)));
      view.say(
        `Pairs that never complete a rotation in training: ${slow(one)} and ${slow(other)}. Slowest pair after the scaling: ${reach(one)} and ${reach(other)} tokens per rotation.`,
      );
      view.figure.replaceChildren(
        chart,
        make(
          "div",
          {className: "scroll two", tabIndex: 0, role: "region", "aria-label": "Facts of both models"},
          make(
            "table",
            {},
            make("thead", {}, make("tr", {}, ...["fact", ...names].map(name => make("th", {scope: "col"}, name)))),
            make("tbody", {}, ...rows),
          ),
        ),
      );
      page.lines(chart, {
        label: "Wavelengths of two models",
        x: {label: "pair (share of all pairs)"},
        y: {label: "wavelength (tokens, log scale)", log: true},
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
