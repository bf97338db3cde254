// Vega-Lite charts, drawn in this page by the service's own copy of Vega. Expressions are interpreted and never compiled:
// the content security policy allows no eval. All ink is `currentColor`, so that light and dark need no second drawing.

export const PALETTE = ["#2a7ab9", "#d55e00", "#009e73", "#b5659b", "#8a8f98"]; // of Okabe and Ito, as in the reports
const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif";
const INK = { labelColor: "currentColor", titleColor: "currentColor", labelFontSize: 12, titleFontSize: 12 };
const THEME = {
  background: null,
  font: FONT,
  view: { stroke: null },
  range: { category: PALETTE, heatmap: ["#dcebf7", "#2a7ab9", "#123d5e"], ramp: ["#dcebf7", "#2a7ab9", "#123d5e"] },
  axis: {
    ...INK, domainColor: "currentColor", tickColor: "currentColor", gridColor: "currentColor", gridOpacity: 0.13,
    domainOpacity: 0.4, tickOpacity: 0.4, titleFontWeight: 600, titlePadding: 10, labelLimit: 190,
  },
  legend: { ...INK, orient: "top", columnPadding: 22 },
  title: { color: "currentColor", subtitleColor: "currentColor" },
  text: { color: "currentColor", fontSize: 12 },
  bar: { color: PALETTE[0] },
  line: { color: PALETTE[0], strokeWidth: 2.2 },
  area: { color: PALETTE[0] },
  point: { color: PALETTE[0], filled: true },
  rule: { color: "currentColor" },
};
const OPTIONS = {
  mode: "vega-lite",
  renderer: "svg",
  ast: true,
  actions: false,
  defaultStyle: false,
  tooltip: { disableDefaultStyle: true },
};
const current = new WeakMap(); // element → the view it shows, so that the one before can be ended

/** Draw a Vega-Lite specification into an element of the page. Its `description` is what screen readers tell. */
export async function draw(element, spec) {
  const turn = { view: null };
  const before = current.get(element);
  current.set(element, turn);
  await import("/vega.js");
  if (current.get(element) !== turn || !element.isConnected) return null; // a newer drawing, or another page
  const container = document.createElement("div");
  element.classList.add("chart");
  element.replaceChildren(container);
  before?.view?.finalize();
  if (spec.description) {
    element.setAttribute("role", "img");
    element.setAttribute("aria-label", spec.description);
  }
  turn.view = await window.vegaEmbed(container, { width: "container", ...spec }, { ...OPTIONS, config: THEME });
  return turn.view.view;
}
