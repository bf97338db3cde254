"""Markdown from results: the whole document, or what stands between two marks of a file that has them."""

from __future__ import annotations

from collections.abc import Sequence

from merit.bench import words
from merit.bench.page import EXPLAINED, TITLES
from merit.bench.results import BenchResults
from merit.bench.tables import TABLES, parts
from merit.evaluation import tables

VERDICTS = "MERIT and the best other method by every figure, the difference in points with its 95 % interval:"
BEGIN, END = "<!-- merit bench: begin -->", "<!-- merit bench: end -->"


def document(found: Sequence[BenchResults]) -> str:
    """Everything: the verdict, the claims, and all tables of every data set."""
    lines = ["# Results", "", "Written by `merit bench CONFIG --markdown FILE` from the JSON files of the results.", ""]
    lines += [f"- {sentence}" for sentence in words.sentences(found)]
    lines += ["", VERDICTS, "", tables.markdown(words.verdicts(found))]
    for each in found:
        lines += ["", f"## {each.dataset}", "", _source(each), "", tables.markdown(words.claims(each))]
        for name in TABLES:
            shown = parts(name, each)
            if shown:
                lines += [f"### {TITLES[name]}: {each.dataset}", "", EXPLAINED[name], ""]
                lines += [part.markdown() for part in shown]
    return "\n".join(lines).rstrip() + "\n"


def inserted(document: str, old: str) -> str:
    """The document in place of what stands between the marks of an old one; alone where there are no marks."""
    before, begin, rest = old.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        return document
    return f"{before}{BEGIN}\n{document}{END}{after}"


def _source(each: BenchResults) -> str:
    seeds = max(map(len, each.seeds.values()), default=0)
    machine = ", ".join(f"{name} {value}" for name, value in each.machine.items())
    return (
        f"Commit {each.commit}, settings {each.config}, merit {each.version}, {each.date}; up to {seeds} seeds; "
        f"{each.seconds:g} s of training for every network; {machine}."
    )
