// Search as one types, by the ARIA combobox pattern: arrows move, Enter takes, Escape closes, the focus stays in the field.

import { el, fill } from "/dom.js";

const PAUSE = 120; // milliseconds without a key before the service is asked
let made = 0;

/**
 * `find(text, signal)` gives [{ text, note, value }]; `choose(value)` is called with what was taken.
 * The field empties itself when something is taken.
 */
export function combobox({ label, placeholder, find, choose, hint, says }) {
  const id = `combobox-${++made}`;
  const list = el("ul", { role: "listbox", id: `${id}-list`, "aria-label": label, hidden: true });
  const input = el("input", {
    id, type: "text", role: "combobox", autocomplete: "off", spellcheck: "false", placeholder, maxlength: 200,
    "aria-expanded": "false", "aria-controls": list.id, "aria-autocomplete": "list",
    "aria-describedby": hint ? `${id}-hint` : null,
  });
  let options = [], active = -1, timer = 0, asking = null;

  function close() {
    clearTimeout(timer);
    asking?.abort();
    options = [];
    mark(-1);
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
  }

  function mark(index) {
    active = index;
    [...list.children].forEach((item, at) => item.setAttribute("aria-selected", String(at === index)));
    list.children[index]?.scrollIntoView({ block: "nearest" });
    if (index >= 0) input.setAttribute("aria-activedescendant", `${id}-${index}`);
    else input.removeAttribute("aria-activedescendant");
  }

  function open(matches) {
    options = matches;
    const item = (option, at) =>
      el(
        "li", { role: "option", id: `${id}-${at}`, "aria-selected": "false", onmousedown: (event) => event.preventDefault(), onclick: () => take(at) },
        el("span", {}, option.text), option.note ? el("small", {}, option.note) : null,
      );
    fill(list, matches.map(item));
    list.hidden = !matches.length;
    input.setAttribute("aria-expanded", String(Boolean(matches.length)));
    mark(matches.length ? 0 : -1);
    says?.(`${matches.length} suggestions.`);
  }

  async function look() {
    asking?.abort();
    const typed = input.value.trim();
    if (!typed) return close();
    asking = new AbortController();
    try {
      open(await find(typed, asking.signal));
    } catch (error) {
      if (error.name !== "AbortError") open([]);
    }
  }

  function take(index) {
    const chosen = options[index];
    if (!chosen) return;
    input.value = "";
    close();
    choose(chosen.value);
  }

  async function onkeydown(event) {
    if (event.key === "Escape") return close();
    if (event.key === "Enter") {
      event.preventDefault();
      if (options.length) return take(active);
      clearTimeout(timer);
      await look(); // typed faster than the service was asked: take the best of what it says
      return take(0);
    }
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    if (options.length) mark((active + step + options.length) % options.length);
    else look();
  }

  input.addEventListener("keydown", onkeydown);
  input.addEventListener("blur", close);
  input.addEventListener("input", () => {
    close(); // what was found for fewer letters must not be taken for these
    timer = setTimeout(look, PAUSE);
  });
  const root = el(
    "div", { class: "field combobox" },
    el("label", { htmlFor: id }, label), input, list, hint ? el("small", { id: `${id}-hint` }, hint) : null,
  );
  return { root, input };
}
