// The analysis: the agreed design and the outcomes in, the lift report out.

import { busy, el, field, fill, nothing, problem } from "/dom.js";
import { choice, select } from "/parts.js";
import { report } from "/experiments/lift.js";

const SOURCES = { table: "A file", named: "A service table", statistics: "Statistics only" };

export async function analysis(root, params, app, kept) {
  const answer = el("div", { id: "report", tabindex: -1 });
  const container = el("div");
  const offered = app.can("audience") ? (await app.api.get("/v1/tables")).items.map((table) => table.name) : [];
  const state = { source: Object.hasOwn(SOURCES, params.source) ? params.source : "table", named: offered.includes(params.table) ? params.table : offered[0] };
  const agreed = el("textarea", { name: "design", rows: 9, spellcheck: "false", required: true, value: kept.design ?? "", placeholder: '{ "name": "Trail running, spring", … }' });
  const until = el("input", { type: "date", name: "until", value: params.until ?? endOf(agreed.value) });
  const assigned = el("input", { type: "number", name: "assigned", min: 1, step: 1, value: params.assigned ?? "" });
  const table = el("input", { type: "file", name: "table", accept: ".csv,.tsv,.parquet,.jsonl,.ndjson" });
  const named = select(Object.fromEntries(offered.map((name) => [name, name])), state.named, (name) => { state.named = name; });
  const statistics = el("textarea", { name: "statistics", rows: 9, spellcheck: "false" });
  const take = async (event) => {
    const [file] = event.target.files;
    if (!file) return;
    agreed.value = await file.text();
    agreed.dispatchEvent(new Event("input"));
  };
  agreed.addEventListener("input", () => {
    until.value = endOf(agreed.value) || until.value;
    kept.design = agreed.value;
  });
  const ways = {
    table: () => field("Outcomes", table, "One row per assigned user, buyers or not: CSV, JSONL or Parquet, at most 10 MB and not packed. It is read once and not kept."),
    named: () => (offered.length ? field("Table", named, "One row per assigned user, buyers or not, of any size. Nothing is told about fewer than 50 users.") : none(app)),
    statistics: () => [
      field("Statistics", statistics, "Users, means and covariances of each arm: no user leaves your warehouse."),
      el("button", { type: "button", class: "plain", onclick: () => (statistics.value = template(agreed.value)) }, "Begin with a template of this design"),
    ],
  };
  const analyse = el("button", { type: "submit", class: "main" }, "Analyse");
  const outcomes = () => {
    table.required = state.source === "table";
    statistics.required = state.source === "statistics";
    analyse.disabled = state.source === "named" && !offered.length;
    fill(container, ways[state.source]());
  };
  const ask = async (event) => {
    event.preventDefault();
    app.note({ id: "analyse", source: state.source, table: state.source === "named" ? state.named : "", until: until.value, assigned: assigned.value });
    fill(answer, busy("Analysing …"));
    try {
      report(answer, await sent(app, { state, agreed, table, statistics, until, assigned }));
      answer.focus();
    } catch (error) {
      fill(answer, problem(error, error.errors?.length ? el("ul", {}, error.errors.map(({ where, what }) => el("li", {}, `${where.replace(/^body\./, "")}: ${what}`))) : null));
    }
  };
  const form = el(
    "form", { class: "card", onsubmit: ask },
    el("h2", {}, "What was agreed, and what happened"),
    field("Design file", el("input", { type: "file", name: "file", accept: ".json,application/json", onchange: take }), "design.json, as it was frozen before launch."),
    field("Design", agreed, "From the file, from what you froze in this tab, or pasted."),
    choice("source", "Outcomes come as", SOURCES, state.source, (value) => { state.source = value; outcomes(); }),
    container,
    el("div", { class: "fields" }, field("Counted until", until, "The last day in the outcomes."), field("Users assigned", assigned, "In all arms, if known: is anyone lost?")),
    analyse,
  );
  outcomes();
  fill(root, el("div", { class: "columns" }, form, answer));
  fill(answer, nothing("No analysis yet", "Give the design and the outcomes. The report then begins with the decision, or with what stands in its way."));
}

async function sent(app, { state, agreed, table, statistics, until, assigned }) {
  const design = parsed(agreed.value, "The design");
  if (state.source === "table") {
    const body = new FormData();
    body.append("design", agreed.value);
    body.append("table", table.files[0]);
    if (until.value) body.append("until", until.value);
    if (assigned.value) body.append("assigned", assigned.value);
    return app.api.post("/v1/experiments/analyze-table", body);
  }
  const context = { design, until: until.value || null, assigned: assigned.value ? Number(assigned.value) : null };
  if (state.source === "named") return app.api.post("/v1/experiments/analyze-named", { ...context, table: state.named });
  return app.api.post("/v1/experiments/analyze", { ...context, statistics: parsed(statistics.value, "The statistics") });
}

/** Why there is nothing to choose from. */
const none = (app) =>
  app.can("audience")
    ? nothing("The service has no tables", "Whoever runs it offers some with merit serve … --tables FOLDER. Or give yours from this computer.")
    : nothing("This key sees no tables", "The scope audience is needed to choose one. Or give yours from this computer.");

function parsed(text, what) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw Object.assign(new Error(), { title: `${what} cannot be read`, detail: `${what} is no JSON: ${error.message}.`, remedy: "Mend it there, or choose the file again." });
  }
}

const attempted = (text) => {
  try {
    return JSON.parse(text);
  } catch {
    return null; // still being typed
  }
};

/** The last day that the design counts. */
function endOf(text) {
  const { start, days } = attempted(text) ?? {};
  const last = new Date(Date.parse(start) + (days - 1) * 864e5);
  return Number.isNaN(last.getTime()) ? "" : last.toISOString().slice(0, 10);
}

function template(text) {
  const { arms = { control: 0.5, treatment: 0.5 }, outcome = {}, covariates = [] } = attempted(text) ?? {};
  const columns = [outcome.column ?? "outcome", ...covariates];
  const plain = columns.length === 1 && outcome.kind !== "amount";
  const cell = (arm) => ({ arm, users: 0, mean: columns.map(() => 0), ...(plain ? {} : { covariance: columns.map(() => columns.map(() => 0)) }) });
  return JSON.stringify({ columns, cells: Object.keys(arms).map(cell) }, null, 1);
}
