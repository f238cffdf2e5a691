// Light and dark: the system's setting until the button overrides it. Only the view that is shown draws.
const root = document.documentElement;
document.getElementById("theme").addEventListener("click", () => {
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  for (const view of Object.values(page.views)) view.draw();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const view of Object.values(page.views)) view.draw();
});
