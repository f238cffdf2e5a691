// Tables: sorted by a click on a head, searched, and picked from.
const asNumber = text => parseFloat(text.replaceAll(",", "").replace("−", "-"));

function sort(table, column, head) {
  const descending = head.getAttribute("aria-sort") === "ascending";
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", descending ? "descending" : "ascending");
  const cell = row => row.cells[column].textContent.trim();
  const compare = (a, b) => {
    const [x, y] = [asNumber(cell(a)), asNumber(cell(b))];
    if (Number.isNaN(x) && Number.isNaN(y)) return cell(a).localeCompare(cell(b)) * (descending ? -1 : 1);
    if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y); // dashes last, both ways
    return descending ? y - x : x - y;
  };
  table.tBodies[0].append(...[...table.tBodies[0].rows].sort(compare));
}

function equip(table) {
  const rows = [...table.tBodies[0].rows], heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    head.dataset.sort = "";
    head.tabIndex = 0;
    head.addEventListener("click", () => sort(table, column, head));
    head.addEventListener("keydown", event => event.key === "Enter" && sort(table, column, head));
  });
  const text = row => [...row.cells].map(cell => cell.textContent.trim());
  const box = make("div", {className: "tools"});
  if (rows.length > 8) {
    const search = make("input", {type: "search", className: "search", placeholder: "find an encoding"});
    search.setAttribute("aria-label", "find an encoding");
    search.addEventListener("input", () => {
      const wanted = search.value.trim().toLowerCase();
      for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
    });
    box.append(search);
  }
  box.append(dataLink(table.id || "table", () => [heads.map(head => head.textContent), ...[...table.tBodies[0].rows].map(text)]));
  table.parentElement.before(box);
  for (const row of rows.filter(row => row.dataset.spec)) row.cells[0].addEventListener("click", () => pick(row.dataset.spec));
}

document.querySelectorAll("table.numbers").forEach(equip);
listeners.push(() => {
  for (const row of document.querySelectorAll("tr[data-spec]")) row.classList.toggle("faded", picked.size > 0 && !picked.has(row.dataset.spec));
});
document.querySelectorAll(".chip[data-spec]").forEach(chip => { chip.onclick = () => pick(chip.dataset.spec); });
listeners.push(() => document.querySelectorAll(".chip[data-spec]").forEach(chip => chip.setAttribute("aria-pressed", picked.has(chip.dataset.spec))));
