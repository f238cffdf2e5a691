const {format, some} = page;

// Wavelengths of one kind of layers before and after its scaling, with the training length and the context marked.
page.spectrumChart = (place, {unscaled, scaled, trained, longest}, title) => {
  const heads = Array.isArray(scaled[0]) ? [scaled[0], scaled.at(-1)] : [scaled];
  const names = heads.length === 2 ? ["first head", "last head"] : ["scaled"];
  page.lines(place, {
    label: `${title}: wavelength of each pair before and after the scaling`,
    x: {label: "pair"},
    y: {label: "wavelength (tokens, log scale)", log: true},
    series: [
      {name: "unscaled", points: page.wavesOf(unscaled), dashed: true, colour: 5},
      ...heads.map((theta, i) => ({name: names[i], points: page.wavesOf(theta), marks: true, colour: i})),
    ],
    rules: [
      ...(trained ? [{at: trained, name: `training length: ${format(trained)} tokens`}] : []),
      ...(longest && longest > (trained ?? 0) ? [{at: longest, name: `context length: ${format(longest)}`}] : []),
    ],
  });
};

page.view(
  "wavelengths",
  "wavelengths",
  "Slow pairs never complete a rotation in training: a scaling keeps their angles in the trained range",
  "Each pair of channels completes a rotation in so many tokens, its wavelength. Above the line of the training length a pair has covered only part of its circle, and longer sequences bring angles unseen in training. Choose a scaling, extend the context, and see which pairs it slows down.",
  view => {
    const model = view.choice("model", "Model", [["", "numbers of your own", "own"], ...page.rotatingLayers()]);
    const scaling = view.choice("scaling", "Scaling", page.scalingChoices, "YaRN");
    const factor = view.times("factor", "Context length / training length", {least: 0, most: 6, value: 3});
    const trained = view.powers("trained", "Training length, tokens", {least: 6, most: 18, value: 12});
    const base = view.tens("base", "Base", {least: 2, most: 8, value: 4});
    const dim = view.slider("channels", "Rotated channels", {least: 8, most: 256, step: 8, value: 64});
    const custom = () => {
      const original = trained.value,
        longest = Math.round(original * factor.value);
      const options = page.optionsFor(scaling.value, {dim: dim.value, factor: factor.value, original});
      const unscaled = numbers.spectrum({dim: dim.value, base: base.value});
      const scaled =
        scaling.value === ""
          ? unscaled
          : numbers.spectrum({
              dim: dim.value,
              base: base.value,
              length: longest,
              scalings: [{name: scaling.value, ...options}],
            });
      return {unscaled: unscaled.theta, scaled: scaled.theta, gain: scaled.gain, trained: original, longest};
    };
    const known = kind => ({
      ...kind,
      trained: kind.trained ?? kind.longest ?? 2048,
      longest: kind.longest ?? kind.trained ?? 2048,
    });
    return () => {
      const isCustom = model.value === "";
      for (const control of [scaling, dim, base, trained, factor]) page.shown(control, isCustom);
      const layer = isCustom ? custom() : known(page.kindOf(model.value));
      const {unscaled, scaled, gain, trained: original, longest} = layer;
      const slow = page.unfinished(unscaled, original),
        last = Array.isArray(scaled[0]) ? scaled.at(-1) : scaled;
      const unseen = theta =>
        theta.filter(
          (t, j) => numbers.TURN / unscaled[j] > original && t * longest > unscaled[j] * original * (1 + 1e-9),
        ).length;
      view.say(
        `${slow} of ${some(unscaled.length, "pair")} never complete a rotation within ${some(original, "token")}. In a sequence of ${format(longest)} tokens, ` +
          `unscaled frequencies bring ${some(unseen(unscaled), "pair")} to angles unseen in training; scaled frequencies, ${unseen(last)}. Gain on rotated queries and keys: ${format(gain)}.`,
      );
      page.spectrumChart(view.figure, layer, "Wavelengths");
    };
  },
);
