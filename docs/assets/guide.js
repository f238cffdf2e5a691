// Formulas shrink to the width of a telephone; code and formulas that are still wider can be scrolled by keyboard too.
document.addEventListener("DOMContentLoaded", () => {
  for (const box of document.querySelectorAll("article .formula")) {
    const share = box.clientWidth / box.scrollWidth;
    if (share < 1) box.style.fontSize = `${Math.max(0.98 * share, 0.6)}em`;
  }
  for (const box of document.querySelectorAll("article pre > code, article .formula")) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
  }
});

// Tables are sorted by the column whose heading is clicked, or entered; once more turns the order round.
document.addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll("article table")) {
    const body = table.tBodies[0];
    if (!body || body.rows.length < 5) continue;
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      head.tabIndex = 0;
      head.classList.add("sortable");
      const sort = () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const text = (row) => row.cells[column].textContent.trim();
        const order = (a, b) => {
          if (!text(a) || !text(b)) return !text(a) - !text(b); // what is not known comes last, either way
          const [x, y] = [parseFloat(text(a)), parseFloat(text(b))];
          const both = Number.isNaN(x) || Number.isNaN(y) ? text(a).localeCompare(text(b)) : x - y;
          return down ? -both : both;
        };
        body.append(...[...body.rows].sort(order));
      };
      head.addEventListener("click", sort);
      head.addEventListener("keydown", (event) => event.key === "Enter" && sort());
    });
  }
});

// A box above each large table hides the rows that lack one of the words typed into it.
document.addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll(".properties table")) {
    const rows = [...table.tBodies[0].rows];
    const label = document.createElement("label");
    label.className = "filter";
    label.append("Filter rows");
    const box = document.createElement("input");
    box.type = "search";
    box.placeholder = "words, such as: relative learned";
    const count = document.createElement("output");
    const filter = () => {
      const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
      for (const row of rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
      }
      count.value = `${rows.filter((row) => !row.hidden).length} of ${rows.length} rows`;
    };
    box.addEventListener("input", filter);
    label.append(box, count);
    table.closest(".properties").prepend(label);
    filter();
  }
});

// Views of the explorer in a page: the page's colours go to each frame, and the height of its content comes back.
document.addEventListener("DOMContentLoaded", () => {
  const frames = [...document.querySelectorAll("iframe.view")];
  if (!frames.length) return;
  const scheme = () => (document.body.dataset.mdColorScheme === "slate" ? "dark" : "light");
  const colour = (frame) => frame.contentWindow.postMessage({ scheme: scheme() }, "*");
  new MutationObserver(() => frames.forEach(colour)).observe(document.body, { attributeFilter: ["data-md-color-scheme"] });
  addEventListener("message", (event) => {
    const frame = frames.find(({ contentWindow }) => contentWindow === event.source);
    if (frame && event.data?.height) frame.style.height = `${Math.ceil(event.data.height) + 2}px`;
  });
  // A frame answers with its height, also one that loaded before this page listened.
  for (const frame of frames) frame.addEventListener("load", () => colour(frame));
  frames.forEach(colour);
});
