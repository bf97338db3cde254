// The design: a form, the file to keep, and what the test can see. The form is in the address.

import { busy, card, el, field, fill, problem, table } from "/dom.js";
import { draw } from "/charts.js";
import { count, day } from "/words.js";
import { figure, save, signed, sure, tile } from "/parts.js";

const percent = (text) => Number((Number(text) / 100).toPrecision(12));
const next = () => {
  const first = new Date(Date.now() + 7 * 864e5);
  first.setUTCDate(first.getUTCDate() + ((8 - first.getUTCDay()) % 7)); // a Monday, at least a week ahead
  return first.toISOString().slice(0, 10);
};
const drawLot = () => [...crypto.getRandomValues(new Uint8Array(6))].map((byte) => byte.toString(16).padStart(2, "0")).join("");

// name: [label, attributes, value at first, hint]
const TEXT = { type: "text", required: true };
const SHARE = { type: "number", min: 0, max: 99.9, step: "any", required: true };
const FIELDS = {
  name: ["Name", { ...TEXT, maxlength: 200 }, "Trail running, spring"],
  control: ["Control", TEXT, "expert", "What is done today."],
  treatment: ["Treatment", TEXT, "merit", "What may take its place."],
  control_share: ["Control, %", SHARE, "45"],
  treatment_share: ["Treatment, %", SHARE, "45"],
  holdout_share: ["Holdout, %", SHARE, "10", "Assigned, and left alone. 0 for none."],
  start: ["First day", { type: "date", required: true }, ""],
  days: ["Days", { type: "number", min: 1, step: 1, required: true }, "7", "Whole weeks: weekdays differ."],
  salt: ["Salt of the assignment", { type: "text", minlength: 8 }, "", "New for each experiment. Empty: users are assigned elsewhere."],
  column: ["Column of the outcome", TEXT, "bought", "0 for those who did nothing."],
  mean: ["Expected mean of the control", { type: "number", min: 0, step: "any", required: true }, "4", "In percent for yes or no; else per user."],
  sd: ["Standard deviation over users", { type: "number", min: 0, step: "any" }, "", "Of amounts, zeros included."],
  cap: ["Cap", { type: "number", min: 0, step: "any" }, "", "Amounts above count as this much."],
  minimum_effect: ["Smallest lift worth having, %", { type: "number", min: 0, step: "any", required: true }, "2"],
  users_per_day: ["Users per day, all arms", { type: "number", min: 1, step: 1 }, "100000"],
  users: ["Users in all", { type: "number", min: 1, step: 1 }, "", "If there are no more than so many."],
  threshold: ["Ship when P(lift > 0) is at least, %", { type: "number", min: 50, max: 99.99, step: "any", required: true }, "90", "At 90, one useless campaign in ten ships."],
  power: ["Power, %", { type: "number", min: 50, max: 99.99, step: "any", required: true }, "80"],
  covariates: ["Covariates", { type: "text" }, "", "Columns known before the start, with commas between."],
  variance_removed: ["Variance they explain, %", { type: "number", min: 0, max: 99.9, step: "any" }, "0", "0 is the safe guess."],
  segment: ["Segment", { type: "text" }, "", "A column of groups known before the start."],
  prior_sd: ["Standard deviation of the prior, %", { type: "number", min: 0, step: "any" }, "", "Empty: flat, the data alone decide."],
  prior_mean: ["Mean of the prior, %", { type: "number", step: "any" }, "", "Usually 0."],
};

