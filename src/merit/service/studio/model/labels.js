// Labels: the space of interests as a map of its clusters, a search, and the status of any phrase.

import { busy, el, field, fill, nothing, problem } from "/dom.js";
import { draw } from "/charts.js";
import { count } from "/words.js";
import { choice, figure, tile } from "/parts.js";

const STATUSES = { live: "Live", retired: "Retired", blocked: "Blocked" };
const COLOURS = ["#2a7ab9", "#d55e00", "#009e73", "#b5659b", "#c49a00", "#56b4e9", "#7a5ad0", "#a0522d", "#5f8f2f"];
const REST = "other"; // verticals beyond those that can be told apart by colour
const GREY = "#8a8f98";
const LISTED = 12; // clusters named below the map
const SHOWN = 200; // labels of a cluster: the most that the service tells at once
const FOUND = 10; // labels of a search
const PAUSE = 200; // milliseconds without a key before a search is sent

export async function labels(root, params, app, model) {
  const state = { q: params.q ?? "", status: STATUSES[params.status] ? params.status : "live", cluster: params.cluster };
  const map = el("section", { class: "card map" }, el("h2", {}, "Clusters on a map"), busy("Finding a place for every cluster …"));
  const one = el("section", { class: "card", id: "cluster", tabindex: -1, "aria-live": "polite" });
  const search = el("section", { class: "card" });
  const keep = (change) => {
    Object.assign(state, change);
    app.note({ id: "labels", ...state });
  };
  fill(
    root,
    el(
      "div", { class: "tiles" },
      tile("Live", count(model.labels.live), "scored and offered"),
      tile("Retired", count(model.labels.retired), "known, no longer scored"),
      tile("Blocked", count(model.labels.blocked), "by the policy; never named"),
      tile("Version", count(model.label_version), "of the label space"),
    ),
    el("div", { class: "columns atlas" }, map, one),
    searching(search, state, app, model, keep, (cluster) => pick(cluster, true)),
  );
  let pick = (cluster) => keep({ cluster });
  const clusterMap = await app.api.get("/v1/label-map");
  pick = (cluster, jump) => {
    keep({ cluster });
    drawn(map, clusterMap, cluster, pick);
    members(one, clusterMap, cluster, app, jump);
  };
  if (!clusterMap.items.length) {
    fill(map, el("h2", {}, "Clusters on a map"), nothing("No clusters", "The labels of this model are in no clusters. `merit run` groups them when it makes a model."));
    one.remove();
    return;
  }
  drawn(map, clusterMap, Number(state.cluster ?? NaN), pick);
  members(one, clusterMap, state.cluster === undefined ? null : Number(state.cluster), app);
}

// --- the map ---------------------------------------------------------------------------------------------------------

function drawn(root, clusterMap, chosen, pick) {
  if (!root.querySelector(".chart")) frame(root, clusterMap, pick);
  for (const button of root.querySelectorAll("button[data-cluster]")) {
    button.setAttribute("aria-pressed", Number(button.dataset.cluster) === chosen);
  }
  points(root.querySelector(".chart"), clusterMap, chosen, pick);
}

function frame(root, clusterMap, pick) {
  const drawing = figure(
    clusterMap.items.length < clusterMap.clusters
      ? `The ${count(clusterMap.items.length)} largest of ${count(clusterMap.clusters)} clusters`
      : `${count(clusterMap.clusters)} clusters of ${count(clusterMap.labels)} live labels`,
    "Clusters beside each other mean something alike to the model; long distances say nothing. A circle is as large as its cluster has labels.",
  );
  const button = ({ cluster, name, labels }) =>
    el("button", { type: "button", class: "chip", data: { cluster }, onclick: () => pick(cluster, true) }, name, el("small", {}, count(labels)));
  fill(
    root,
    el("h2", {}, "Clusters on a map"),
    drawing.whole,
    el("h3", {}, clusterMap.items.length > LISTED ? "The largest ones" : "All of them"),
    el("div", { class: "chips" }, clusterMap.items.slice(0, LISTED).map(button)),
  );
}

/** The verticals with most labels get a colour of their own. */
function coloured(items) {
  const sizes = new Map();
  for (const { vertical, labels } of items) sizes.set(vertical ?? REST, (sizes.get(vertical ?? REST) ?? 0) + labels);
  const names = [...sizes].filter(([name]) => name !== REST).sort((a, b) => b[1] - a[1]).map(([name]) => name);
  const top = names.slice(0, COLOURS.length);
  return top.length < sizes.size ? { top, domain: [...top, REST], range: [...COLOURS.slice(0, top.length), GREY] } : { top, domain: top, range: COLOURS.slice(0, top.length) };
}

