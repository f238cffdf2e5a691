// Code and formulas wider than their box can be scrolled by keyboard too.
document.addEventListener("DOMContentLoaded", () => {
  for (const box of document.querySelectorAll("article pre > code, article .formula")) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
  }
});
