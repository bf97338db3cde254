// Which purchases say so: the probability again without each item, as /v1/explain tells it.

import { busy, el, fill, nothing, problem, table } from "/dom.js";
import { share } from "/words.js";

/** Explain one pair, and show the explanation in `container`. */
export async function explain(container, app, user, interest, k = 8) {
  fill(container, busy(`Reading the history again, without each item in turn. The first time takes some seconds …`));
  try {
    const response = await app.api.post("/v1/explain", { user_id: user, interest, k });
    const strong = response.items.filter((row) => row.effect > 0);
    const largest = Math.max(...strong.map((row) => row.effect), 1e-9);
    fill(
      container,
      strong.length
        ? table(
            `Why “${interest}”`,
            [["Without this item", false], ["times", true], ["the probability would be", true], ["so it weighs", false]],
            strong.map((row) => [
              row.title ?? row.item_id, String(row.times), share(row.probability),
              el("span", { class: "meter", role: "img", "aria-label": `${row.effect.toFixed(2)} log-odds`, vars: { "--share": row.effect / largest } }),
            ]),
          )
        : nothing("No single item speaks for it", "Leaving out any one of them does not lower the probability: it comes from the whole, or from what everybody buys."),
    );
    app.announce(`The explanation of ${interest} is shown.`);
  } catch (error) {
    if (error.status !== 401) fill(container, problem(error));
  }
}
