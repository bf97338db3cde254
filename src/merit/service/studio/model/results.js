// Results: what each method finds, both ways, with intervals over users.

import { el, field, fill, nothing, table } from "/dom.js";
import { draw } from "/charts.js";
import { count } from "/words.js";
import { choice, figure, select } from "/parts.js";

const DRAWN = 5; // methods in one chart: as many as there are colours
const MATCHES = { exact: "Exact match", soft: "Close in meaning" };
const PARTS = { all: "All interests", novel: "New to the user" };
const BUDGETS = [5, 10, 20];
const OVERALL = "all"; // the mean over verticals
const PAIRS = ""; // every pair of user and label

export async function results(root, params, app) {
  let response;
  try {
    response = await app.api.get("/v1/model/results");
  } catch (error) {
    if (error.status !== 404) throw error;
    fill(root, nothing("No results here", `${error.detail} ${error.remedy}`));
    return;
  }
  if (!response.figures.length) {
    fill(root, nothing("Too few test users", "Figures are shown from 50 test users on. Train on more of them, and they appear here."));
    return;
  }
  const interests = el("section", { class: "card" });
  const users = el("section", { class: "card" });
  fill(root, interests, users);
  const state = { match: params.match === "soft" ? "soft" : "exact", part: params.part === "novel" ? "novel" : "all", vertical: params.vertical };
  const keep = (change, again) => {
    Object.assign(state, change);
    app.note({ id: "results", ...state });
    again();
  };
  const showInterests = () => interestsForUser(interests, response.figures, state, (change) => keep(change, showInterests));
  const showUsers = () => usersForInterest(users, response.audiences, state, (change) => keep(change, showUsers));
  showInterests();
  showUsers();
}

// --- interests for a user --------------------------------------------------------------------------------------------

function interestsForUser(root, figures, { match, part }, choose) {
  const rows = figures.filter((row) => row.vertical === "" && row.rule === "one_to_one" && row.average === "pooled");
  const soft = rows.find((row) => row.metric === "recall" && row.budget !== null && row.match !== "exact")?.match;
  const wanted = match === "soft" ? soft : match;
  const at = (metric, budget, of = part) =>
    rows.filter((row) => row.metric === metric && row.budget === budget && row.part === of && (row.match === wanted || !row.match));
  const recalls = BUDGETS.map((budget) => at("recall", budget));
  const points = recalls.flat().filter((row) => row.value !== null);
  const methods = ranked(points);
  const columns = [
    ...BUDGETS.map((budget, index) => [`Recall@${budget}`, recalls[index]]),
    ...(part === "all" ? [["Precision", at("precision", null)], ["F1", at("f1", null)]] : []),
  ].filter(([, cells]) => cells.length);
  const gains = at("recall", 10);
  const against = gains.find((row) => row.gain === 0 && row.gain_low === 0 && row.gain_high === 0)?.method;
  const drawing = figure("Recall by budget", "Bands are 95 % intervals over users.");
  const row = (method) => [
    method,
    ...columns.map(([, cells]) => interval(cells.find((cell) => cell.method === method))),
    ...(against ? [gain(gains.find((cell) => cell.method === method))] : []),
  ];
  fill(
    root,
    el("h2", {}, "Interests for a user"),
    el("p", {}, "Each method lists labels for the test users, and is judged by what they bought a week and more later. Recall@k is the share of those labels among its first k; at equal k no method gains by saying more. In points of a hundred, with 95 % intervals over ", el("strong", {}, `${count(Math.max(...rows.map((name) => name.users)))} users`), "."),
    el(
      "div", { class: "row" },
      choice("match", "What counts as found", MATCHES, match, (value) => choose({ match: value })),
      choice("part", "Which interests", PARTS, part, (value) => choose({ part: value })),
    ),
    points.length ? drawing.whole : nothing("No such figure", "Fewer than 50 test users bought such interests, or the run did not measure it."),
    points.length
      ? table(
          `${MATCHES[match]}, ${PARTS[part].toLowerCase()}`,
          [["method", false], ...columns.map(([name]) => [name, true]), ...(against ? [[`Δ Recall@10 to ${against}`, true]] : [])],
          methods.map(row),
        )
      : null,
  );
  if (points.length) bands(drawing.container, points, methods, { x: "budget", title: "labels per user", summary: "Recall by budget" });
}

// --- users for an interest -------------------------------------------------------------------------------------------

