// The lift report: the decision first, then what stands against it, then the figures. As `merit experiment analyze` has it.

import { card, el, fill, nothing, table } from "/dom.js";
import { PALETTE, draw } from "/charts.js";
import { count, day, few } from "/words.js";
import { figure, save, signed, sure, tile } from "/parts.js";

const VERDICTS = { ship: "Ship", keep: "Do not ship", blocked: "No decision" };
const LEVELS = { block: "blocks the decision", warn: "to keep in mind" };
const SMALLEST = 50; // users of an arm or a segment, below which nothing is told
const POINTS = 241; // of a drawn density
const REACH = 3.6; // how far from its middle it is drawn, in standard deviations

export function report(root, analysis) {
  const compared = analysis.arms.filter(({ name }) => name === analysis.design.treatment || name === analysis.design.control);
  if (Math.min(...compared.map((arm) => arm.users)) < SMALLEST) {
    fill(root, nothing("Too few users", `An arm of this campaign has fewer than ${SMALLEST} users. No figure is shown.`));
    return;
  }
  const blocked = analysis.verdict === "blocked";
  const drawing = figure("What the lift may be", `The blue area is the probability that ${analysis.design.treatment} helps; the bar is the 95 % interval.`);
  const parts = [analysis.segments.length ? segments(analysis) : null, analysis.groups.length ? groups(analysis) : null];
  const figures = [drawing.whole, readings(analysis), losses(analysis)];
  const drawIt = () => density(drawing.container, analysis);
  fill(
    root,
    verdict(analysis),
    blocked ? null : tiles(analysis, compared),
    findings(analysis),
    card("Who was counted", arms(analysis), ratio(analysis)),
    blocked
      ? el(
          "details", { class: "card", ontoggle: (event) => event.target.open && drawIt() },
          el("summary", {}, "Figures, to find the fault"),
          el("p", { class: "note wrong" }, "The comparison is broken. These figures are no evidence for or against the campaign."),
          figures,
          parts,
        )
      : card("The lift", figures),
    analysis.balance.length ? covariates(analysis) : null,
    blocked ? null : parts,
    el("div", { class: "row" }, el("button", { type: "button", onclick: () => save("lift.json", `${JSON.stringify(analysis, null, 1)}\n`, "application/json") }, "Download the analysis")),
  );
  if (!blocked) drawIt();
}

const verdict = ({ verdict: word, sentence, design, until }) =>
  el(
    "section", { class: `verdict ${word}`, role: word === "blocked" ? "alert" : "status" },
    el("h2", {}, VERDICTS[word]),
    el("p", {}, sentence),
    el("small", {}, `${design.name}${until ? `, outcomes until ${day(until)}` : ""}`),
  );

const tiles = ({ posterior, design }, compared) =>
  el(
    "div", { class: "tiles" },
    tile("Lift", signed(posterior.lift), `95 %: ${signed(posterior.low)} to ${signed(posterior.high)}`),
    tile("P(lift > 0)", sure(posterior.above_zero), `${sure(design.threshold, 0)} was agreed`),
    tile(`P(lift > ${signed(design.minimum_effect)})`, sure(posterior.above_minimum), "the smallest worth having"),
    tile("Users compared", count(compared.reduce((sum, arm) => sum + arm.users, 0))),
  );

function findings({ findings: entries, verdict: word }) {
  if (!entries.length) return el("p", { class: "note" }, "Sample ratio, crossovers, window, balance and precision raised no objection.");
  const item = ({ level, what, message }) =>
    el("li", { class: level }, el("strong", {}, what[0].toUpperCase() + what.slice(1)), " ", el("span", { class: `status ${level}` }, LEVELS[level]), el("p", {}, message));
  return card(word === "blocked" ? "What stands in the way" : "What to know first", el("ul", { class: "findings" }, entries.map(item)));
}

// --- figures ---------------------------------------------------------------------------------------------------------

function arms({ arms: rows, design, adjusted_mean }) {
  const total = rows.reduce((sum, arm) => sum + arm.users, 0);
  const amount = (value) => (design.outcome.kind === "binary" ? `${(100 * value).toFixed(3)} %` : Number(value.toPrecision(5)).toString());
  const small = (arm) => arm.users < SMALLEST;
  const adjusted = (arm) => (arm.name === design.treatment ? amount(adjusted_mean) : arm.name === design.control ? amount(arm.mean) : "–");
  const planned = (arm) => `${Number((100 * design.arms[arm.name]).toPrecision(4))} %`;
  return table(
    "Arms",
    [["arm", false], ["users", true], ["planned", true], ["found", true], ["conversions", true], [design.outcome.kind === "binary" ? "rate" : "mean", true], ["adjusted", true]],
    rows.map((arm) => (small(arm)
      ? [arm.name, `<${SMALLEST}`, planned(arm), "–", "–", "–", "–"]
      : [arm.name, count(arm.users), planned(arm), `${((100 * arm.users) / total).toFixed(2)} %`, few(arm.conversions), amount(arm.mean), adjusted(arm)])),
  );
}

function ratio({ sample_ratio: luck }) {
  const broken = luck < 0.001;
  const often = luck < 1e-6 ? "less than one in a million" : sure(luck);
  return el(
    "p", { class: broken ? "note wrong" : luck < 0.01 ? "note care" : "soft", id: "ratio" },
    `Sample ratio: chance alone sets shares so far off in ${often} of tests. ${broken ? "That is below 0.1 %, so nothing is decided." : "Below 0.1 %, nothing would be decided."}`,
  );
}

