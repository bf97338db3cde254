// The service's own API, with the key that this tab was given. Nobody else is ever asked.

const KEPT = "merit.key"; // in sessionStorage: gone with the tab, and never sent by the browser itself

export const key = {
  get: () => sessionStorage.getItem(KEPT),
  keep: (given) => sessionStorage.setItem(KEPT, given.trim()),
  forget: () => sessionStorage.removeItem(KEPT),
};

/** A refusal of the service, as problem+json tells it. */
export class Problem extends Error {
  constructor({ title, detail, remedy, status, request_id, errors }) {
    super(detail);
    Object.assign(this, { title, detail, remedy, status, request: request_id, errors: errors ?? [] });
  }
}

const SILENT = {
  title: "The service does not answer",
  detail: "It may have been stopped, or the connection is lost. Nothing was changed.",
  remedy: "See whether `merit serve` still runs, then try again.",
  status: 0,
};

async function answer(method, path, { query, body, signal, headers } = {}) {
  const words = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value !== undefined && value !== null && value !== "") words.append(name, value);
  }
  const form = body instanceof FormData;
  const used = key.get();
  const sent = { Accept: "application/json, */*", Authorization: `Bearer ${used ?? ""}`, ...headers };
  if (body !== undefined && !form) sent["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(words.size ? `${path}?${words}` : path, {
      method, headers: sent, signal, body: form || body === undefined ? body : JSON.stringify(body),
    });
  } catch (error) {
    throw error.name === "AbortError" ? error : new Problem(SILENT);
  }
  if (!response.ok) {
    const refusal = await response.json().catch(() => ({ ...SILENT, title: `Answer ${response.status}` }));
    // A late refusal of a key that is no longer in use must not throw away the one that is.
    if (response.status === 401 && used === key.get()) document.dispatchEvent(new CustomEvent("merit:stranger", { detail: refusal }));
    throw new Problem({ status: response.status, ...refusal });
  }
  return response;
}

const json = async (...request) => (await answer(...request)).json();

/** get("/v1/labels", { query: { q: "ga" }, signal }) → what the JSON says; a Problem where it is refused. */
export const get = (path, options) => json("GET", path, options);

/** post("/v1/interest", { text }) */
export const post = (path, body, options) => json("POST", path, { ...options, body });

/** A file of the service, kept under a name. A link could not carry the key. */
export async function download(path, query, name) {
  const response = await answer("GET", path, { query });
  const url = URL.createObjectURL(await response.blob());
  const link = Object.assign(document.createElement("a"), { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