function usersForInterest(root, figures, { vertical }, choose) {
  const hits = figures.filter((row) => row.metric === "hit" && row.value !== null);
  if (!hits.length) {
    fill(root, el("h2", {}, "Users for an interest"), nothing("Not measured", "The run of this model did not rank users for interests, or for fewer than 50 users."));
    return;
  }
  const names = [...new Set(hits.map((row) => row.vertical))];
  const options = {};
  if (names.includes(OVERALL)) options[OVERALL] = "Mean over verticals";
  if (names.includes(PAIRS)) options.pairs = "Every pair of user and label";
  for (const name of names.filter((name) => name !== OVERALL && name !== PAIRS).sort()) options[name] = name;
  const chosen = vertical in options ? vertical : Object.keys(options)[0];
  const points = hits
    .filter((row) => row.vertical === (chosen === "pairs" ? PAIRS : chosen))
    .map((row) => ({ ...row, share: parseFloat(row.match) / 100 }));
  const shares = [...new Set(points.map((row) => row.share))].sort((a, b) => a - b);
  const methods = ranked(points);
  const drawing = figure("Buyers among the first users", "Bands are 95 % intervals over users; the dashed line is chance.");
  const cell = (method, share) => interval(points.find((row) => row.method === method && row.share === share));
  fill(
    root,
    el("h2", {}, "Users for an interest"),
    el("p", {}, "All test users are ranked for an interest. Shown is the share of those who then bought it that stand among the first 1, 2, 5, 10 or 20 % of users: what a campaign of that size reaches."),
    field("Interests of", select(options, chosen, (value) => choose({ vertical: value }))),
    drawing.whole,
    table(
      options[chosen],
      [["method", false], ...shares.map((share) => [`first ${Math.round(100 * share)} %`, true])],
      methods.map((method) => [method, ...shares.map((share) => cell(method, share))]),
    ),
  );
  const chance = {
    data: { values: shares.map((share) => ({ share, value: share })) },
    mark: { type: "line", strokeDash: [4, 4], opacity: 0.6 },
    encoding: { x: { field: "share", type: "quantitative" }, y: { field: "value", type: "quantitative" }, color: { value: "currentColor" } },
  };
  const summary = "Buyers found by share of users contacted";
  bands(drawing.container, points, methods, { x: "share", title: "share of users contacted", y: "buyers found", summary, format: "~%", more: [chance] });
}

// --- both ------------------------------------------------------------------------------------------------------------

/** Methods by their mean, the best first. */
function ranked(points) {
  const sums = new Map();
  for (const { method, value } of points) sums.set(method, [...(sums.get(method) ?? []), value]);
  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  return [...sums].sort(([, a], [, b]) => mean(b) - mean(a)).map(([method]) => method);
}

const point = (value) => (100 * value).toFixed(1);

function interval(cell) {
  if (!cell || cell.value === null) return "–";
  const ends = cell.low === null ? null : el("small", { class: "ends" }, `${point(cell.low)} to ${point(cell.high)}`);
  return [point(cell.value), ends];
}

function gain(cell) {
  if (!cell || cell.gain === null) return "–";
  if (cell.gain_low === 0 && cell.gain_high === 0) return "0";
  const signed = (value) => `${value < 0 ? "−" : "+"}${point(Math.abs(value))}`;
  const clear = cell.gain_low > 0 || cell.gain_high < 0;
  return [el(clear ? "strong" : "span", {}, signed(cell.gain)), el("small", { class: "ends" }, `${signed(cell.gain_low)} to ${signed(cell.gain_high)}`)];
}

/** Lines with their intervals as bands, of the best methods. */
function bands(container, points, methods, { x, title, y = "recall", summary, format = "d", more = [] }) {
  const shown = methods.slice(0, DRAWN);
  const values = points.filter((row) => shown.includes(row.method)).map(({ method, value, low, high, [x]: at }) => ({ method, value, low, high, [x]: at }));
  const ticks = [...new Set(values.map((row) => row[x]))];
  const colour = { field: "method", type: "nominal", title: null, sort: shown, legend: { columns: container.clientWidth > 600 ? 3 : 1, labelLimit: 260, symbolOpacity: 1 } };
  const across = { field: x, type: "quantitative", title, axis: { values: ticks, format, grid: false }, scale: { zero: false, nice: false, padding: 12 } };
  const up = (field) => ({ field, type: "quantitative", title: y, axis: { format: ".0%", tickCount: 5 } });
  const last = shown.map((method) => values.filter((row) => row.method === method).at(-1));
  draw(container, {
    height: 260,
    description: `${summary}. At the right end: ${last.map((row) => `${row.method} ${point(row.value)} %`).join("; ")}.`,
    data: { values },
    encoding: { x: across, color: colour },
    layer: [
      { mark: { type: "area", opacity: 0.16 }, encoding: { y: up("low"), y2: { field: "high" } } },
      {
        mark: { type: "line", point: { size: 45 } },
        encoding: { y: up("value"), tooltip: [{ field: "method" }, { field: x, title, format }, { field: "value", title: y, format: ".1%" }, { field: "low", format: ".1%" }, { field: "high", format: ".1%" }] },
      },
      ...more,
    ],
  });
}
