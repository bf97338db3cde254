"""Names of a shop in Markdown: whatever they hold, a reader sees just them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from merit.evaluation.calibration import Reliability
from merit.report.markdown import plain
from merit.retrieval import build

HOSTILE = [
    "<script>alert(1)</script>",
    "[click](javascript:alert(1))",
    "![x](https://example.org/pixel.png)",
    "a | b\n# heading",
    "**bold** `code` ~~gone~~ \\|",
    "&lt;b&gt; https://example.org www.example.org",
]
ORDINARY = ["Home & Garden", "T-shirts (men's)", "50% off!", "C#, C++", "50:50"]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_card_shows_names_and_reads_none(name: str) -> None:
    overall = Reliability(ece=0.01, ece_likely=0.01, brier=0.1, prevalence=0.1, pairs=9_000)
    told = build._weak_verticals(overall, pl.DataFrame({"vertical": [name], "ece": [0.5], "pairs": [9_000]}))
    assert plain(name) in told and not re.search(r"(?<!\\)(</?\w|\]\(|&lt;|`|\*\*)|\w://|www\.", told)


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_names_stay_as_they_are(name: str) -> None:
    assert plain(name) == name


@given(st.text())
def test_without_its_backslashes_it_is_the_text(text: str) -> None:
    told, read, at = plain(text), [], 0
    while at < len(told):
        at += told[at] == "\\"
        read.append(told[at])
        at += 1
    assert "".join(read) == " ".join(text.split())


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
@pytest.mark.parametrize("name", [*HOSTILE, *ORDINARY])
def test_studio_shows_the_same(name: str, tmp_path: Path) -> None:
    source = (Path(build.__file__).parents[1] / "service/studio/markdown.js").read_text(encoding="utf-8")
    element = "const el = (tag, more, ...children) => children.flat(9).join('');"
    code = source.replace('import { el } from "/dom.js";', element).replace("export ", "")
    (tmp_path / "a.mjs").write_text(f"{code}\nprocess.stdout.write(markdown(process.argv[2]).join(''));")
    done = subprocess.run(["node", tmp_path / "a.mjs", f"- {plain(name)}"], capture_output=True, text=True, check=True)
    assert done.stdout == " ".join(name.split())
