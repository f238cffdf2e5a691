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
