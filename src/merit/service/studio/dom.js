// Elements without markup: data only ever becomes text, so that no label and no title can become a tag.

const PROPERTIES = new Set(["value", "checked", "disabled", "hidden", "selected", "open", "readOnly", "required", "htmlFor"]);

/** el("p", { class: "note", onclick: f, vars: { "--share": 0.3 } }, "text", child, [children], null) */
export function el(tag, props = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || (value === false && !PROPERTIES.has(name))) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "vars") Object.entries(value).forEach(([key, property]) => made.style.setProperty(key, property));
    else if (name === "data") Object.assign(made.dataset, value);
    else if (PROPERTIES.has(name)) made[name] = value;
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

/** Puts these children in the place of all others. */
export function fill(root, ...children) {
  root.replaceChildren(...children.flat(Infinity).filter(Boolean));
  return root;
}

/** A section with a heading: what every page is made of. */
export function card(title, ...children) {
  return el("section", { class: "card" }, el("h2", {}, title), ...children);
}

/** A label, its control, and a hint that screen readers tell with it. */
export function field(label, control, hint) {
  control.id ||= `field-${(field.last = (field.last ?? 0) + 1)}`;
  const note = hint ? el("small", { id: `${control.id}-hint` }, hint) : null;
  if (note) control.setAttribute("aria-describedby", note.id);
  return el("div", { class: "field" }, el("label", { htmlFor: control.id }, label), control, note);
}

/** heads: [text, isFigure]; rows: arrays of texts or elements. */
export function table(caption, heads, rows) {
  const cell = (tag) => (value, column) => el(tag, { class: heads[column][1] ? "figure" : null }, value);
  return el(
    "div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    el(
      "table", {},
      el("caption", {}, caption),
      el("thead", {}, el("tr", {}, heads.map(([text], column) => cell("th")(text, column)))),
      el("tbody", {}, rows.map((row) => el("tr", {}, row.map(cell("td"))))),
    ),
  );
}

/** What went wrong and what mends it, for a person. */
export function problem(error, ...more) {
  return el(
    "div", { class: "note wrong", role: "alert" },
    el("strong", {}, error.title ?? "Something went wrong in this page"),
    el("p", {}, error.detail ?? String(error.message ?? error)),
    error.remedy ? el("p", {}, error.remedy) : null,
    error.request ? el("small", {}, `Request ${error.request}`) : null,
    ...more,
  );
}

/** Shown while something is on its way. */
export function busy(text = "One moment …") {
  return el("p", { class: "busy", role: "status" }, text);
}

/** Shown where there is nothing yet: what this place is for, and how it fills. */
export function nothing(title, text, ...more) {
  return el("div", { class: "nothing" }, el("strong", {}, title), el("p", {}, text), ...more);
}
