// The days in which a purchase counts, and a list of products that are wanted beside interests or instead of them.

import { el, field } from "/dom.js";

/** Inputs for the window and the list; `tables` are those of the service. */
export function windowed(state, tables, changed) {
  const days = el("input", { type: "number", min: 1, max: 365, step: 1, placeholder: "the next purchase", value: state.days ?? "", oninput: () => { state.days = Number(days.value) || null; show(); changed(); } });
  const from = el("input", { type: "date", value: state.from, onchange: () => { state.from = from.value; changed(); } });
  const lists = tables.items.filter((table) => table.columns.includes("item_id"));
  const list = el(
    "select", { onchange: () => { state.products = list.value; if (list.value) state.days ??= 28; days.value = state.days ?? ""; show(); changed(); } },
    [["", "no list"], ...lists.map((table) => [table.name, table.name])].map(([value, text]) => el("option", { value, selected: value === state.products }, text)),
  );
  const fresh = el("input", { type: "checkbox", checked: state.new_to === "category", onchange: () => { state.new_to = fresh.checked ? "category" : ""; changed(); } });
  const more = el("div", {}, field("First day", from, "Left empty: the day after the model's data."), el("label", {}, fresh, " Only users new to the category"));
  const show = () => { more.hidden = !state.days; };
  show();
  return el(
    "div", {},
    field("Days", days, "At least one purchase within so many days. Left empty: the next purchase, whenever it comes."),
    lists.length ? field("A list of products", list, "A table of the service with a column item_id.") : null,
    more,
  );
}
