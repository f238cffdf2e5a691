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
