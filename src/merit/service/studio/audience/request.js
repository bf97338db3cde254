// One audience in three forms: the state of the page, its address, and the request that docs/audiences.md describes.

const NUMBERS = ["at_least", "at_most", "users", "percent", "budget", "cost", "value", "caused", "holdout", "control", "days"];
export const LEAST = 100; // the service names no audience of fewer users

/** The state a page begins with. */
export function read(params, users) {
  const state = {
    name: params.name ?? "",
    interests: [params.i ?? []].flat().map((text, index) => ({ text, weight: Number([params.w ?? []].flat()[index] ?? 1) || 1 })),
    combine: ["all", "weighted"].includes(params.combine) ? params.combine : "any",
    by: ["probability", "count", "percentile", "value", "budget"].includes(params.by) ? params.by : "percentile",
    rules: [params.rule ?? []].flat().map(rule).filter(Boolean),
    as_of: params.as_of ?? "",
    from: params.from ?? "",
    products: params.products ?? "",
    new_to: params.new_to ?? "",
  };
  for (const name of NUMBERS) {
    const value = Number(params[name]);
    state[name] = params[name] !== undefined && params[name] !== "" && Number.isFinite(value) ? value : null;
  }
  // A tenth of all; where that would be too few to be shown, as many as may be.
  state.percent ??= Math.min(100, Math.max(10, Math.ceil((100 * 1.2 * LEAST) / Math.max(1, users))));
  return state;
}

function rule(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** What the address says of it. */
export function params(state) {
  const weighted = state.combine === "weighted";
  const values = {
    i: state.interests.map((item) => item.text),
    w: weighted ? state.interests.map((item) => item.weight) : [],
    combine: state.combine === "any" ? "" : state.combine,
    by: state.by,
    rule: state.rules.map((item) => JSON.stringify(item)),
    as_of: state.as_of,
    from: state.from,
    products: state.products,
    new_to: state.new_to,
    name: state.name,
  };
  for (const name of NUMBERS) values[name] = state[name];
  return values;
}

const SIZES = {
  probability: ({ at_least, at_most }) => ({ at_least: at_least ?? 1e-9, ...(at_most === null ? {} : { at_most }) }),
  count: ({ users }) => ({ users: users ?? LEAST }),
  percentile: ({ percent }) => ({ percent }),
  budget: ({ budget }) => ({ budget: budget ?? 1 }),
  value: () => ({}),
};

/** What a cut still needs before the service can be asked, or null. */
export function lacking({ by, cost, value }) {
  if (by === "value" && !value) return "the value of a conversion";
  return by === "budget" && !cost ? "the cost of a contact" : null;
}

/** Whether there is something to look for. */
export const wanting = (state) => state.interests.length > 0 || Boolean(state.products && state.days);

/** What the service is asked. */
export function request(state) {
  const texts = state.interests.map((item) => item.text);
  const name = state.name.trim() || texts.join(" + ").slice(0, 200) || state.products || "Audience";
  const body = {
    name,
    interests: state.interests.map(({ text, weight }) => (state.combine === "weighted" ? { text, weight } : { text })),
    combine: state.combine,
    size: { by: state.by, ...SIZES[state.by](state) },
    rules: state.rules,
  };
  if (state.as_of) body.as_of = state.as_of;
  if (state.days) body.within = { days: state.days, ...(state.from ? { from: state.from } : {}) };
  if (state.days && state.products) body.products = [{ table: state.products }];
  if (state.days && state.new_to) body.new_to = state.new_to;
  if (state.cost !== null || state.value !== null) {
    body.economics = { cost_per_contact: state.cost ?? 0, value_per_conversion: state.value, caused: state.caused ?? 1 };
  }
  // The same users are held out of every campaign; the control is drawn anew for each name.
  if (state.holdout) body.holdout = { share: state.holdout / 100, salt: "studio-holdout" };
  if (state.control) body.control = { share: state.control / 100, salt: `control of ${name}` };
  return body;
}

/** The way back: the address of an audience that was built. */
export function paramsOf(body) {
  const { size, economics, holdout, control } = body;
  return {
    name: body.name,
    i: body.interests.map((item) => item.text),
    w: body.combine === "weighted" ? body.interests.map((item) => item.weight) : [],
    combine: body.combine,
    by: size.by,
    at_least: size.at_least, at_most: size.at_most, users: size.users, percent: size.percent, budget: size.budget,
    cost: economics?.cost_per_contact, value: economics?.value_per_conversion, caused: economics?.caused,
    holdout: holdout && 100 * holdout.share, control: control && 100 * control.share,
    rule: body.rules.map((item) => JSON.stringify(plain(item))),
    as_of: body.as_of,
    days: body.within?.days, from: body.within?.from, products: body.products?.[0]?.table, new_to: body.new_to,
  };
}

const plain = (item) => Object.fromEntries(Object.entries(item).filter(([, value]) => value !== null && value?.length !== 0));