export async function design(root, params, app, kept) {
  const answer = el("div", { id: "designed", "aria-live": "polite" });
  const inputs = {};
  const first = { ...Object.fromEntries(Object.entries(FIELDS).map(([name, [, , value]]) => [name, value])), start: next(), salt: `experiment-${drawLot()}` };
  for (const [name, [, attributes]] of Object.entries(FIELDS)) {
    inputs[name] = el("input", { ...attributes, name, value: params[name] ?? first[name], autocomplete: "off" });
  }
  inputs.kind = el("select", { name: "kind" }, [["binary", "yes or no"], ["amount", "an amount"]].map(([value, text]) => el("option", { value, selected: params.kind === value }, text)));
  const form = el("form", { class: "card", onsubmit: (event) => { event.preventDefault(); ask(); } }, sections(inputs));
  const adapt = () => {
    for (const name of ["sd", "cap"]) inputs[name].closest(".field").hidden = inputs.kind.value === "binary";
    inputs.sd.required = inputs.kind.value === "amount";
  };
  inputs.kind.addEventListener("change", adapt);
  form.addEventListener("input", () => answer.classList.add("stale"));
  const values = () => Object.fromEntries(Object.entries(inputs).map(([name, input]) => [name, input.value.trim()]));
  const ask = async () => {
    const given = values();
    app.note({ id: "design", ...given });
    fill(answer, busy("Computing what this test can see …"));
    answer.classList.remove("stale");
    try {
      const response = await app.api.post("/v1/experiments/design", wanted(given));
      kept.design = response.file;
      showDesign(answer, response, wanted(given), app);
      app.announce(`${count(response.users_needed)} users are needed`);
    } catch (error) {
      fill(answer, problem(error, error.errors?.length ? el("ul", {}, error.errors.map(({ where, what }) => el("li", {}, `${where.replace(/^body\./, "")}: ${what}`))) : null));
    }
  };
  fill(root, el("div", { class: "columns" }, form, answer));
  adapt();
  if (params.name !== undefined) await ask();
  else fill(answer, empty());
}

const empty = () =>
  el(
    "div", { class: "nothing" }, el("strong", {}, "Nothing agreed yet"),
    el("p", {}, "Fill in the form and freeze it: then this side tells how many users the test needs, how long that takes, and gives you the file to keep."),
  );

function sections(inputs) {
  const put = (name) => field(FIELDS[name][0], inputs[name], FIELDS[name][3]);
  const group = (legend, ...names) => el("fieldset", { class: "group" }, el("legend", {}, legend), el("div", { class: "fields" }, names.map((name) => (typeof name === "string" ? put(name) : name))));
  return [
    el("h2", {}, "What is agreed before launch"),
    put("name"),
    group("Who is compared", "control", "control_share", "treatment", "treatment_share", "holdout_share"),
    group("What counts, and how long", "column", field("It is", inputs.kind), "start", "days", "mean", "sd", "cap"),
    group("How much it takes", "minimum_effect", "users_per_day", "users"),
    el("details", {}, el("summary", {}, "Rule, covariates, prior, salt"), group("The rule", "threshold", "power"), group("Covariates and segments", "covariates", "variance_removed", "segment"), group("The prior, on the lift", "prior_sd", "prior_mean"), put("salt")),
    el("button", { type: "submit", class: "main" }, "Freeze the design"),
  ];
}

/** The design as docs/experiments.md has it; what is empty is left to its default. */
function wanted(given) {
  const number = (text) => (text === "" ? undefined : Number(text));
  const amount = given.kind === "amount";
  const arms = { [given.control]: percent(given.control_share), [given.treatment]: percent(given.treatment_share) };
  const prior = given.prior_sd === "" ? undefined : { mean: percent(given.prior_mean || 0), sd: percent(given.prior_sd) };
  return {
    name: given.name,
    arms: Number(given.holdout_share) ? { holdout: percent(given.holdout_share), ...arms } : arms, // first, so that it may grow
    control: given.control,
    treatment: given.treatment,
    salt: given.salt || null,
    start: given.start,
    days: number(given.days),
    minimum_effect: percent(given.minimum_effect),
    threshold: percent(given.threshold),
    power: percent(given.power),
    outcome: { column: given.column, kind: given.kind, ...(amount && given.cap ? { cap: number(given.cap) } : {}) },
    covariates: given.covariates.split(",").map((name) => name.trim()).filter(Boolean),
    ...(given.segment ? { segment: given.segment } : {}),
    ...(prior ? { prior } : {}),
    outlook: {
      mean: amount ? number(given.mean) : percent(given.mean),
      ...(amount && given.sd ? { sd: number(given.sd) } : {}),
      variance_removed: percent(given.variance_removed || 0),
      ...(given.users ? { users: number(given.users) } : {}),
      ...(given.users_per_day ? { users_per_day: number(given.users_per_day) } : {}),
    },
  };
}

