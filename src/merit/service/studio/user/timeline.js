// What a user did, the newest first: a chart over time where times are known, and the list.

import { draw } from "/charts.js";
import { el, fill, nothing, problem } from "/dom.js";
import { count, day } from "/words.js";

const SHOWN = 15; // rows before one asks for more
const PAGE = 200;

/** `history` is the first page of /v1/users/{id}/history. */
export function timeline(app, user, history) {
  const container = el("div", {}), list = el("ol", { class: "timeline" });
  const rows = [...history.items];
  let next = history.next, shown = SHOWN;
  const more = el("button", { type: "button", onclick: further }, "Show earlier ones");

  async function further() {
    try {
      if (shown + SHOWN > rows.length && next) {
        const page = await app.api.get(`/v1/users/${encodeURIComponent(user)}/history`, { query: { limit: PAGE, cursor: next } });
        rows.push(...page.items);
        next = page.next;
      }
      shown += SHOWN * 2;
      show();
    } catch (error) {
      if (error.status !== 401) fill(container, problem(error));
    }
  }

  function show() {
    let before = null;
    fill(
      list,
      rows.slice(0, shown).map((row) => {
        const at = row.at && day(row.at);
        const head = at && at !== before ? el("h3", {}, at) : null;
        before = at;
        return el(
          "li", {}, head,
          el("div", { class: "event" }, el("span", { class: "title" }, row.title ?? row.item_id), row.event ? el("small", {}, row.event.replaceAll("_", " ")) : null),
          row.interests.length ? el("div", { class: "tags" }, row.interests.slice(0, 8).map((text) => el("a", { href: `#/audience?i=${encodeURIComponent(text)}` }, text))) : null,
        );
      }),
    );
    more.hidden = shown >= rows.length && !next;
  }

  if (!rows.length) return { root: nothing("No history", "The model has read nothing of this user."), draw: () => null };
  show();
  const root = el(
    "div", {},
    container,
    rows[0].at ? null : el("p", { class: "soft" }, "When each happened is not known here: the run's examples are not beside the model. The order is right."),
    list, more,
  );
  return { root, draw: () => (rows[0].at ? chart(container, rows) : null) };
}

function chart(container, rows) {
  const values = rows.map((row) => ({ at: row.at, event: (row.event ?? "event").replaceAll("_", " ") }));
  return draw(container, {
    description: `${count(rows.length)} events between ${day(rows.at(-1).at)} and ${day(rows[0].at)}.`,
    height: 110,
    data: { values },
    mark: { type: "bar", tooltip: true },
    encoding: {
      x: { field: "at", timeUnit: "utcyearweek", type: "temporal", title: null, axis: { grid: false, format: "%b %Y", tickCount: 6, labelOverlap: true } },
      y: { aggregate: "count", type: "quantitative", title: "events a week", axis: { tickCount: 3, domain: false, tickMinStep: 1 } },
      color: { field: "event", type: "nominal", title: null },
    },
  });
}
