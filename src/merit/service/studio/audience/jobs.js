// Saving: the service builds the audience as a job, keeps it, and gives it out as a file.

import { paramsOf } from "/audience/request.js";
import { busy, el, field, fill, nothing, problem, table } from "/dom.js";
import { count, moment } from "/words.js";

const EVERY = 500; // milliseconds between two looks at a job
const FORMS = ["csv", "parquet", "jsonl"];
const STATES = { PENDING: "waiting", RUNNING: "being built", DONE: "ready", FAILED: "failed" };

/** `currentRequest()` gives the request of the audience as it now is; null where there is none. */
export function saving(app, currentRequest) {
  const saved = el("div", { class: "jobs" }), notice = el("div", {});
  const arm = el("select", {}, [["treatment", "those to contact"], ["control", "the control"], ["holdout", "the holdout"], ["all", "all members, with their arm"]].map(([value, text]) => el("option", { value }, text)));
  const save = el("button", { type: "button", class: "main", onclick: start }, "Save this audience");

  async function start() {
    const request = currentRequest();
    if (!request) return;
    save.disabled = true;
    fill(notice, busy("Saving …"));
    try {
      let job = await app.api.post("/v1/audience/jobs", request, { headers: { "Idempotency-Key": crypto.randomUUID() } });
      list();
      while (["PENDING", "RUNNING"].includes(job.state) && saved.isConnected) {
        await new Promise((done) => setTimeout(done, EVERY));
        job = await app.api.get(`/v1/audience/jobs/${encodeURIComponent(job.id)}`);
      }
      const message = job.state === "DONE" ? `“${job.request.name}” is saved: ${count(job.members)} users.` : `“${job.request.name}” could not be built. ${job.reason}`;
      fill(notice, el("p", { class: job.state === "DONE" ? "note" : "note wrong" }, message));
      app.announce(message);
      list();
    } catch (error) {
      if (error.status !== 401) fill(notice, problem(error));
    } finally {
      save.disabled = false;
    }
  }

  async function send(job, form) {
    try {
      await app.api.download(`/v1/audience/jobs/${encodeURIComponent(job.id)}/export`, { form, arm: arm.value }, `${file(job.request.name)}.${form}`);
      app.announce(`${form} of “${job.request.name}” is downloaded.`);
    } catch (error) {
      if (error.status !== 401) fill(notice, problem(error));
    }
  }

  async function list() {
    const page = await app.api.get("/v1/audience/jobs", { query: { limit: 8 } });
    if (!page.items.length) return fill(saved, nothing("Nothing saved yet", "A saved audience is built by the service and waits here to be downloaded."));
    const exporting = app.can("export");
    fill(
      saved,
      table(
        "Saved with this key, the newest first",
        [["Audience", false], ["Users", true], ["State", false], [exporting ? "Download" : "", false]],
        page.items.map((job) => [
          el("span", {}, el("button", { type: "button", class: "link", title: "Open it here", onclick: () => app.go(paramsOf(job.request)) }, job.request.name), el("small", { class: "under" }, moment(job.created))),
          job.members === null ? "" : count(job.members),
          el("span", {}, STATES[job.state], job.reason ? el("small", { class: "under" }, job.reason) : null),
          exporting && job.state === "DONE" ? FORMS.map((form) => el("button", { type: "button", class: "plain", "aria-label": `Download ${job.request.name} as ${form}`, onclick: () => send(job, form) }, form)) : "",
        ]),
      ),
      exporting ? field("Download", arm, "CSV is safe to open in a spreadsheet; for programs take Parquet or JSONL.") : el("p", { class: "soft" }, "This key may not download users; one with the scope export may."),
    );
  }

  list().catch((error) => error.status !== 401 && fill(saved, problem(error)));
  return { root: el("div", {}, save, notice, saved), save };
}

const file = (name) => name.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "").slice(0, 60) || "audience";
