// One user: what they lean towards, what says so, what they did, and how broad they are.

import { busy, card, el, field, fill, nothing, problem, table } from "/dom.js";
import { explain } from "/explain.js";
import { regions } from "/user/regions.js";
import { timeline } from "/user/timeline.js";
import { share } from "/words.js";

const PAGE = 200;

export async function show(root, params, app) {
  const input = el("input", { type: "text", value: params.id ?? "", required: true, maxlength: 200, autocomplete: "off", spellcheck: "false", placeholder: "as in your interactions" });
  const look = el("form", { class: "row level", onsubmit: (event) => { event.preventDefault(); app.go({ id: input.value.trim() }); } }, field("User id", input), el("button", { type: "submit" }, "Look up"));
  const container = el("div", {});
  fill(root, el("h1", {}, params.id ? `User ${params.id}` : "User"), el("p", { class: "lead" }, "What one person leans towards, and which of their purchases say so."), look, container);
  if (!params.id) {
    input.focus();
    return fill(container, nothing("Whom would you like to look at?", "Type the id of a user as it is in your data. The samples of an audience lead here too."));
  }
  fill(container, busy("Ranking all interests …"));
  const path = `/v1/users/${encodeURIComponent(params.id)}`;
  const diverse = params.view === "diverse";
  try {
    const [list, spread, history] = await Promise.all([
      app.api.get(`${path}/interests`, { query: { k: 15, diverse_regions: diverse } }),
      app.api.get(`${path}/regions`, { query: { k: 50 } }),
      app.api.get(`${path}/history`, { query: { limit: PAGE } }),
    ]);
    if (root.isConnected) await present(container, params, app, { list, spread, history, diverse });
  } catch (error) {
    if (error.status !== 404) throw error;
    fill(container, problem(error));
    input.select();
  }
}

async function present(container, params, app, { list, spread, history, diverse }) {
  const why = el("div", { class: "why", "aria-live": "polite" });
  const explainPair = (interest) => {
    app.note({ ...params, why: interest });
    return explain(why, app, params.id, interest);
  };
  const view = el("div", { class: "choice", role: "group", "aria-label": "Which interests" }, [["", "Most likely"], ["diverse", "Of different regions"]].map(([value, text]) =>
    el("label", {}, el("input", { type: "radio", name: "view", value, checked: diverse === Boolean(value), onchange: () => app.go({ id: params.id, view: value }) }), text)));
  const largest = Math.max(...list.items.map((row) => row.probability), 1e-12);
  const likely = table(
    "The chance that the next purchase carries it",
    [["", true], ["Interest", false], ["Probability", true], ["", false], ["", false]],
    list.items.map((row) => [
      String(row.rank),
      el("span", {}, el("a", { href: `#/audience?i=${encodeURIComponent(row.interest)}` }, row.interest), row.vertical ? el("small", { class: "under" }, row.vertical) : null),
      share(row.probability),
      el("span", { class: "meter", "aria-hidden": "true", vars: { "--share": row.probability / largest } }),
      el("button", { type: "button", class: "plain", "aria-label": `Why ${row.interest}?`, onclick: () => explainPair(row.interest) }, "Why?"),
    ]),
  );
  const broad = regions(spread), past = timeline(app, params.id, history);
  fill(
    container,
    el(
      "div", { class: "columns even" },
      el("div", {}, card("Interests", view, likely), card("Evidence", why)),
      el("div", {}, card("How broad", broad.root), card(`History, ${history.total} events`, past.root)),
    ),
  );
  if (params.why) explainPair(params.why);
  else fill(why, nothing("Why?", "Ask it beside an interest: the history is read again without each item, and what changes is shown here."));
  await Promise.all([broad.draw(), past.draw()]);
}
