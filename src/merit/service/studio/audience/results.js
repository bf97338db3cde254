// What a preview says, in figures: how many, how it comes about, and what else these users had.

import { el, nothing, table } from "/dom.js";
import { count, few, money, share } from "/words.js";

const tile = (label, value, note) => el("div", { class: "tile" }, el("span", {}, label), el("strong", {}, value), note ? el("span", {}, note) : null);

export function tiles(told) {
  const ahead = told.forecast;
  return el(
    "div", { class: "tiles" },
    tile("Users in the audience", count(told.members), `${share(told.members / told.eligible)} of ${count(told.eligible)} eligible`),
    ahead ? tile("Expected conversions", few(ahead.conversions), `95 %: ${count(ahead.low)} to ${count(ahead.high)}`) : null,
    tile("Contacted", ahead?.users ? count(ahead.users) : "withheld", ahead?.users ? (ahead.users < told.members ? `${count(told.members - ahead.users)} held back` : "nobody is held back") : "too few to be told"),
    tile("Least likely member", share(told.lowest), "of the next purchase"),
    ahead && ahead.value !== null ? tile("Value less cost", money(ahead.value), `95 %: ${money(ahead.value_low)} to ${money(ahead.value_high)}`) : null,
  );
}

export function notes(told) {
  return told.notes.map((note) => el("p", { class: "note care" }, note));
}

export function waterfall(told) {
  const exact = (text) => (/^[\d,]+$/.test(text) ? Number(text.replaceAll(",", "")) : null);
  const first = exact(told.waterfall[0].left.replace("about ", ""));
  return table(
    "From all users to the audience",
    [["Step", false], ["taken", true], ["left", true], ["", false]],
    told.waterfall.map(({ step, removed, left }) => [
      step, removed && (removed.startsWith("<") ? removed : `−${removed}`), left,
      exact(left) === null || !first ? "" : el("span", { class: "meter", "aria-hidden": "true", vars: { "--share": exact(left) / first } }),
    ]),
  );
}

/** `add(text)` puts an interest into the audience. */
export function overIndexed(told, add) {
  const had = new Set(told.interests.map((each) => each.text));
  const rows = told.over_indexed.slice(0, 10);
  if (!rows.length) {
    return nothing("Nothing stands out", "No interest that at least 50 of these users had is more frequent among them than among everybody.");
  }
  return table(
    "What these users had more often than everybody",
    [["Interest", false], ["here", true], ["everybody", true], ["times", true], ["", false]],
    rows.map((row) => [
      row.interest, share(row.share), share(row.base), `${row.index.toFixed(1)} ×`,
      had.has(row.interest) ? el("small", {}, "asked for") : el("button", { type: "button", class: "plain", "aria-label": `Add ${row.interest}`, onclick: () => add(row.interest) }, "Add"),
    ]),
  );
}
