// Markdown as elements: headings, paragraphs, lists, tables, code. What it does not know stays text, and nothing is HTML.

import { el } from "/dom.js";

const HEADING = /^(#{1,6}) +(.*)$/;
const BULLET = /^ *(?:[-*+]|\d+\.) +(.*)$/;
const RULER = /^ *\|? *:?-+:? *(\| *:?-+:? *)*\|? *$/;
const INLINE = /(\\[!-\/:-@[-`{-~])|(`[^`]+`)|(\*\*[^*]+\*\*)|(\*[^*\s][^*]*\*)|(\[[^\]]+\]\([^)\s]+\))/;

/** The text as a list of elements; its first heading gets the level that is asked for. */
export function markdown(text, level = 1) {
  const lines = text.replaceAll("\r\n", "\n").split("\n");
  const made = [];
  let at = 0;
  const taken = (test) => {
    const begun = at;
    while (at < lines.length && test(lines[at], at)) at++;
    return lines.slice(begun, at);
  };
  while (at < lines.length) {
    const line = lines[at];
    if (!line.trim()) at++;
    else if (line.startsWith("```")) {
      at++;
      const code = taken((line) => !line.startsWith("```"));
      at++;
      made.push(el("pre", {}, el("code", {}, code.join("\n"))));
    } else if (HEADING.test(line)) {
      const [, marks, words] = HEADING.exec(line);
      at++;
      made.push(el(`h${Math.min(6, marks.length + level - 1)}`, {}, inline(words)));
    } else if (BULLET.test(line)) {
      const ordered = /^ *\d/.test(line);
      const items = [];
      for (const line of taken((next) => BULLET.test(next) || /^ {2,}\S/.test(next))) {
        const item = BULLET.exec(line);
        if (item) items.push(item[1]);
        else items[items.length - 1] += ` ${line.trim()}`;
      }
      made.push(el(ordered ? "ol" : "ul", {}, items.map((item) => el("li", {}, inline(item)))));
    } else if (line.includes("|") && RULER.test(lines[at + 1] ?? "")) {
      made.push(tabled(taken((line) => line.includes("|"))));
    } else {
      const words = taken((line, index) => line.trim() && (index === at || !begins(line)));
      made.push(el("p", {}, inline(words.join(" "))));
    }
  }
  return made;
}

const begins = (line) => line.startsWith("```") || HEADING.test(line) || BULLET.test(line);

function tabled([head, ruler, ...rows]) {
  const right = cells(ruler).map((mark) => mark.endsWith(":"));
  const row = (tag) => (line) =>
    el("tr", {}, cells(line).map((text, index) => el(tag, { class: right[index] ? "figure" : null }, inline(text))));
  return el(
    "div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Table" },
    el("table", {}, el("thead", {}, row("th")(head)), el("tbody", {}, rows.map(row("td")))),
  );
}

const cells = (line) =>
  line.trim().replace(/^\||\|$/g, "").split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));

/** Code, strong, emphasis; of a link only the words, so that no page leads elsewhere unasked. */
function inline(text) {
  const match = INLINE.exec(text);
  if (!match) return text ? [text] : [];
  const [all, escaped, code, strong, emphasis, link] = match;
  const made = escaped
    ? escaped[1]
    : code
    ? el("code", {}, code.slice(1, -1))
    : strong
      ? el("strong", {}, inline(strong.slice(2, -2)))
      : emphasis
        ? el("em", {}, inline(emphasis.slice(1, -1)))
        : link.slice(1, link.indexOf("]"));
  return [...inline(text.slice(0, match.index)), made, ...inline(text.slice(match.index + all.length))];
}
