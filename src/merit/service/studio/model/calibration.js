// Calibration: what was promised, and what came true.

import { el, field, fill, nothing, table } from "/dom.js";
import { draw } from "/charts.js";
import { count, share } from "/words.js";
import { figure, select, tile } from "/parts.js";

const ALL = "";
const DECADES = [1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1];

export async function calibration(root, params, app) {
  const calibration = await app.api.get("/v1/model/calibration");
  const container = el("section", { class: "card" });
  const part = (name) => calibration.verticals.find((item) => item.vertical === name) ?? calibration;
  const draw_ = (name) => diagram(container, calibration, part(name), name, choose);
  const choose = (name) => {
    app.note({ id: "calibration", vertical: name });
    draw_(name);
  };
  fill(root, container, verticals(calibration));
  draw_(calibration.verticals.some((item) => item.vertical === params.vertical) ? params.vertical : ALL);
}

function diagram(root, calibration, part, name, choose) {
  const options = { [ALL]: "All verticals", ...Object.fromEntries(calibration.verticals.map(({ vertical }) => [vertical, vertical])) };
  const drawable = part.bins.filter((bin) => bin.true > 0);
  const dark = part.bins.length - drawable.length;
  const drawing = figure("Promised and true, both axes logarithmic", "Dots on the dashed line are promises kept; above it more came true than promised. Larger dots stand for more pairs.");
  fill(
    root,
    el("h2", {}, "Do probabilities keep their word?"),
    el("p", {}, "Pairs of test user and label by the probability they were given, and how many of them came true. The curve that makes probabilities of scores was fitted on other users."),
    field("Labels of", select(options, name, choose)),
    el(
      "div", { class: "tiles" },
      tile("Expected calibration error", part.error.toFixed(5), "mean distance, over pairs"),
      tile("among pairs of 1 % and more", part.error_likely.toFixed(4), "interests are rare"),
      tile("Brier score", part.brier.toFixed(5), `${share(part.prevalence)} of pairs come true`),
      tile("Pairs", count(part.pairs)),
    ),
    drawable.length ? drawing.whole : nothing("Nothing to draw", "No bin of at least 50 pairs has one that came true."),
    dark && drawable.length ? el("p", { class: "soft" }, `${dark === 1 ? "One bin" : `${dark} bins`} in which nothing came true ${dark === 1 ? "has" : "have"} no place on a logarithmic axis.`) : null,
    el("details", {}, el("summary", {}, "The bins in figures"), bins(part.bins)),
  );
  if (drawable.length) reliability(drawing.container, drawable);
}

const bins = (rows) =>
  table(
    "Bins of at least 50 pairs",
    [["given", false], ["pairs", true], ["promised on average", true], ["came true", true]],
    rows.map((bin) => [`${share(bin.low)} to ${share(bin.high)}`, count(bin.pairs), share(bin.promised), share(bin.true)]),
  );

function reliability(container, values) {
  const ends = values.flatMap((bin) => [bin.promised, bin.true]);
  const domain = [Math.min(...ends) / 1.5, Math.min(1, Math.max(...ends) * 1.5)];
  const axis = { values: DECADES.filter((at) => at >= domain[0] && at <= domain[1]).concat(domain[1] / domain[0] < 100 ? [0.02, 0.05, 0.2, 0.5] : []), labelExpr: "format(datum.value, '~%')" };
  const scale = { type: "log", domain, nice: false };
  const x = { field: "promised", type: "quantitative", title: "promised", scale, axis };
  const y = { field: "true", type: "quantitative", title: "came true", scale, axis };
  const likely = values.slice(-3).map((bin) => `${share(bin.promised)} promised, ${share(bin.true)} true`);
  draw(container, {
    height: 300,
    description: `Reliability diagram. The most likely bins: ${likely.join("; ")}.`,
    layer: [
      {
        data: { values: domain.map((end) => ({ promised: end, true: end })) },
        mark: { type: "line", strokeDash: [4, 4], opacity: 0.6, color: "currentColor" },
        encoding: { x, y },
      },
      {
        data: { values },
        mark: { type: "point", opacity: 0.9 },
        encoding: {
          x, y,
          size: { field: "pairs", type: "quantitative", scale: { type: "log", range: [40, 320] }, legend: null },
          tooltip: [{ field: "pairs", format: "," }, { field: "promised", format: ".3~%" }, { field: "true", title: "came true", format: ".3~%" }],
        },
      },
    ],
  });
}

function verticals({ verticals: rows, error }) {
  const worst = (row) => (row.error > 2 * error ? el("strong", {}, row.error.toFixed(4)) : row.error.toFixed(4));
  const sorted = [...rows].sort((a, b) => b.pairs - a.pairs);
  return el(
    "section", { class: "card" },
    el("h2", {}, "By vertical of the label"),
    el("p", {}, "An error more than twice the overall one is printed bold: trust probabilities there less. Few pairs make large errors by chance alone."),
    rows.length
      ? table(
          "Verticals of at least 50 pairs",
          [["vertical", false], ["pairs", true], ["error", true], ["1 % and more", true], ["Brier", true], ["came true", true]],
          sorted.map((row) => [row.vertical, count(row.pairs), worst(row), row.error_likely.toFixed(4), row.brier.toFixed(4), share(row.prevalence)]),
        )
      : nothing("No verticals", "None has 50 pairs."),
  );
}
