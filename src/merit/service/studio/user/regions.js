// How broad a person is: likely interests by region, a region being labels that mean something alike.

import { draw } from "/charts.js";
import { el } from "/dom.js";

const MOST = 12;
const LONGEST = 34;

export function regions(told) {
  const place = el("div", {});
  const strong = told.items.slice(0, MOST);
  const looked = told.items.reduce((sum, each) => sum + each.interests.length, 0);
  const root = el(
    "div", {},
    el("p", {}, `The ${looked} most likely interests lie in ${told.items.length} regions and spread as if over ${told.effective.toFixed(1)} equally strong ones. A low number is a person of one passion.`),
    place,
  );
  const values = strong.map((each) => ({
    region: each.name.length > LONGEST ? `${each.name.slice(0, LONGEST - 1)}…` : each.name,
    expected: each.expected,
    interests: each.interests.slice(0, 6).map((row) => row.interest).join(", "),
  }));
  const says = values.map((each) => `${each.region}: ${each.expected.toFixed(2)}`).join("; ");
  const spec = {
    description: `Expected interests by region. ${says}.`,
    height: 24 * values.length,
    data: { values },
    encoding: {
      y: { field: "region", type: "nominal", sort: null, title: null, axis: { ticks: false, domain: false } },
      x: { field: "expected", type: "quantitative", title: "interests expected", axis: { tickCount: 4, domain: false } },
      tooltip: [{ field: "interests", title: "likely here" }, { field: "expected", title: "expected", format: ".3~g" }],
    },
    mark: { type: "bar" },
  };
  return { root, draw: () => draw(place, spec) };
}
