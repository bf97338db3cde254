// How the eligible users spread over probabilities, and which part of them is in.

import { draw, PALETTE } from "/charts.js";
import { count, share } from "/words.js";
import { HIGHEST, LOWEST } from "/audience/slider.js";

const SIDE = 14; // pixels left and right: as much as half a handle of the slider below
const TICKS = [1e-4, 1e-3, 1e-2, 1e-1, 1];

/** `bars` as a preview gives them; `least` and `most` are the ends of what is in. */
export function histogram(container, bars, least, most) {
  const low = 10 ** LOWEST, high = 10 ** HIGHEST;
  const rows = bars.map((bar) => {
    const [from, to] = [Math.max(bar.low, low), Math.min(bar.high, high)];
    const wide = Math.log10(to / from) * 4; // bins that were joined are wider: the area stays the number of users
    const range = `${bar.low ? share(bar.low) : "0 %"} to ${share(bar.high)}`;
    return { from, to, tall: bar.users / wide, range, users: count(bar.users) };
  });
  const inside = rows
    .map((row) => ({ ...row, from: Math.max(row.from, least ?? 0), to: Math.min(row.to, most ?? 1) }))
    .filter((row) => row.to > row.from);
  const scale = { type: "log", domain: [low, high] };
  const bar = (values, mark) => ({
    data: { values },
    mark: { type: "rect", ...mark },
    encoding: {
      x: { field: "from", type: "quantitative", scale, title: "Probability", axis: { values: TICKS, labelExpr: "format(datum.value, datum.value < 0.01 ? '.2~%' : '.0%')", grid: false } },
      x2: { field: "to" },
      y: { field: "tall", type: "quantitative", axis: null },
      y2: { datum: 0 },
      tooltip: [{ field: "range", title: "probability" }, { field: "users", title: "eligible users" }],
    },
  });
  const summary = bars.map((bar) => `${share(bar.low)} to ${share(bar.high)}: ${count(bar.users)}`).join("; ");
  return draw(container, {
    description: `Eligible users by probability. ${summary}.`,
    height: 170,
    padding: { left: SIDE, right: SIDE, top: 4, bottom: 4 },
    layer: [bar(rows, { color: PALETTE[4], opacity: 0.35 }), bar(inside, { color: PALETTE[0] })],
  });
}
