// Numbers as the reports write them.

const plain = new Intl.NumberFormat("en-GB", { maximumFractionDigits: 0 });

/** 1234567 → 1,234,567 */
export const count = (value) => plain.format(value);

/** Three figures: interests are rare, and none of them is impossible. 0.0314 → 3.14 % */
export function share(value) {
  if (value > 0 && value < 1e-5) return "<0.001 %";
  return `${Number((100 * value).toPrecision(3))} %`;
}

/** Whole from ten on, one decimal below. */
export const few = (value) => (value >= 10 ? count(value) : value.toFixed(1));

/** Sums of money keep their cents while they are small. */
export const money = (value) => (Math.abs(value) >= 100 ? count(value) : value.toFixed(2));

/** 2027-03-01T09:15:00+00:00 → 1 Mar 2027, 09:15 UTC */
export const moment = (value) =>
  `${new Date(value).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short", timeZone: "UTC" })} UTC`;

export const day = (value) => new Date(value).toLocaleDateString("en-GB", { dateStyle: "medium", timeZone: "UTC" });
