// Who may be addressed: rules as docs/audiences.md has them, filled in by hand, over the tables that the service offers.

import { combobox } from "/combobox.js";
import { el, field, fill } from "/dom.js";

const TABLE = { name: "table", label: "Table" }, COLUMN = { name: "column", label: "Column" };
const DAYS = { name: "days", label: "Days", type: "number", min: 1, max: 3650, value: 30 };
const KINDS = {
  had: { rule: "bought", title: "Not bought yet, by the model's history", fields: [{ name: "interests", label: "Interest", type: "label" }] },
  consent: { title: "Consent: the column says yes", fields: [TABLE, COLUMN] },
  recency: { title: "Seen within the last days", fields: [TABLE, { ...COLUMN, label: "Column of the time" }, DAYS] },
  frequency: { title: "Not contacted too often", fields: [TABLE, { ...COLUMN, label: "Column of the time of contact" }, DAYS, { name: "most", label: "At most, this one included", type: "number", min: 1, value: 2 }] },
  bought: { title: "Not bought yet, by a table of orders", fields: [TABLE, { ...COLUMN, label: "Column (optional)", optional: true }, { name: "among", label: "Values that count (a, b)", type: "list", optional: true }, { name: "time", label: "Column of the time (optional)", type: "column", optional: true }, { ...DAYS, value: "", optional: true }] },
  listed: { title: "A list of users", fields: [TABLE, { name: "keep", label: "What to do with the listed", type: "choice", options: [["", "leave them out"], ["true", "keep only them"]] }] },
  attribute: { title: "By an attribute", fields: [TABLE, COLUMN, { name: "among", label: "Only these values (a, b)", type: "list", optional: true }, { name: "not_among", label: "Not these values (a, b)", type: "list", optional: true }, { name: "at_least", label: "At least", type: "number", optional: true }, { name: "at_most", label: "At most", type: "number", optional: true }, { name: "unknown", label: "Users without a value", type: "choice", options: [["", "leave them out"], ["keep", "keep them"]] }] },
};

/** A rule in words. */
export function words(rule) {
  const where = rule.table ? ` in ${rule.table}` : "";
  switch (rule.rule) {
    case "consent": return `${rule.column}${where} says yes`;
    case "recency": return `seen within ${rule.days} days: ${rule.column}${where}`;
    case "frequency": return `at most ${rule.most} contacts in ${rule.days} days: ${rule.column}${where}`;
    case "bought": return `not bought yet${rule.days ? ` in ${rule.days} days` : ""}: ${rule.interests?.join(", ") ?? [rule.among?.join(", "), rule.table].filter(Boolean).join(" of ")}`;
    case "listed": return `${rule.keep ? "only" : "without"} those listed in ${rule.table}`;
    default: return `${rule.column}${where}: ${[rule.among?.join(", "), rule.not_among && `not ${rule.not_among.join(", ")}`, rule.at_least !== undefined && `at least ${rule.at_least}`, rule.at_most !== undefined && `at most ${rule.at_most}`].filter(Boolean).join(" and ")}`;
  }
}

/** The list of rules and the form for one more. `changed()` is called after every change of `state`. */
export function rules(state, tables, app, find, changed) {
  const list = el("ol", { class: "rules" });
  const day = el("input", { type: "date", value: state.as_of, onchange: () => { state.as_of = day.value; changed(); } });
  const since = field("The day to look back from", day, "Written into the audience, so that it can be built again.");
  const kind = el("select", {}, Object.entries(KINDS).filter(([name]) => name === "had" || tables.items.length).map(([name, item]) => el("option", { value: name }, item.title)));
  const fields = el("div", { class: "row" });
  const form = el(
    "form", { hidden: true, class: "inset", onsubmit: add },
    field("Kind of rule", kind), fields,
    el("div", { class: "row" }, el("button", { type: "submit" }, "Add this rule"), el("button", { type: "button", class: "plain", onclick: () => toggle(false) }, "Cancel")),
    tables.items.length ? null : el("small", {}, tables.offered ? "The service's folder of tables is empty." : "More kinds of rules need tables of users: start the service with --tables FOLDER."),
  );
  const more = el("button", { type: "button", onclick: () => toggle(true) }, "Add a rule");
  let controls = [];

  function toggle(open) {
    form.hidden = !open;
    more.hidden = open;
    if (open) {
      refill();
      kind.focus();
    } else more.focus();
  }

  function refill() {
    controls = KINDS[kind.value].fields.map((spec) => ({ spec, ...control(spec) }));
    fill(fields, controls.map((item) => item.root));
    const table = controls.find((item) => item.spec.name === "table");
    if (!table) return;
    const columns = () => {
      const names = tables.items.find((item) => item.name === table.input.value)?.columns ?? [];
      for (const item of controls.filter((one) => isColumn(one.spec))) {
        const options = names.filter((name) => name !== "user_id").map((name) => el("option", { value: name }, name));
        fill(item.input, item.spec.optional ? el("option", { value: "" }, "–") : null, options);
      }
    };
    table.input.addEventListener("change", columns);
    columns();
  }

  function control(spec) {
    if (spec.type === "label") return wanted(spec);
    const input = spec.name === "table"
      ? el("select", { required: true }, tables.items.map((item) => el("option", { value: item.name }, item.name)))
      : isColumn(spec)
        ? el("select", { required: !spec.optional })
        : spec.type === "choice"
          ? el("select", {}, spec.options.map(([value, text]) => el("option", { value }, text)))
          : el("input", { type: spec.type === "number" ? "number" : "text", step: "any", min: spec.min, max: spec.max, value: spec.value ?? "", required: !spec.optional });
    return { input, root: field(spec.label, input), value: () => input.value.trim() };
  }

  /** One label, searched for; taken at once, as there is nothing else to fill in. */
  function wanted(spec) {
    const box = combobox({
      label: spec.label, placeholder: "Search the interests", find: (typed, signal) => find(typed, signal, false), says: app.announce,
      choose: ({ text }) => push({ rule: "bought", interests: [text] }),
    });
    return { ...box, value: () => "" };
  }

  function add(event) {
    event.preventDefault();
    const made = { rule: KINDS[kind.value].rule ?? kind.value };
    for (const { spec, value } of controls) {
      const given = value();
      if (given === "") continue;
      made[spec.name] = spec.type === "number" ? Number(given) : spec.type === "list" ? given.split(",").map((item) => item.trim()).filter(Boolean) : spec.name === "keep" ? true : given;
    }
    if (kind.value !== "had") push(made);
  }

  function push(made) {
    state.rules.push(made);
    if (made.days && !state.as_of) state.as_of = new Date().toISOString().slice(0, 10);
    toggle(false);
    show();
    app.announce(`Rule added: ${words(made)}.`);
    changed();
  }

  function show() {
    day.value = state.as_of;
    since.hidden = !state.rules.some((rule) => rule.days);
    fill(
      list,
      state.rules.map((rule, index) =>
        el("li", {}, el("span", {}, words(rule)), el("button", {
          type: "button", class: "plain", "aria-label": `Remove the rule: ${words(rule)}`,
          onclick: () => { state.rules.splice(index, 1); show(); more.focus(); changed(); },
        }, "Remove")),
      ),
    );
  }

  kind.addEventListener("change", refill);
  show();
  return el("div", {}, list, since, more, form);
}

const isColumn = (spec) => spec.name === "column" || spec.type === "column";