/** Names that do not cover each other, the first ones first. */
function apart(items, width, height) {
  const kept = [];
  for (const item of items) {
    const short = shortened(item.name);
    const box = { x: (item.x * width) / 2.16, y: (item.y * height) / 2.16, half: short.length * 3.2 };
    const covers = ({ box: other }) => Math.abs(box.x - other.x) < box.half + other.half && Math.abs(box.y - other.y) < 15;
    if (!kept.some(covers)) kept.push({ ...item, short, box });
  }
  return kept;
}

const shortened = (text) => (text.length > 22 ? `${text.slice(0, 21)}…` : text);

async function points(container, clusterMap, chosen, pick) {
  const { top, domain, range } = coloured(clusterMap.items);
  const values = clusterMap.items.map((item) => ({ ...item, colour: top.includes(item.vertical) ? item.vertical : REST, chosen: item.cluster === chosen }));
  const blank = { axis: null, scale: { domain: [-1.08, 1.08], nice: false } };
  const wide = container.clientWidth > 480;
  const height = Math.min(460, Math.max(280, container.clientWidth * 0.75));
  const candidates = values.filter((item, rank) => item.chosen || (wide && rank < LISTED)).sort((a, b) => b.chosen - a.chosen);
  const view = await draw(container, {
    height,
    description: `A map of ${clusterMap.items.length} clusters of labels, coloured by vertical: ${domain.join(", ")}. The buttons below name the largest ones.`,
    encoding: {
      x: { field: "x", type: "quantitative", ...blank },
      y: { field: "y", type: "quantitative", ...blank },
    },
    layer: [
      {
        data: { values },
        mark: { type: "point", cursor: "pointer", filled: true },
        encoding: {
          size: { field: "labels", type: "quantitative", scale: { range: [30, Math.max(60, Math.min(700, 24_000 / values.length))], zero: true }, legend: null },
          color: { field: "colour", type: "nominal", title: null, scale: { domain, range }, legend: { columns: wide ? 4 : 2, symbolType: "circle", labelLimit: 130 } },
          opacity: { condition: { test: "datum.chosen", value: 1 }, value: 0.72 },
          stroke: { condition: { test: "datum.chosen", value: "currentColor" }, value: null },
          strokeWidth: { condition: { test: "datum.chosen", value: 3 }, value: 0 },
          order: { field: "labels", sort: "descending" },
          tooltip: [{ field: "name", title: "cluster" }, { field: "vertical" }, { field: "labels" }],
        },
      },
      { data: { values: apart(candidates, container.clientWidth, height) }, mark: { type: "text", dy: -16, fontSize: 11, limit: 150 }, encoding: { text: { field: "short" } } },
    ],
  });
  view?.addEventListener("click", (event, item) => item?.datum?.cluster !== undefined && pick(item.datum.cluster));
}

// --- one cluster -----------------------------------------------------------------------------------------------------

async function members(root, clusterMap, cluster, app, jump = false) {
  if (cluster === null || Number.isNaN(cluster)) {
    fill(root, el("h2", {}, "One cluster"), nothing("None is chosen", "Click a circle, or press one of the buttons below the map, and its labels are listed here."));
    return;
  }
  const item = clusterMap.items.find((row) => row.cluster === cluster);
  const title = el("h2", {}, item ? `Cluster “${item.name}”` : `Cluster ${cluster}`);
  fill(root, title, busy("Listing its labels …"));
  root.dataset.cluster = cluster;
  try {
    const page = await app.api.get("/v1/labels", { query: { cluster, limit: SHOWN } });
    if (root.dataset.cluster !== String(cluster)) return; // another one was chosen meanwhile
    const about = item ? `${count(page.total)} live labels, most of them of ${item.vertical ?? "no vertical"}; the most frequent first.` : "";
    fill(
      root, title,
      page.total ? el("p", {}, about || `${count(page.total)} live labels. It is too small to be on the map.`) : nothing("No such cluster", "No live label is in it. Choose another on the map."),
      el("ol", { class: "labels" }, page.items.map((row) => el("li", {}, el("a", { href: `#/audience?i=${encodeURIComponent(row.text)}` }, row.text), row.vertical === item?.vertical ? null : el("small", {}, row.vertical)))),
      page.total > page.items.length ? el("p", { class: "soft" }, `And ${count(page.total - page.items.length)} more: search for them below.`) : null,
    );
    app.announce(`${page.total} labels of ${item?.name ?? `cluster ${cluster}`}`);
    if (jump) root.focus();
  } catch (error) {
    fill(root, title, problem(error));
  }
}

