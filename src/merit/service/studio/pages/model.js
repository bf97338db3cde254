// Model: how good it is, whether its probabilities keep their word, which interests it knows, and its card.

import { el, fill } from "/dom.js";
import { count, moment } from "/words.js";
import { results } from "/model/results.js";
import { calibration } from "/model/calibration.js";
import { labels } from "/model/labels.js";
import { markdown } from "/markdown.js";
import { save, views } from "/parts.js";

const VIEWS = {
  results: { title: "Results", show: results },
  calibration: { title: "Calibration", show: calibration },
  labels: { title: "Labels", show: labels },
  card: { title: "Card", show: card },
};

export async function show(root, params, app) {
  const view = VIEWS[params.id] ? params.id : "results";
  const summary = el("p", { class: "lead" }, "…");
  const container = el("div");
  fill(
    root,
    el("h1", {}, "Model"),
    summary,
    views("Views of the model", "model", VIEWS, view),
    container,
  );
  const model = await app.api.get("/v1/model");
  fill(summary, `${count(model.users)} users, ${count(model.labels.live)} live interests in ${count(model.verticals.length)} verticals. Made ${moment(model.made)} by merit ${model.merit}.`);
  await VIEWS[view].show(container, params, app, model);
}

async function card(root, params, app) {
  const { markdown: text } = await app.api.get("/v1/model/card");
  const keep = () => save("model-card.md", text, "text/markdown");
  fill(
    root,
    el("section", { class: "card prose" }, markdown(text, 2), el("button", { type: "button", onclick: keep }, "Download the card")),
  );
}
