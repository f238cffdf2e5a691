const {format, some} = page;

page.view(
  "wavelengths",
  "Slow pairs never complete a turn in training: a scaling keeps them where they have been",
  "Each pair of channels turns once in so many tokens. Above the line of the trained length a pair has shown only part of its circle, and longer texts bring angles that no training saw. Choose a scaling, stretch the text, and see which pairs it slows down.",
  view => {
    const model = view.choice("Model", [["", "numbers of your own"], ...page.turning()]);
    const scaling = view.choice("Scaling", page.scalingChoices, "YaRN");
    const dim = view.slider("Channels that turn", {least: 8, most: 256, step: 8, value: 64});
    const base = view.slider("Base", {
      least: 2,
      most: 8,
      step: 0.05,
      value: 4,
      of: x => Number((10 ** x).toPrecision(3)),
    });
    const trained = view.powers("Trained at, tokens", {least: 6, most: 18, value: 12});
    const times = view.slider("Text is longer by", {
      least: 0,
      most: 6,
      step: 0.25,
      value: 3,
      of: x => 2 ** x,
      show: x => `${format(x)} ×`,
    });
    const own = () => {
      const original = trained.value,
        factor = times.value,
        target = Math.round(original * factor);
      const options = page.optionsFor(scaling.value, {dim: dim.value, factor, original});
      const plain = numbers.spectrum({dim: dim.value, base: base.value});
      const scaled =
        scaling.value === ""
          ? plain
          : numbers.spectrum({
              dim: dim.value,
              base: base.value,
              length: target,
              scalings: [{name: scaling.value, ...options}],
            });
      return {plain: plain.theta, scaled: scaled.theta, gain: scaled.gain, original, target};
    };
    const known = kind => ({
      ...kind,
      original: kind.trained ?? kind.longest ?? 2048,
      target: kind.longest ?? kind.trained ?? 2048,
    });
    return () => {
      const isOwn = model.value === "";
      for (const control of [scaling, dim, base, trained, times]) page.shown(control, isOwn);
      const {plain, scaled, gain, original, target} = isOwn ? own() : known(page.kindOf(model.value));
      const heads = Array.isArray(scaled[0]) ? [scaled[0], scaled.at(-1)] : [scaled];
      const names = heads.length === 2 ? ["first head", "last head"] : ["scaled"];
      const slow = page.unfinished(plain, original),
        last = heads.at(-1);
      const unseen = theta =>
        theta.filter((t, j) => numbers.TURN / plain[j] > original && t * target > plain[j] * original * (1 + 1e-9))
          .length;
      view.say(
        `${slow} of ${some(plain.length, "pair")} never complete a turn within ${some(original, "token")}. In a text of ${format(target)}, ` +
          `plain frequencies bring ${some(unseen(plain), "pair")} to angles that training never showed; scaled as here, ${unseen(last)}. Gain on rotated queries and keys: ${format(gain)}.`,
      );
      page.lines(view.figure, {
        label: "Wavelength of each pair before and after the scaling",
        x: {label: "pair"},
        y: {label: "tokens a turn", log: true},
        series: [
          {name: "plain", points: page.wavesOf(plain), dashed: true, colour: 5},
          ...heads.map((theta, i) => ({name: names[i], points: page.wavesOf(theta), marks: true, colour: i})),
        ],
        rules: [
          {at: original, name: `trained: ${format(original)} tokens`},
          ...(target > original ? [{at: target, name: `text: ${format(target)}`}] : []),
        ],
      });
    };
  },
);
