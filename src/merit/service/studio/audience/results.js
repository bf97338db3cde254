// What a preview says, in figures: how many, how it comes about, and what else these users had.

import { el, nothing, table } from "/dom.js";
import { count, few, money, share } from "/words.js";

const tile = (label, value, note) => el("div", { class: "tile" }, el("span", {}, label), el("strong", {}, value), note ? el("span", {}, note) : null);

export function tiles(preview) {
  const forecast = preview.forecast;
  return el(
    "div", { class: "tiles" },
    tile("Users in the audience", count(preview.members), `${share(preview.members / preview.eligible)} of ${count(preview.eligible)} eligible`),
    forecast ? tile("Expected conversions", few(forecast.conversions), `95 %: ${count(forecast.low)} to ${count(forecast.high)}`) : null,
    tile("Contacted", forecast?.users ? count(forecast.users) : "withheld", forecast?.users ? (forecast.users < preview.members ? `${count(preview.members - forecast.users)} held back` : "nobody is held back") : "too few to be told"),
    preview.lowest === null ? null : tile("Least likely member", share(preview.lowest), preview.window ? `within ${preview.window.days} days` : "of the next purchase"),
    preview.diagnosis ? tile("Bought before", share(preview.diagnosis.bought_before), `${share(preview.diagnosis.new_to_category)} are new to the category`) : null,
    forecast && forecast.value !== null ? tile("Value less cost", money(forecast.value), `95 %: ${money(forecast.value_low)} to ${money(forecast.value_high)}`) : null,
  );
}

export function notes(preview) {
  return preview.notes.map((note) => el("p", { class: "note care" }, note));
}

export function waterfall(preview) {
  const exact = (text) => (/^[\d,]+$/.test(text) ? Number(text.replaceAll(",", "")) : null);
  const first = exact(preview.waterfall[0].left.replace("about ", ""));
  return table(
    "From all users to the audience",
    [["Step", false], ["taken", true], ["left", true], ["", false]],
    preview.waterfall.map(({ step, removed, left }) => [
      step, removed && (removed.startsWith("<") ? removed : `−${removed}`), left,
      exact(left) === null || !first ? "" : el("span", { class: "meter", "aria-hidden": "true", vars: { "--share": exact(left) / first } }),
    ]),
  );
}

/** `add(text)` puts an interest into the audience. */
export function overIndexed(preview, add) {
  const chosen = new Set(preview.interests.map((interest) => interest.text));
  const rows = preview.over_indexed.slice(0, 10);
  if (!rows.length) {
    return nothing("Nothing stands out", "No interest that at least 50 of these users had is more frequent among them than among everybody.");
  }
  return table(
    "What these users had more often than everybody",
    [["Interest", false], ["here", true], ["everybody", true], ["times", true], ["", false]],
    rows.map((row) => [
      row.interest, share(row.share), share(row.base), `${row.index.toFixed(1)} ×`,
      chosen.has(row.interest) ? el("small", {}, "asked for") : el("button", { type: "button", class: "plain", "aria-label": `Add ${row.interest}`, onclick: () => add(row.interest) }, "Add"),
    ]),
  );
}
