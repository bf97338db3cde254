// How broad a person is: likely interests by region, a region being labels that mean something alike.

import { draw } from "/charts.js";
import { el } from "/dom.js";

const MOST = 12;
const LONGEST = 34;

export function regions(response) {
  const container = el("div", {});
  const strong = response.items.slice(0, MOST);
  const total = response.items.reduce((sum, region) => sum + region.interests.length, 0);
  const root = el(
    "div", {},
    el("p", {}, `The ${total} most likely interests lie in ${response.items.length} regions and spread as if over ${response.effective.toFixed(1)} equally strong ones. A low number is a person of one passion.`),
    container,
  );
  const values = strong.map((region) => ({
    region: region.name.length > LONGEST ? `${region.name.slice(0, LONGEST - 1)}…` : region.name,
    expected: region.expected,
    interests: region.interests.slice(0, 6).map((row) => row.interest).join(", "),
  }));
  const summary = values.map((region) => `${region.region}: ${region.expected.toFixed(2)}`).join("; ");
  const spec = {
    description: `Expected interests by region. ${summary}.`,
    height: 24 * values.length,
    data: { values },
    encoding: {
      y: { field: "region", type: "nominal", sort: null, title: null, axis: { ticks: false, domain: false } },
      x: { field: "expected", type: "quantitative", title: "interests expected", axis: { tickCount: 4, domain: false } },
      tooltip: [{ field: "interests", title: "likely here" }, { field: "expected", title: "expected", format: ".3~g" }],
    },
    mark: { type: "bar" },
  };
  return { root, draw: () => draw(container, spec) };
}
