const {make, format} = page;
const TEXT = "The cat slept. The dog barked at the cat. The cat woke. A bird sang";
const LIMIT = 64;

const heat = rows => {
  const n = rows.length,
    most = Math.max(...rows.flat(), 1e-9),
    canvas = make("canvas", {width: n, height: n, className: "heat", role: "img"});
  canvas.setAttribute(
    "aria-label",
    `weights of ${n} queries (down) over ${n} keys (across); the stronger the colour, the larger`,
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
    "Stick-breaking divides a stick from the newest token back: each token takes a share of what is left, so the nearest match wins, and a part may be left over.",
};

page.view(
  "content",
  "content",
  "Positions can come from the content: contextual counts (CoPE), forget gates (FoX), stick-breaking",
  "Type a text. A toy replaces the model: marked tokens open a gate, and equal words attract each other. Move the query, and see what it attends to: a count of sentences (CoPE), a past that decays at full stops (FoX), a stick of which the newest match takes its share first (stick-breaking).",
  view => {
    const method = view.choice(
      "encoding",
      "Encoding",
      Object.keys(DESCRIPTIONS).map(name => [name, name, name.toLowerCase()]),
    );
    const marks = view.choice("marked", "Marked tokens", [
      [".", "full stops", "stops"],
      ["the", "the word “the”"],
      [". , ; : ! ?", "all punctuation", "punctuation"],
      ["", "none", "none"],
    ]);
    const query = view.slider("query", "Query: token", {least: 1, most: LIMIT, value: 18});
    const count = view.slider("count", "Prefers the count", {least: 0, most: 6, value: 1});
    const strength = view.slider("strength", "Strength", {least: 0, most: 8, step: 0.25, value: 3});
    const alike = view.slider("attraction", "Equal words attract by", {least: 0, most: 8, step: 0.25, value: 2});
    const text = view.writing("text", "Text", TEXT, 2);
    return () => {
      const tokens = (text.value.match(/[\p{L}\p{N}'’]+|[^\s\p{L}\p{N}]/gu) ?? []).slice(0, LIMIT);
      page.shown(count, method.value === "CoPE");
      if (tokens.length === 0) {
        view.say("Type a word.");
        view.figure.replaceChildren();
        return;
      }
      query.limit(1, tokens.length);
      if (query.value > tokens.length) query.value = tokens.length;
      const i = query.value - 1;
      const attended = page.toy({
        tokens,
        method: method.value,
        opens: marks.value.split(" ").filter(Boolean),
        strength: strength.value,
        alike: alike.value,
        count: count.value,
      });
      const row = attended.weights[i],
        most = Math.max(...row, 1e-9),
        first = row.indexOf(Math.max(...row));
      const under = {
        CoPE: j => attended.counts?.[i][j].toFixed(1),
        FoX: j => attended.decay?.[i][j].toFixed(1),
        "Stick-breaking": j => `${format(100 * row[j])} %`,
      }[method.value];
      const chip = (token, j) =>
        make(
          "span",
          {className: `token${j === i ? " query" : ""}${attended.marked[j] ? " marked" : ""}${j > i ? " later" : ""}`},
          make("span", {className: "bar", style: `height:${((44 * row[j]) / most).toFixed(1)}px`}),
          make("span", {}, token),
          make("small", {}, j <= i ? under(j) : "·"),
        );
      const left = attended.remainders ? ` ${format(100 * attended.remainders[i])} % of the stick is left.` : "";
      view.say(
        `${DESCRIPTIONS[method.value]} “${tokens[i]}” attends most to “${tokens[first]}”, token ${first + 1}: ${format(100 * row[first])} %.${left}`,
      );
      view.figure.replaceChildren(
        make("div", {className: "tokens"}, ...tokens.map(chip)),
        heat(attended.weights),
        make(
          "p",
          {className: "readout"},
          "Bars over the tokens: the attention weights of the chosen query. Square: the weights of all queries; each row is a query from the top, each column a key from the left.",
        ),
      );
    };
  },
);
