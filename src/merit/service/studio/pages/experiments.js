// Experiments: agree on a design before launch; analyse the outcomes after it. Nothing is kept on the service.

import { el, fill } from "/dom.js";
import { views } from "/parts.js";
import { design } from "/experiments/design.js";
import { analysis } from "/experiments/analysis.js";

const VIEWS = {
  design: { title: "1 · Design", show: design },
  analyse: { title: "2 · Analyse", show: analysis },
};
const kept = { design: null }; // handed from the first view to the second, as long as this tab is open

export async function show(root, params, app) {
  const view = VIEWS[params.id] ? params.id : "design";
  const container = el("div");
  fill(
    root,
    el("h1", {}, "Experiments"),
    el("p", { class: "lead" }, "Did the campaign bring anything, and is that sure enough to do it again? Agree on a design before launch, analyse the outcomes when its days are over."),
    views("Steps of an experiment", "experiments", VIEWS, view),
    container,
  );
  await VIEWS[view].show(container, params, app, kept);
}
