// The shell: which page the address names, the key, and what all pages share. The whole state of a view is in the hash,
// so that an address can be sent to a colleague; the key never is.

import * as api from "/api.js";
import { busy, el, field, fill, problem } from "/dom.js";
import { count } from "/words.js";

const PAGES = {
  audience: { title: "Audience", load: () => import("/pages/audience.js") },
  user: { title: "User", load: () => import("/pages/user.js") },
  model: { title: "Model", load: () => import("/pages/model.js") },
  experiments: { title: "Experiments", load: () => import("/pages/experiments.js") },
};
const HOME = "audience";
const main = document.getElementById("main");
let turn = 0; // the newest wish to show a page; older ones end unseen

/** "#/user/42?k=5&k=6" → { page: "user", id: "42", k: ["5", "6"] } */
export function read(hash) {
  const [, path = "", query = ""] = /^#\/?([^?]*)\??(.*)$/s.exec(hash) ?? [];
  const [page, ...rest] = path.split("/");
  const params = { page: page in PAGES ? page : HOME, id: decoded(rest.join("/")) };
  const words = new URLSearchParams(query);
  for (const name of new Set(words.keys())) {
    const values = words.getAll(name);
    params[name] = values.length > 1 ? values : values[0];
  }
  return params;
}

/** The way back. What is empty is left out. */
export function write({ page = HOME, id, ...query }) {
  const words = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const item of [value].flat()) if (item !== undefined && item !== null && item !== "") words.append(name, item);
  }
  return `#/${page}${id ? `/${encodeURIComponent(id)}` : ""}${words.size ? `?${words}` : ""}`;
}

const decoded = (text) => {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
};

const app = {
  api,
  /** { id, name, scopes } of the key in use. */
  key: null,
  can: (scope) => app.key.scopes.includes(scope),
  /** Show another view: params as `show` gets them; without `page`, the same page. */
  go(params) {
    const next = write({ page: read(location.hash).page, ...params });
    if (next === location.hash) show();
    else location.hash = next; // the browser keeps the view before for its back button
  },
  /** Only let the address say what is shown already. */
  note: (params) => history.replaceState(null, "", write({ page: read(location.hash).page, ...params })),
  /** For screen readers: what changed, in a sentence. */
  announce: (text) => (document.getElementById("said").textContent = text),
};

async function show() {
  const mine = ++turn;
  const params = read(location.hash);
  const { title, load } = PAGES[params.page];
  document.title = `${title} · merit Studio`;
  for (const link of document.querySelectorAll("#pages a")) {
    const current = link.getAttribute("href") === `#/${params.page}`;
    if (current) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const root = el("div", { class: `page ${params.page}` });
  fill(main, root);
  if (!api.key.get()) return ask(root);
  try {
    fill(root, busy());
    app.key ??= await whoAmI();
    const page = await load();
    if (mine !== turn) return;
    fill(root);
    await page.show(root, params, app);
  } catch (error) {
    if (mine !== turn || error.status === 401 || error.name === "AbortError") return;
    console.warn(error);
    fill(root, problem(error, el("button", { type: "button", onclick: show }, "Try again")));
  }
}

async function whoAmI() {
  const [key, model] = await Promise.all([api.get("/v1/key"), api.get("/v1/model")]);
  document.getElementById("leave").hidden = false;
  fill(
    document.getElementById("about"),
    `${model.name} · ${count(model.users)} users · ${count(model.labels.live)} interests · model ${model.version} · key “${key.name}”`,
  );
  return key;
}

/** The one form that asks who is there. */
function ask(root, refused) {
  const input = el("input", { type: "password", autocomplete: "off", spellcheck: "false", required: true, placeholder: "merit_…" });
  const send = (event) => {
    event.preventDefault();
    if (!input.value.trim()) return input.focus();
    api.key.keep(input.value);
    show();
  };
  fill(
    root,
    el(
      "form", { class: "card door", onsubmit: send },
      el("h1", {}, "Which key may I use?"),
      el("p", {}, "Studio asks this service in your name, so it needs an API key. It stays in this tab, is sent to this service only, and is gone when you close the tab."),
      refused ? el("p", { class: "note wrong", role: "alert" }, `${refused.detail} ${refused.status === 401 ? "Was it revoked, or did a letter get lost?" : refused.remedy}`) : null,
      field("API key", input, "Needed: the scope read. To size audiences: audience. To see and send users: export."),
      el("button", { type: "submit", class: "main" }, "Open Studio"),
      el("p", { class: "soft" }, "No key yet? Whoever runs the service makes one: ", el("code", {}, 'merit keys create "my name" --scope read --scope audience --scope export')),
    ),
  );
  input.focus();
}

function forget(refusal) {
  api.key.forget();
  app.key = null;
  document.getElementById("leave").hidden = true;
  fill(document.getElementById("about"));
  turn++;
  const root = el("div", { class: "page" });
  fill(main, root);
  ask(root, refusal);
}

/** `merit serve --demo` gives the key behind the #, which no browser sends; it leaves the address at once. */
function takeKey() {
  const given = /^#key=([^&]+)/.exec(location.hash);
  if (!given) return;
  api.key.keep(decoded(given[1]));
  app.key = null; // another key may do other things
  history.replaceState(null, "", write({}));
}

document.getElementById("leave").addEventListener("click", () => forget());
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
document.addEventListener("merit:stranger", (event) => forget(event.detail));
window.addEventListener("hashchange", () => {
  takeKey();
  show();
});
takeKey();
show();