function showDesign(root, response, agreed, app) {
  const needed = response.by_lift.find((row) => Math.abs(row.lift - agreed.minimum_effect) < 1e-12);
  const days = needed?.days ? `, that is ${count(needed.days)} ${needed.days === 1 ? "day" : "days"}` : "";
  const expected = response.expected;
  const enough = !expected || expected.users >= response.users_needed;
  const drawing = figure("Lift that is found, by weeks", `With ${sure(agreed.power, 0)} power, over all arms.`);
  fill(
    root,
    el(
      "section", { class: "card" },
      el("h2", {}, "What this test can see"),
      el("p", { class: "says" }, `To find a lift of ${signed(agreed.minimum_effect)} in ${sure(agreed.power, 0)} of tests, ${count(response.users_needed)} users are needed over all arms${days}.`),
      expected
        ? el(
            "div", { class: "tiles" },
            tile("Users by the last day", count(expected.users), day(response.end)),
            tile("Smallest lift found", expected.lift === null ? "none" : signed(expected.lift), `in ${sure(agreed.power, 0)} of tests`),
            tile("Ships if it works", sure(expected.chance), `at a lift of ${signed(agreed.minimum_effect)}`),
            tile("Ships by luck", sure(expected.luck), "if there is no lift at all"),
          )
        : null,
      enough ? null : el("p", { class: "note care" }, el("strong", {}, "Too few users for what is asked."), " Take more days or a larger share, or agree on a larger smallest lift: a test that cannot see it will most likely end without an answer."),
      table("Users and days by lift", [["if the lift is", false], ["users, all arms", true], ["days", true]], response.by_lift.map((row) => [signed(row.lift), count(row.users), row.days === null ? "–" : count(row.days)])),
      response.by_week.length > 1 ? drawing.whole : null,
      response.by_week.length ? table("What is found after so many weeks", [["weeks", false], ["users, all arms", true], ["lift", true]], response.by_week.map((row) => [count(row.weeks), count(row.users), row.lift === null ? "–" : signed(row.lift)])) : null,
    ),
    card(
      "Keep the file",
      el("p", {}, `Frozen on ${day(response.frozen)}; outcomes count until ${day(response.end)}. The service keeps nothing: the file is the agreement, and the analysis asks for it. Send its fingerprint to whoever should be able to prove that nothing was changed afterwards.`),
      el("p", {}, el("small", {}, "SHA-256 of design.json"), el("br"), el("code", { id: "fingerprint" }, response.sha256)),
      el(
        "div", { class: "row" },
        el("button", { type: "button", class: "main", onclick: () => save("design.json", response.file, "application/json") }, "Download design.json"),
        el("button", { type: "button", onclick: () => app.go({ id: "analyse" }) }, "Analyse with this design"),
      ),
      el("details", {}, el("summary", {}, "design.json"), el("pre", { id: "file", tabindex: 0 }, response.file)),
    ),
  );
  if (response.by_week.length > 1) weeks(drawing.container, response.by_week.filter((row) => row.lift !== null), agreed.minimum_effect);
}

function weeks(container, values, goal) {
  const y = { field: "lift", type: "quantitative", title: "lift found", axis: { labelExpr: "datum.value ? format(datum.value, '+.2~%') : '0'", tickCount: 5 }, scale: { zero: true } };
  draw(container, {
    height: 200,
    description: `The smallest lift found after weeks: ${values.map((row) => `${row.weeks}: ${signed(row.lift)}`).join("; ")}. Asked for is ${signed(goal)}.`,
    layer: [
      { data: { values }, mark: { type: "line", point: { size: 50 } }, encoding: { x: { field: "weeks", type: "quantitative", axis: { values: values.map((row) => row.weeks), grid: false }, scale: { zero: false } }, y, tooltip: [{ field: "weeks" }, { field: "users", format: "," }, { field: "lift", format: "+.2%" }] } },
      { data: { values: [{ lift: goal }] }, mark: { type: "rule", strokeDash: [5, 4], opacity: 0.7 }, encoding: { y } },
      { data: { values: [{ lift: goal }] }, mark: { type: "text", align: "right", dy: -7 }, encoding: { x: { value: "width" }, y, text: { value: "smallest worth having" } } },
    ],
  });
}
