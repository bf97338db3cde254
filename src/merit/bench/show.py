"""What a person asks of a benchmark: some tables of some methods on some data sets, a page, a document."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from merit.bench import markdown as markdown_file
from merit.bench import words
from merit.bench.config import BenchConfig, chosen, chosen_datasets
from merit.bench.figure import overview
from merit.bench.grid import BenchOutcome, bench
from merit.bench.page import bench_page
from merit.bench.results import BenchResults, read_all
from merit.bench.tables import NEEDED, TABLES, parts, table_named
from merit.core import console
from merit.core.files import storage_errors
from merit.evaluation import tables
from merit.report import charts, page

PAGE = "index.html"


def compare(
    config: BenchConfig,
    only: Sequence[str],
    datasets: Sequence[str],
    shown: Sequence[str],
    markdown: Path | None,
    figure: Path | None,
    from_results: bool,
) -> BenchOutcome:
    """Make what is missing, or with `from_results` nothing; write the page, and what else is asked for."""
    names, methods = chosen_datasets(config, datasets), _needed(config, only, shown)
    outcome = BenchOutcome(read_all(config.results, names)) if from_results else bench(config, names, methods)
    if outcome.results:
        _write(config.out / PAGE, page.render(bench_page(outcome.results)))
        if markdown:
            old = markdown.read_text(encoding="utf-8") if markdown.exists() else ""
            _write(markdown, markdown_file.inserted(markdown_file.document(outcome.results), old))
        if figure:
            _write(figure, charts.on_white(overview(outcome.results)))
        console.tell(f"Open {(config.out / PAGE).resolve().as_uri()} in a browser.")
    return outcome


def show(outcome: BenchOutcome, shown: Sequence[str]) -> None:
    """The verdict and the tables on the terminal."""
    for sentence in words.sentences(outcome.results) if outcome.results else []:
        console.stdout.print(sentence, markup=False)
    for results in outcome.results:
        for name in shown or TABLES:
            _show(name, results)
    for cell, told in outcome.failures.items():
        console.stdout.print(f"Failed: {cell}. {told}", markup=False)


def _show(name: str, results: BenchResults) -> None:
    for part in parts(name, results):
        tables.show(f"{results.dataset}: {part.title}", part.frame, part.bold)
        console.stdout.print(part.note, markup=False)


def _needed(config: BenchConfig, only: Sequence[str], shown: Sequence[str]) -> list[str]:
    """The methods to run: those asked for, or those that the tables asked for need; empty for all."""
    if only:
        return chosen(config, only)
    wanted = [NEEDED.get(table_named(name), ()) for name in shown]
    if not wanted or not all(wanted):
        return []
    begins = {word for words in wanted for word in words}
    return [name for name in config.seeds_of() if any(name.startswith(word) for word in begins)]


def _write(file: Path, text: str) -> None:
    with storage_errors(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
