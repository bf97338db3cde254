"""The pictures of docs/exposure-bias.md and docs/length-and-recall.md are those that scripts/pictures.py draws."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.docs.blocks import ROOT
from tests.docs.scripts import script


@pytest.fixture(scope="module")
def pictures() -> Any:
    return script("pictures")


@pytest.mark.slow
def test_they_are_drawn_from_the_shop_of_today(pictures: Any, tmp_path: Path) -> None:
    for name, picture in pictures.draw().items():
        picture.save(tmp_path / name)
        assert (tmp_path / name).read_text() == (pictures.IMAGES / name).read_text(), (
            "Run `python scripts/pictures.py`."
        )


@pytest.mark.slow
def test_the_table_of_exposure_bias_is_what_is_drawn(pictures: Any) -> None:
    planted = pictures.shop(pictures.PlantedConfig(users=pictures.USERS, cascade=0.9), seed=7)
    ways, bought = pictures.said(planted)
    page = (ROOT / "docs/exposure-bias.md").read_text(encoding="utf-8")
    assert f"| {len(bought)} users" in page
    for way, lists in ways.items():
        told = [f"{pictures.regions_covered(lists, planted):.2f}"]
        told += [f"{100 * pictures.recall(lists, bought, budget):.1f}" for budget in (5, 10, 20)]
        row = re.search(rf"^\| {pictures.NAMES[way]} \| (.*) \|$", page, re.MULTILINE)
        assert row and row[1].split(" | ") == told
    walk, own = (pictures.recall(ways[way], bought, 10) for way in ("cascade", "own"))
    assert walk < own and pictures.regions_covered(ways["cascade"], planted) < 1.1
