// Two handles over probabilities, on a scale of powers of ten: interests are rare, and most users lie far to the left.
// Each handle is a slider of its own to a screen reader; arrows, page keys, Home and End move it.

import { el } from "/dom.js";
import { share } from "/words.js";

export const LOWEST = -4, HIGHEST = 0; // powers of ten; what is less likely counts at the left end
const STEPS = { ArrowLeft: -0.05, ArrowDown: -0.05, ArrowRight: 0.05, ArrowUp: 0.05, PageDown: -0.25, PageUp: 0.25 };
const APART = 0.02; // powers of ten between the handles

/** `moved({ at_least, at_most })` is called while a handle moves; null stands for an end of the scale. */
export function slider(moved) {
  const handles = ["least", "most"].map((name) =>
    el("div", {
      class: `handle ${name}`, role: "slider", tabindex: 0, "aria-label": name === "least" ? "At least this likely" : "At most this likely",
      "aria-valuemin": 0, "aria-valuemax": 100,
    }),
  );
  const track = el("div", { class: "track" }, el("div", { class: "within" }), handles);
  const positions = [LOWEST, HIGHEST];

  function moveTo(which, power) {
    const [low, high] = which ? [positions[0] + APART, HIGHEST] : [LOWEST, positions[1] - APART];
    positions[which] = Math.min(high, Math.max(low, power));
    paint();
  }

  function paint() {
    handles[0].classList.toggle("front", positions[0] > (LOWEST + HIGHEST) / 2); // where both meet, the one that can move
    positions.forEach((power, which) => {
      track.style.setProperty(which ? "--most" : "--least", (power - LOWEST) / (HIGHEST - LOWEST));
      const value = 10 ** power;
      handles[which].setAttribute("aria-valuenow", (100 * value).toPrecision(3));
      const end = which ? power >= HIGHEST : power <= LOWEST;
      handles[which].setAttribute("aria-valuetext", end ? (which ? "no upper end" : "everybody") : share(rounded(power)));
    });
  }

  const notify = () =>
    moved({
      at_least: positions[0] <= LOWEST ? null : rounded(positions[0]),
      at_most: positions[1] >= HIGHEST ? null : rounded(positions[1]),
    });

  handles.forEach((handle, which) => {
    handle.addEventListener("keydown", (event) => {
      const ends = { Home: LOWEST, End: HIGHEST };
      if (!(event.key in STEPS) && !(event.key in ends)) return;
      event.preventDefault();
      moveTo(which, event.key in ends ? ends[event.key] : positions[which] + STEPS[event.key]);
      notify();
    });
    handle.addEventListener("pointerdown", (event) => {
      event.preventDefault();
      handle.focus();
      handle.setPointerCapture(event.pointerId);
    });
    handle.addEventListener("pointermove", (event) => {
      if (!handle.hasPointerCapture(event.pointerId)) return;
      const box = track.getBoundingClientRect();
      moveTo(which, LOWEST + ((event.clientX - box.left) / box.width) * (HIGHEST - LOWEST));
      notify();
    });
  });

  /** Where the cut is, however it was asked for. */
  function set(least, most) {
    positions[0] = least ? Math.min(HIGHEST - APART, Math.max(LOWEST, Math.log10(least))) : LOWEST;
    positions[1] = most ? Math.max(positions[0] + APART, Math.min(HIGHEST, Math.log10(most))) : HIGHEST;
    paint();
  }
  paint();
  return { root: el("div", { class: "slider" }, track), set };
}

const rounded = (power) => Number((10 ** power).toPrecision(3));
