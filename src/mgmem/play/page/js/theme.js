// Light or dark before the first paint, so that nothing flashes; controls.js changes it later.
(() => {
  let kept = null;
  try {
    kept = localStorage.getItem("mgmem-theme");
  } catch {
    // Private windows may keep nothing.
  }
  const dark = window.matchMedia("(prefers-color-scheme: dark)").matches;
  const known = kept === "light" || kept === "dark";
  document.documentElement.dataset.theme = known ? kept : dark ? "dark" : "light";
})();
