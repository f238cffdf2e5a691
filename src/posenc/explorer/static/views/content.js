const {make, format} = page;
const TEXT = "The cat slept. The dog barked at the cat. The cat woke. A bird sang";
const LIMIT = 64;

const heat = rows => {
  const n = rows.length,
    most = Math.max(...rows.flat(), 1e-9),
    canvas = make("canvas", {width: n, height: n, className: "heat", role: "img"});
  canvas.setAttribute(
    "aria-label",
    `weights of ${n} queries (down) over ${n} keys (across); the stronger the colour, the more`,
  );
  const pen = canvas.getContext("2d"),
    [red, green, blue] = getComputedStyle(canvas.ownerDocument.body).getPropertyValue("--heat").split(" ");
  rows.forEach((row, i) =>
    row.forEach((weight, j) => {
      pen.fillStyle = `rgba(${red},${green},${blue},${Math.sqrt(weight / most)})`;
      pen.fillRect(j, i, 1, 1);
    }),
  );
  return canvas;
};

// A toy in place of a model: what a token counts as, and what a query matches, is set by hand.
page.toy = ({tokens, method, opens, strength, alike, count}) => {
  const marked = tokens.map(token => opens.some(part => token.toLowerCase() === part));
  const scores = tokens.map(query => tokens.map(key => (query.toLowerCase() === key.toLowerCase() ? alike : 0)));
  if (method === "CoPE") {
    const gates = tokens.map(() => marked.map(open => (open ? 20 : -20)));
    const by_position = tokens.map(() => Array.from({length: 9}, (_, p) => -strength * Math.abs(p - count)));
    return {...numbers.cope({scores, gates, by_position}), marked};
  }
  if (method === "FoX") {
    return {
      ...numbers.fox({scores, log_gates: marked.map(shut => numbers.logSigmoid(shut ? 1 - strength : 4))}),
      marked,
    };
  }
  const logits = scores.map(row => row.map((s, j) => s - strength + (marked[j] ? alike : 0)));
  return {...numbers.stickBreaking({scores: logits, remainder: "drop"}), marked};
};

const DESCRIPTIONS = {
  CoPE: "CoPE counts the marked tokens from the query back; the number under a token is its count, and the query prefers the count that is chosen.",
  FoX: "FoX multiplies the weights of all tokens before a marked token by its gate; the number under a token is the summed log of the gates between it and the query.",
  "Stick-breaking":
    "Stick-breaking divides a stick from the newest token back: each token takes a share of the remainder, so the nearest match wins, and some may remain.",
};

page.view(
  "content",
  "Positions can come from the content: contextual counts (CoPE), forget gates (FoX), stick-breaking",
  "Type a text. A toy replaces the model: marked tokens open a gate, and equal words attract each other. Move the query, and see what it attends to: a count of sentences, a past that decays at full stops, a stick that the newest match takes first.",
  view => {
    const method = view.choice(
      "Encoding",
      Object.keys(DESCRIPTIONS).map(name => [name, name]),
    );
    const marks = view.choice("Marked tokens", [
      [".", "full stops"],
      ["the", "the word “the”"],
      [". , ; : ! ?", "all punctuation"],
      ["", "none"],
    ]);
    const query = view.slider("Query: token", {least: 1, most: LIMIT, value: 18});
    const count = view.slider("Prefers the count", {least: 0, most: 6, value: 1});
    const strength = view.slider("Strength", {least: 0, most: 8, step: 0.25, value: 3});
    const alike = view.slider("Equal words attract by", {least: 0, most: 8, step: 0.25, value: 2});
    const text = view.writing("Text", TEXT, 2);
    return () => {
      const tokens = (text.value.match(/[\p{L}\p{N}'’]+|[^\s\p{L}\p{N}]/gu) ?? []).slice(0, LIMIT);
      page.shown(count, method.value === "CoPE");
      if (tokens.length === 0) {
        view.say("Type a word.");
        view.figure.replaceChildren();
        return;
      }
      query.limit(1, tokens.length);
      const i = Math.min(query.value, tokens.length) - 1;
      const found = page.toy({
        tokens,
        method: method.value,
        opens: marks.value.split(" ").filter(Boolean),
        strength: strength.value,
        alike: alike.value,
        count: count.value,
      });
      const row = found.weights[i],
        most = Math.max(...row, 1e-9),
        first = row.indexOf(Math.max(...row));
      const under = {
        CoPE: j => found.counts?.[i][j].toFixed(1),
        FoX: j => found.decay?.[i][j].toFixed(1),
        "Stick-breaking": j => `${format(100 * row[j])} %`,
      }[method.value];
      const chip = (token, j) =>
        make(
          "span",
          {className: `token${j === i ? " query" : ""}${found.marked[j] ? " marked" : ""}${j > i ? " later" : ""}`},
          make("span", {className: "bar", style: `height:${((44 * row[j]) / most).toFixed(1)}px`}),
          make("span", {}, token),
          make("small", {}, j <= i ? under(j) : "·"),
        );
      const left = found.remainders ? ` ${format(100 * found.remainders[i])} % of the stick remain.` : "";
      view.say(
        `${DESCRIPTIONS[method.value]} “${tokens[i]}” attends most to “${tokens[first]}”, token ${first + 1}: ${format(100 * row[first])} %.${left}`,
      );
      view.figure.replaceChildren(
        make("div", {className: "tokens"}, ...tokens.map(chip)),
        heat(found.weights),
        make(
          "p",
          {className: "readout"},
          "Above: the weights of the chosen query. Square: each row is a query, each column a key.",
        ),
      );
    };
  },
);
