const {format, some, data} = page;
const SCALINGS = ["", "PositionInterpolation", "NTKAware", "YaRN", "DyPE", "RIFLEx"];

page.view(
  "generators",
  "generators",
  "Larger pictures and longer videos: each axis has its own extent, and one axis at a time is scaled",
  "After how many patches or frames each pair of one axis returns to the same angle. Pairs above the line of training meet new angles in a larger picture. Move DyPE's noise level and see it give pairs back; lengthen a video until RIFLEx's pair comes round.",
  view => {
    const axis = view.choice(
      "axis",
      "Axis",
      data.generators.map((one, i) => [String(i), one.title, one.title]),
    );
    const scaling = view.choice(
      "scaling",
      "Scaling of this axis",
      page.scalingChoices.filter(([key]) => SCALINGS.includes(key)),
      "DyPE",
    );
    const factor = view.times("factor", "Size / training size", {least: 0, most: 3, value: 1});
    const noise = view.slider("noise", "Noise level, 1 at the first step", {least: 0, most: 1, step: 0.05, value: 1});
    const pair = view.slider("pair", "Pair, from 1 (0: the authors')", {least: 0, most: 28, value: 0});
    return () => {
      const {title, channels, base, unit, trained, k} = data.generators[Number(axis.value)];
      const size = Math.round(trained * factor.value),
        times = size / trained,
        name = scaling.value;
      page.shown(noise, name === "DyPE");
      page.shown(pair, name === "RIFLEx");
      pair.limit(0, channels / 2);
      if (pair.value > channels / 2) pair.value = channels / 2;
      const chosen = pair.value || k;
      const options = {
        PositionInterpolation: {factor: times},
        NTKAware: {factor: times},
        YaRN: {factor: times, original_length: trained},
        DyPE: {length: size, original_length: trained, timestep: noise.value},
        RIFLEx: {k: chosen, length: size},
      }[name];
      const unscaled = numbers.spectrum({dim: channels, base}).theta;
      const scaled = name === "" ? {theta: unscaled, gain: 1} : numbers.spectrum({dim: channels, base, scalings: [{name, ...options}]});
      const unseen = theta =>
        theta.filter(
          (t, j) => numbers.TURN / unscaled[j] > trained && t * size > unscaled[j] * trained * (1 + 1e-9),
        ).length;
      const [before, after] = [unscaled, scaled.theta].map(theta => numbers.TURN / theta[chosen - 1]);
      const riflex =
        ` Pair ${chosen} comes round after ${format(before)} ${unit}, with RIFLEx after ${format(after)}` +
        (after < before ? ": it is faster than in training, and nothing is gained." : ".");
      view.say(
        `${title}: ${page.unfinished(unscaled, trained)} of ${some(channels / 2, "pair")} never complete a rotation within ${format(trained)} ${unit}. ` +
          `At ${format(size)}, unscaled frequencies bring ${some(unseen(unscaled), "pair")} to angles unseen in training; scaled frequencies, ${unseen(scaled.theta)}. ` +
          `Gain on cos and sin: ${format(scaled.gain)}.${name === "RIFLEx" ? riflex : ""}`,
      );
      page.lines(view.figure, {
        label: `${title}: period of each pair before and after the scaling`,
        x: {label: "pair, from 1"},
        y: {label: `period (${unit}, log scale)`, log: true},
        series: [
          {name: "unscaled", points: page.wavesOf(unscaled).map(([j, wave]) => [j + 1, wave]), dashed: true, colour: 5},
          {name: "scaled", points: page.wavesOf(scaled.theta).map(([j, wave]) => [j + 1, wave]), marks: true, colour: 0},
        ],
        rules: [
          {at: trained, name: `training: ${format(trained)} ${unit}`},
          ...(size > trained ? [{at: size, name: `now: ${format(size)}`}] : []),
        ],
      });
    };
  },
);
