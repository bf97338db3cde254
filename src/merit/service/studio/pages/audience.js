// Find, size, understand and send an audience. Everything asked for is in the address; every count is the service's own.

import { histogram } from "/audience/histogram.js";
import { saving } from "/audience/jobs.js";
import { members } from "/audience/members.js";
import { lacking, params as addressOf, read, request, wanting } from "/audience/request.js";
import { notes, overIndexed, tiles, waterfall } from "/audience/results.js";
import { rules } from "/audience/rules.js";
import { slider } from "/audience/slider.js";
import { windowed } from "/audience/window.js";
import { combobox } from "/combobox.js";
import { busy, card, el, field, fill, nothing, problem } from "/dom.js";
import { count } from "/words.js";

const BLOCKED = "Blocked by the policy"; // the title of such a refusal
const PAUSE = 160; // milliseconds of rest before the service is asked again
const COMBINE = [["any", "any of them"], ["all", "all of them"], ["weighted", "weighted"]];
const CUTS = [["probability", "Probability"], ["count", "Size"], ["percentile", "Percentile"], ["value", "Value"], ["budget", "Budget"]];

export async function show(root, params, app) {
  if (!app.can("audience")) {
    return fill(root, el("h1", {}, "Audience"), nothing("This key sees no audiences", "The scope audience is needed: merit keys create NAME --scope read --scope audience. Users and the model can be looked at without it."));
  }
  const [model, tables] = await Promise.all([app.api.get("/v1/model"), app.api.get("/v1/tables")]);
  const state = read(params, model.users);
  const resolved = new Map(); // phrase → what it means to the model
  let last = null, asking = null, timer = 0;

  const wanted = el("ul", { class: "wanted" }), notice = el("div", {});
  const combine = choice("How they go together", "combine", COMBINE, () => state.combine, (value) => { state.combine = value; showWanted(); changed(); });
  const cut = choice("Cut by", "by", CUTS, () => state.by, (value) => { state.by = value; showCut(); changed(); });
  const cutting = el("div", { class: "row" });
  const results = el("div", { class: "found" }), chart = el("div", { class: "histogram" }), after = el("div", {});
  const handles = slider((moved) => {
    Object.assign(state, moved, { by: "probability" });
    showCut();
    changed();
  });

  const find = async (typed, signal, phrases = true) => {
    const page = await app.api.get("/v1/labels", { query: { q: typed, limit: 8 }, signal });
    const rows = page.items.map((row) => ({ text: row.text, note: row.vertical, value: { text: row.text } }));
    const exact = rows.some((row) => row.text.toLowerCase() === typed.toLowerCase());
    return phrases && !exact ? [...rows, { text: `“${typed}”`, note: "take these words as they are", value: { text: typed, phrase: true } }] : rows;
  };
  const search = combobox({
    label: "An interest", placeholder: "Type a few letters, or any phrase", find, choose: take, says: app.announce,
    hint: "Choose one the model knows, or describe your own.",
  });
  const save = saving(app, () => (last ? request(state) : null));

  /** What a text means is asked before it is taken: a blocked one is refused here, with its reason. */
  async function take({ text }) {
    fill(notice);
    if (state.interests.some((interest) => interest.text.toLowerCase() === text.toLowerCase())) return;
    try {
      fill(notice, busy(`What does “${text}” mean to the model?`));
      resolved.set(text, await app.api.post("/v1/interest", { text }));
      fill(notice);
    } catch (error) {
      if (error.status === 401) return;
      app.announce(`${error.title}. ${error.detail}`);
      fill(notice, error.title === BLOCKED ? refusal(error) : problem(error));
      return;
    }
    state.interests.push({ text, weight: 1 });
    app.announce(`${text} added.`);
    showWanted();
    changed();
  }

  function showWanted() {
    const weighted = state.combine === "weighted" && state.interests.length > 1;
    combine.root.hidden = state.interests.length < 2;
    fill(wanted, state.interests.map((interest, index) => {
      const query = resolved.get(interest.text);
      const phrase = query && query.label === null;
      return el(
        "li", { class: query?.far ? "far" : null },
        el("span", { class: "text" }, interest.text),
        weighted ? el("input", { type: "number", min: 0.1, max: 100, step: 0.1, value: interest.weight, "aria-label": `Weight of ${interest.text}`, oninput: (event) => { interest.weight = Number(event.target.value) || 1; changed(); } }) : null,
        el("button", { type: "button", class: "plain", "aria-label": `Remove ${interest.text}`, onclick: () => { state.interests.splice(index, 1); showWanted(); search.input.focus(); changed(); } }, "✕"),
        phrase ? el("small", {}, `Your own words${named(query.products)}. Nearest interest: ${query.nearest}, similarity ${query.similarity.toFixed(2)}.`) : null,
        query?.warning ? el("small", { class: "warning" }, query.warning) : null,
      );
    }));
  }

  function showCut() {
    cut.set(state.by);
    const number = (name, label, props, hint) => {
      const input = el("input", { type: "number", step: "any", value: state[name] ?? "", ...props, oninput: () => { state[name] = input.value === "" ? null : Number(input.value); changed(); } });
      return field(label, input, hint);
    };
    const money = [number("cost", "Cost of a contact", { min: 0 }), number("value", "Value of a conversion", { min: 0 }), number("caused", "Caused by the contact (0 to 1)", { min: 0.01, max: 1, placeholder: "1" }, "Only an experiment knows it.")];
    const forms = {
      probability: () => [percent("at_least", "At least (%)"), percent("at_most", "At most (%)")],
      count: () => [number("users", "Users", { min: 100, step: 1 })],
      percentile: () => [number("percent", "Best percent of the eligible", { min: 0.01, max: 100 })],
      value: () => money,
      budget: () => [number("budget", "Budget", { min: 1 }), ...money],
    };
    const percent = (name, label) => {
      const input = el("input", { type: "number", step: "any", min: 0, max: 100, value: state[name] === null ? "" : Number((100 * state[name]).toPrecision(3)), oninput: () => { state[name] = Number(input.value) > 0 ? Math.min(1, Number(input.value) / 100) : null; changed(); } });
      return field(label, input);
    };
    if (state.by === "count") state.users ??= last?.members ?? 100;
    if (!cutting.contains(document.activeElement)) fill(cutting, forms[state.by]());
  }

  function changed() {
    app.note(addressOf(state));
    clearTimeout(timer);
    timer = setTimeout(preview, PAUSE);
    results.classList.add("stale");
  }

  async function preview() {
    asking?.abort();
    if (!wanting(state)) return empty();
    asking = new AbortController();
    const { signal } = asking;
    if (lacking(state)) {
      waitFor(lacking(state));
      if (!chart.hasChildNodes()) await background(signal);
      return;
    }
    try {
      last = await app.api.post("/v1/audience/preview", request(state), { signal });
      if (root.isConnected) showFound();
    } catch (error) {
      if (error.name === "AbortError" || error.status === 401 || !root.isConnected) return;
      last = null;
      save.save.disabled = true;
      results.classList.remove("stale");
      fill(results, error.title === BLOCKED ? refusal(error) : problem(error));
      app.announce(`${error.title}. ${error.detail}`);
      if (!chart.hasChildNodes()) await background(signal);
    }
  }

  /** The histogram of everybody eligible, so that a cut that leaves too few can be eased by hand. */
  async function background(signal) {
    try {
      const whole = await app.api.post("/v1/audience/preview", { ...request(state), size: { by: "percentile", percent: 100 } }, { signal });
      sizing.hidden = false;
      handles.set(state.at_least, state.at_most);
      await histogram(chart, whole.eligible_histogram, state.at_least ?? 0, state.at_most);
    } catch {
      sizing.hidden = true; // there is nothing to draw: the message above says why
    }
  }

  function showFound() {
    for (const interest of last.interests) {
      resolved.set(interest.text, { ...resolved.get(interest.text), text: interest.text, label: interest.label < 0 ? null : interest.label, nearest: interest.nearest, similarity: interest.similarity, far: interest.far });
    }
    showWanted();
    save.save.disabled = false;
    sizing.hidden = below.hidden = false;
    results.classList.remove("stale");
    fill(results, tiles(last), notes(last));
    const most = state.by === "probability" ? state.at_most : null;
    const least = state.by === "probability" ? state.at_least : last.lowest;
    if (state.by !== "probability") handles.set(least, most);
    histogram(chart, last.eligible_histogram, least ?? 0, most).catch((error) => fill(chart, problem(error)));
    fill(after, el("div", { class: "halves" }, card("How it comes about", waterfall(last)), card("What else they like", overIndexed(last, (text) => take({ text })))));
    app.announce(last.sentence);
  }

  /** A cut by money that has not been told the money yet: no mistake, so nothing is asked and nothing is red. */
  function waitFor(what) {
    last = null;
    save.save.disabled = below.hidden = true;
    results.classList.remove("stale");
    fill(after);
    fill(results, nothing(`Fill in ${what}`, "The audience is cut where a contact costs what it brings, or where the budget ends."));
  }

  function empty() {
    last = null;
    sizing.hidden = below.hidden = true;
    save.save.disabled = true;
    results.classList.remove("stale");
    fill(after);
    fill(results, nothing("Whom would you like to reach?", `Name an interest, such as one of these, and see at once how many of ${count(model.users)} users lean towards it.`, suggestions));
  }

  const suggestions = el("p", { class: "suggestions" });
  const hold = (name, label, hint) => {
    const input = el("input", { type: "number", min: 0, max: 50, step: "any", placeholder: "0", value: state[name] ?? "", oninput: () => { state[name] = Number(input.value) || null; changed(); } });
    return field(label, input, hint);
  };
  const name = el("input", { type: "text", maxlength: 200, value: state.name, placeholder: "Spring campaign", oninput: () => { state.name = name.value; changed(); } });
  const sizing = card("How likely must they be?", chart, handles.root, cut.root, cutting);
  const below = el("div", {}, card("Some of these users", members(app, () => request(state))));

  fill(
    root,
    el("h1", {}, "Audience"),
    el("p", { class: "lead" }, "Users who lean towards an interest, who may be addressed, and what to expect of them."),
    el(
      "div", { class: "columns" },
      el(
        "div", {},
        card("What do they want?", search.root, notice, wanted, combine.root),
        card("When?", windowed(state, tables, changed)),
        card("Who may be addressed?", rules(state, tables, app, find, changed)),
      ),
      el("div", { class: "right" }, results, sizing, after, below),
      el(
        "div", { class: "last" },
        card("Save and send", field("Name", name), el("div", { class: "row" }, hold("holdout", "Holdout (%)", "Whom no campaign addresses."), hold("control", "Control (%)", "Left out of this one, to tell what it brought.")), save.root),
      ),
    ),
  );
  showWanted();
  showCut();
  handles.set(state.at_least, state.at_most);
  if (wanting(state)) {
    sizing.hidden = below.hidden = true;
    fill(results, busy("Scoring everybody …"));
    await preview();
  } else {
    empty();
    const some = await app.api.get("/v1/labels", { query: { limit: 6 } });
    fill(suggestions, some.items.map((row) => el("button", { type: "button", onclick: () => take({ text: row.text }) }, row.text)));
  }
}

/** A refusal is no error of the person who asked: it says what is protected, and how to go on. */
function refusal(error) {
  const few = error.detail.startsWith("Fewer than");
  return el(
    "div", { class: "note blocked" },
    el("strong", {}, few ? "Too few to be an audience" : "This is not used to choose people"),
    el("p", {}, error.detail),
    el("p", {}, few ? error.remedy : "Some interests would tell more about a person than they told a shop, or belong to goods with laws of their own. They are in no list, however they are worded. Choose another one."),
  );
}

function choice(label, name, options, current, chosen) {
  const inputs = options.map(([value, text]) => [el("input", { type: "radio", name, value, checked: value === current(), onchange: () => chosen(value) }), text]);
  const root = el("fieldset", {}, el("legend", {}, label), el("div", { class: "choice" }, inputs.map(([input, text]) => el("label", {}, input, text))));
  return { root, set: (value) => inputs.forEach(([input]) => (input.checked = input.value === value)) };
}

/** How many products have a phrase in their titles, where that is known. */
function named(products) {
  if (products === undefined) return "";
  return products ? `, in the titles of ${count(products)} product${products === 1 ? "" : "s"}` : ", which no title has";
}
