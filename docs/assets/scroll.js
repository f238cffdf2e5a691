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
