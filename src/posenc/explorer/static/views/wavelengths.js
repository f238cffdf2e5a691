const {format, some} = page;

page.view(
  "wavelengths",
  "Slow pairs never complete a rotation in training: a scaling keeps their angles in the trained range",
  "Each pair of channels completes a rotation in so many tokens. Above the line of the training length a pair has covered only part of its circle, and longer sequences bring angles unseen in training. Choose a scaling, extend the context, and see which pairs it slows down.",
  view => {
    const model = view.choice("Model", [["", "numbers of your own"], ...page.turning()]);
    const scaling = view.choice("Scaling", page.scalingChoices, "YaRN");
    const dim = view.slider("Rotated channels", {least: 8, most: 256, step: 8, value: 64});
    const base = view.slider("Base", {
      least: 2,
      most: 8,
      step: 0.05,
      value: 4,
      of: x => Number((10 ** x).toPrecision(3)),
    });
    const trained = view.powers("Training length, tokens", {least: 6, most: 18, value: 12});
    const times = view.slider("Sequence is longer by", {
      least: 0,
      most: 6,
      step: 0.25,
      value: 3,
      of: x => 2 ** x,
      show: x => `${format(x)} ×`,
    });
    const custom = () => {
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
      const isCustom = model.value === "";
      for (const control of [scaling, dim, base, trained, times]) page.shown(control, isCustom);
      const {plain, scaled, gain, original, target} = isCustom ? custom() : known(page.kindOf(model.value));
      const heads = Array.isArray(scaled[0]) ? [scaled[0], scaled.at(-1)] : [scaled];
      const names = heads.length === 2 ? ["first head", "last head"] : ["scaled"];
      const slow = page.unfinished(plain, original),
        last = heads.at(-1);
      const unseen = theta =>
        theta.filter((t, j) => numbers.TURN / plain[j] > original && t * target > plain[j] * original * (1 + 1e-9))
          .length;
      view.say(
        `${slow} of ${some(plain.length, "pair")} never complete a rotation within ${some(original, "token")}. In a sequence of ${format(target)}, ` +
          `unscaled frequencies bring ${some(unseen(plain), "pair")} to angles unseen in training; scaled, ${unseen(last)}. Gain on rotated queries and keys: ${format(gain)}.`,
      );
      page.lines(view.figure, {
        label: "Wavelength of each pair before and after the scaling",
        x: {label: "pair"},
        y: {label: "tokens per rotation", log: true},
        series: [
          {name: "unscaled", points: page.wavesOf(plain), dashed: true, colour: 5},
          ...heads.map((theta, i) => ({name: names[i], points: page.wavesOf(theta), marks: true, colour: i})),
        ],
        rules: [
          {at: original, name: `training length: ${format(original)} tokens`},
          ...(target > original ? [{at: target, name: `context: ${format(target)}`}] : []),
        ],
      });
    };
  },
);