function readings(analysis) {
  const row = (name, { lift, low, high, above_zero }) => [name, signed(lift), `${signed(low)} to ${signed(high)}`, sure(above_zero)];
  const steps = [["without covariates", analysis.plain]];
  if (analysis.design.covariates.length) steps.push(["with covariates", analysis.estimate]);
  if (analysis.design.prior.sd !== null) steps.push(["with the agreed prior", analysis.posterior]);
  const others = Object.entries(analysis.sensitivity).map(([prior, posterior]) => [`prior ${prior}`, posterior]);
  return table(
    "Step by step, and under other priors",
    [["", false], ["lift", true], ["95 % interval", true], ["P(lift > 0)", true]],
    [...steps, ...others].map(([name, reading]) => row(name, reading)),
  );
}

function losses({ loss_of_shipping, loss_of_keeping, design }) {
  return table(
    "Expected loss, in percent of the control",
    [["if we", false], ["we lose on average", true]],
    [[`ship ${design.treatment}`, sure(loss_of_shipping, 3)], [`stay with ${design.control}`, sure(loss_of_keeping, 3)]],
  );
}

const covariates = ({ balance, design, imbalance, variance_removed }) =>
  card(
    "Covariates",
    el("p", {}, `What was known before the campaign explains ${sure(variance_removed)} of the variance of the difference. Chance alone sets the arms so far apart in ${sure(imbalance)} of tests.`),
    table(
      "Before the campaign",
      [["covariate", false], [design.treatment, true], [design.control, true], ["apart, in sd", true]],
      balance.map((row) => [row.name, row.treatment.toPrecision(4), row.control.toPrecision(4), row.difference.toFixed(3).replace("-", "−")]),
    ),
  );

const reading = (row) => (row ? [signed(row.lift), el("small", { class: "ends" }, `${signed(row.low)} to ${signed(row.high)}`)] : "–");

const segments = ({ segments: rows, design }) =>
  card(
    `By ${design.segment}`,
    el("p", {}, "Among many segments, one always looks best by chance. Pooled with the others, it does so less."),
    table(
      "Lift by segment",
      [["segment", false], ["users", true], ["alone", true], ["pooled", true]],
      rows.map((row) => (row.users < SMALLEST ? [row.name, `<${SMALLEST}`, "–", "–"] : [row.name, count(row.users), reading(row.alone), reading(row.pooled)])),
    ),
  );

const groups = ({ groups: rows }) =>
  card(
    "Rule against rule",
    el("p", {}, "Where both targeting rules agree, both arms were treated alike. The effect comes from the users on whom they differ."),
    table(
      "Whom the rules choose",
      [["users for whom", false], ["users", true], ["lift among them", true], ["worth to everybody", true]],
      rows.map((row) => (row.users < SMALLEST ? [row.name, `<${SMALLEST}`, "–", "–"] : [row.name, count(row.users), reading(row.lift), row.worth === null ? "–" : signed(row.worth)])),
    ),
  );

// --- the density -----------------------------------------------------------------------------------------------------

/** log(1 + lift) is Gaussian; the two sides of zero have a colour each. */
function density(container, { posterior, posterior_effect: mean, posterior_sd: sd }) {
  const ends = [-1, 1].map((side) => Math.expm1(mean + side * REACH * sd));
  const [low, high] = [Math.min(ends[0], 0), Math.max(ends[1], 0)];
  const height = (lift) => Math.exp(-(((Math.log1p(lift) - mean) / sd) ** 2) / 2) / (1 + lift);
  const lifts = Array.from({ length: POINTS }, (_, place_) => low + ((high - low) * place_) / (POINTS - 1));
  const top = Math.max(...lifts.map(height));
  const curve = (side) => [...lifts.filter(side), 0].sort((a, b) => a - b).map((lift) => ({ lift, density: height(lift) / top }));
  const x = { field: "lift", type: "quantitative", title: "relative lift", scale: { domain: [low, high], nice: false }, axis: { labelExpr: "datum.value ? format(datum.value, '+.3~p') : '0'", tickCount: 5, grid: false } };
  const y = { field: "density", type: "quantitative", axis: null, scale: { domain: [-0.12, 1.05] } };
  const area = (values, color) => ({ data: { values }, mark: { type: "area", color, opacity: 0.6 }, encoding: { x, y } });
  const bar = { data: { values: [{ lift: posterior.low, high: posterior.high, middle: posterior.lift, density: -0.06 }] } };
  draw(container, {
    height: 230,
    description: `The density of the lift around ${signed(posterior.lift)}, its 95 % interval from ${signed(posterior.low)} to ${signed(posterior.high)}; ${sure(posterior.above_zero)} of it lies above zero.`,
    layer: [
      area(curve((lift) => lift < 0), PALETTE[1]),
      area(curve((lift) => lift > 0), PALETTE[0]),
      { ...bar, mark: { type: "rule", strokeWidth: 3 }, encoding: { x, x2: { field: "high" }, y } },
      { ...bar, mark: { type: "point", size: 80, color: "currentColor", opacity: 1 }, encoding: { x: { ...x, field: "middle" }, y } },
      { data: { values: [{ lift: 0 }] }, mark: { type: "rule", strokeDash: [4, 3], opacity: 0.6 }, encoding: { x } },
    ],
  });
}