// --- search and status -----------------------------------------------------------------------------------------------

function searching(root, state, app, model, keep, pick) {
  const results = el("div", { id: "found", "aria-live": "polite" });
  const verdict = el("div", { id: "verdict", "aria-live": "polite" });
  const input = el("input", { type: "search", value: state.q, placeholder: "how a label begins, or a word in it", maxlength: 200, autocomplete: "off" });
  let timer = 0;
  let asking = null;
  const look = async () => {
    asking?.abort();
    asking = new AbortController();
    if (state.status === "blocked") return fill(results, blocked(model));
    try {
      const page = await app.api.get("/v1/labels", { query: { q: state.q, status: state.status, limit: FOUND }, signal: asking.signal });
      fill(results, listed(page, state, pick));
      app.announce(`${page.total} labels found`);
    } catch (error) {
      if (error.name !== "AbortError") fill(results, problem(error));
    }
  };
  input.addEventListener("input", () => {
    keep({ q: input.value });
    fill(verdict);
    clearTimeout(timer);
    timer = setTimeout(look, PAUSE);
  });
  const check = async (event) => {
    event.preventDefault();
    if (input.value.trim()) fill(verdict, busy("Asking the model …"), await status(input.value, app));
    verdict.querySelector(".busy")?.remove();
  };
  fill(
    root,
    el("h2", {}, "Search, and status of a phrase"),
    el(
      "form", { class: "row", onsubmit: check, role: "search" },
      field("Label or phrase", input),
      el("button", { type: "submit" }, "Check its status"),
      choice("status", "List", STATUSES, state.status, (value) => { keep({ status: value }); look(); }),
    ),
    verdict,
    results,
  );
  look();
  return root;
}

function listed(page, { q, status }, pick) {
  if (!page.total) {
    return q
      ? nothing(`No ${status} label has “${q}”`, "Try the beginning of a word. Whether the phrase can be scored all the same, “Check its status” tells.")
      : nothing(`No ${status} labels`, status === "retired" ? "Labels that `merit labels retire` takes out of use appear here." : "This label space is empty.");
  }
  const row = ({ text, vertical, status: kind, since, cluster }) => el(
    "tr", {},
    el("td", {}, kind === "live" ? el("a", { href: `#/audience?i=${encodeURIComponent(text)}` }, text) : text),
    el("td", {}, vertical ?? "–"),
    el("td", {}, el("span", { class: `status ${kind}` }, kind)),
    el("td", { class: "figure" }, String(since)),
    el("td", {}, kind === "live" && cluster !== null ? el("button", { type: "button", class: "plain", "aria-label": `Show the cluster of ${text}`, onclick: () => pick(cluster) }, "on the map") : "–"),
  );
  const caption = `${count(page.total)} ${status} ${page.total === 1 ? "label" : "labels"}${page.total > page.items.length ? `, the first ${page.items.length}` : ""}`;
  return el(
    "div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    el(
      "table", {}, el("caption", {}, caption),
      el("thead", {}, el("tr", {}, ["label", "vertical", "status"].map((head) => el("th", {}, head)), el("th", { class: "figure" }, "since version"), el("th", {}, "cluster"))),
      el("tbody", {}, page.items.map(row)),
    ),
  );
}

const blocked = ({ labels: { blocked: number } }) =>
  nothing(
    number > 1 ? `${count(number)} labels are blocked` : number ? "One label is blocked" : "No label is blocked",
    "Blocked interests are neither scored nor named, so there is no list of them. Type a phrase and check its status to learn whether the policy refuses it.",
  );

/** Live, retired, blocked or no label at all: as the service decides it when somebody asks for the phrase. */
async function status(text, app) {
  try {
    const { label, nearest, similarity, warning } = await app.api.post("/v1/interest", { text });
    if (label !== null) return el("p", { class: "note" }, el("strong", {}, `“${nearest}” is live.`), " It is label ", String(label), ", and can be scored.");
    return el("p", { class: warning ? "note care" : "note" }, el("strong", {}, `“${text}” is no label, but can be scored.`), ` The nearest label is “${nearest}”, similarity ${similarity.toFixed(2)}. ${warning ?? ""}`);
  } catch (error) {
    return problem(error);
  }
}
