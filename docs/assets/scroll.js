// Code that is wider than its box can be scrolled by keyboard too.
document.addEventListener("DOMContentLoaded", () => {
  for (const code of document.querySelectorAll("article pre > code")) {
    if (code.scrollWidth > code.clientWidth) code.tabIndex = 0;
  }
});
