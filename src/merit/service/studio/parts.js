// Small parts that the pages Model and Experiments share.

import { el } from "/dom.js";

const LONG = 10; // characters that a tile has room for in its large letters

export const tile = (name, value, more) =>
  el("div", { class: value.length > LONG ? "tile long" : "tile" }, el("span", {}, name), el("strong", {}, value), more ? el("small", {}, more) : null);

/** Links between the views of a page, each with an address of its own. */
export function views(label, page, all, current) {
  const link = ([id, { title }]) =>
    el("a", { href: `#/${page}/${id}`, "aria-current": id === current ? "page" : null }, title);
  return el("nav", { class: "views", "aria-label": label }, Object.entries(all).map(link));
}

/** One of a few: { exact: "Exact match", … } */
export function choice(name, legend, options, chosen, onchange) {
  const input = (value) =>
    el("input", { type: "radio", name, value, checked: value === chosen, onchange: () => onchange(value) });
  return el(
    "fieldset", {}, el("legend", {}, legend),
    el("div", { class: "choice" }, Object.entries(options).map(([value, text]) => el("label", {}, input(value), text))),
  );
}

/** One of many. */
export function select(options, chosen, onchange) {
  const option = ([value, text]) => el("option", { value, selected: value === chosen }, text);
  return el("select", { onchange: (event) => onchange(event.target.value) }, Object.entries(options).map(option));
}

/** A chart under its title. It is drawn by whoever asks for it, once it is on the page. */
export function figure(title, note) {
  const container = el("div", { class: "chart" });
  return { container, whole: el("figure", {}, el("figcaption", {}, title), container, note ? el("small", {}, note) : null) };
}

/** Keep a text as a file. */
export function save(name, text, type) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  Object.assign(document.createElement("a"), { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

/** 0.0023 → +0.23 % */
export const signed = (value) => `${value < 0 ? "−" : "+"}${Math.abs(100 * value).toFixed(2)} %`;

/** Never 100 % and never 0 %: no test makes certain. */
export function sure(value, digits = 1) {
  const edge = 10 ** -digits;
  if (digits && value > 1 - edge / 100) return `more than ${(100 - edge).toFixed(digits)} %`;
  if (digits && value < edge / 100) return `less than ${edge.toFixed(digits)} %`;
  return `${(100 * value).toFixed(digits)} %`;
}
