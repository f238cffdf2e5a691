const {format} = page;

page.view(
  "logits",
  "logits",
  "Rotation and biases add up: how the attention logit decays with distance",
  "The attention logit of a query for an equal key, by distance. A rotation alone ripples and does not separate far from very far; a bias alone cannot separate contents. Tick several, and move the training length: every distance to the right of it is unseen in training.",
  view => {
    const list = view.ticks("encodings", "List of encodings", [["RoPE", "RoPE", "rope"], ...page.biasMethods], ["RoPE", "ALiBi"]);
    const head = view.slider("head", "Head of 8", {least: 1, most: 8, value: 4});
    const strength = view.slider("content", "Content: logit at distance 0", {least: 0, most: 20, step: 0.5, value: 8});
    const base = view.tens("base", "Base of RoPE", {least: 2, most: 8, value: 4});
    const scaling = view.choice(
      "scaling",
      "Scaling of RoPE",
      page.scalingChoices.filter(([name]) => name !== "MultiScale"),
    );
    const trained = view.powers("trained", "Training length, tokens", {least: 5, most: 14, value: 9});
    const times = view.times("factor", "Context length / training length", {least: 0, most: 5, value: 2});
    return () => {
      const chosen = list.value,
        rotates = chosen.includes("RoPE"),
        names = chosen.filter(name => name !== "RoPE");
      for (const control of [base, scaling]) page.shown(control, rotates);
      const original = trained.value,
        length = Math.round(original * times.value),
        dim = 64,
        h = head.value - 1;
      const scalings =
        scaling.value === ""
          ? []
          : [{name: scaling.value, ...page.optionsFor(scaling.value, {dim, factor: times.value, original})}];
      const rope = rotates ? numbers.spectrum({dim, base: base.value, length, scalings}) : null;
      const biases = names.map(name => page.biasOptions(name, 8));
      const step = Math.max(1, Math.floor(length / 300)),
        distances = Array.from({length: Math.floor((length - 1) / step) + 1}, (_, i) => i * step);
      const curve = (name, parts, more = {}) => {
        const score = numbers.scorer({strength: strength.value, ...parts});
        return {name, points: distances.map(d => [d, score(h, -d, length - 1)]), ...more};
      };
      const alone =
        chosen.length > 1
          ? [
              ...(rotates ? [curve("RoPE alone", {rope}, {dashed: true, colour: 1})] : []),
              ...names.map((name, i) => curve(`${name} alone`, {biases: [biases[i]]}, {dashed: true, colour: i + 2})),
            ]
          : [];
      const sum = curve(chosen.length ? chosen.join(" + ") : "no encoding (NoPE)", {rope, biases}, {colour: 0});
      const total = sum.points.reduce((total, [, s]) => total + Math.exp(s - sum.points[0][1]), 0);
      const near = sum.points
        .filter(([d]) => d < original)
        .reduce((total, [, s]) => total + Math.exp(s - sum.points[0][1]), 0);
      view.say(
        `If all ${format(length)} keys were equal, those within the training length of ${format(original)} tokens would get about ${format((100 * near) / total)} % of the weight of head ${head.value}.`,
      );
      page.lines(view.figure, {
        label: "Logit by distance",
        x: {label: "distance (tokens back)"},
        y: {label: "attention logit"},
        series: [...alone, sum],
        rules: length > original ? [{at: original, along: "x", name: `training length: ${format(original)}`}] : [],
      });
    };
  },
);
