"""The walk from a raw event to an exported audience, as docs/architecture.md tells it, is the one that is taken."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from benchmarks import walk

PAGE = Path(__file__).parents[2] / "docs/architecture.md"
NAMES = [name for functions in walk.WALK.values() for name in functions]


def test_the_page_has_the_walk() -> None:
    text = PAGE.read_text(encoding="utf-8")
    begin, end = "<!-- walk: begin -->\n", "\n<!-- walk: end -->"
    assert text[text.index(begin) + len(begin) : text.index(end)] == walk.table().rstrip("\n")


@pytest.mark.parametrize("name", NAMES)
def test_every_function_exists(name: str) -> None:
    module, _, function = name.partition(":")
    place: object = import_module(f"merit.{module.replace('/', '.')}")
    for part in function.split("."):
        place = getattr(place, part)
    assert callable(place)


@pytest.mark.slow
def test_a_run_and_an_export_take_it(tmp_path: Path) -> None:
    path, missing = walk.hops(trace := walk.follow(tmp_path))
    assert not missing
    assert not walk.disordered(trace)
    assert [hop.name for hop in path if hop.gives] == NAMES
    assert all(hop.read for hop in path if hop.gives)


def test_a_reader_passes_over_what_is_handed_the_next_function() -> None:
    names = {
        "a:train": {"descend", "_gradients"},
        "b:descend": {"gradients"},
        "a:_gradients": {"loss"},
        "a:main": {"train"},
    }
    stack = ["a:_gradients", "b:descend", "a:train", "a:main"]
    assert list(walk.naming("c:loss", stack, names)) == ["a:_gradients", "a:train", "a:main"]
    assert list(walk.naming("c:chosen_from_a_table", stack, names)) == ["a:_gradients", "a:train", "a:main"]
