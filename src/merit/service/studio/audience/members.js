// Some of those who would be contacted, and why: for keys that may see users.

import { busy, el, fill, problem, table } from "/dom.js";
import { explain } from "/explain.js";
import { share } from "/words.js";

/** `currentRequest()` gives the request of the audience as it now is. */
export function members(app, currentRequest) {
  if (!app.can("export")) {
    return el("p", { class: "soft" }, "This key may not see users. One with the scope export shows some of them here, with the purchases that speak for them.");
  }
  const container = el("div", {}), why = el("div", { "aria-live": "polite" });
  const button = el("button", { type: "button", onclick: show }, "Show some of them");

  async function show() {
    fill(why);
    fill(container, busy());
    try {
      const request = currentRequest();
      const response = await app.api.post("/v1/audience/sample?k=6", request);
      const name = request.interests[0].text;
      fill(
        container,
        table(
          "Evenly over the ranks: the best, the last and some between",
          [["Rank", true], ["User", false], ["Score", true], ["", false]],
          response.items.map((row) => [
            String(row.rank), el("a", { href: `#/user/${encodeURIComponent(row.user_id)}` }, row.user_id), share(row.score),
            el("button", { type: "button", class: "plain", "aria-label": `Why user ${row.user_id}?`, onclick: () => explain(why, app, row.user_id, best(row, name)) }, "Why?"),
          ]),
        ),
      );
      app.announce(`${response.items.length} users are shown.`);
    } catch (error) {
      if (error.status !== 401) fill(container, problem(error));
    }
  }
  return el("div", {}, el("p", {}, button), container, why);
}

/** Of several interests, the one that speaks loudest for this user. */
const best = (row, fallback) => row.interests.toSorted((one, two) => two.probability - one.probability)[0]?.interest ?? fallback;
