"""The notebook runs from its first cell to its last, and shows what its words say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
NOTEBOOKS = ("exposure_bias.ipynb", "frames.ipynb")


def shown_by(name: str) -> list[Any]:
    """What the cells of a notebook show, run from its first to its last."""
    nbformat = pytest.importorskip("nbformat", reason="pip install 'merit-interests[dev]'")
    client = pytest.importorskip("nbclient", reason="pip install 'merit-interests[dev]'")
    pytest.importorskip("ipykernel", reason="pip install 'merit-interests[dev]'")
    book = nbformat.read(EXAMPLES / name, as_version=4)
    client.NotebookClient(book, timeout=120, resources={"metadata": {"path": str(EXAMPLES)}}).execute()
    shown = [each for cell in book.cells for each in cell.get("outputs", [])]
    assert not [each for each in shown if each["output_type"] == "error"]
    return shown


@pytest.mark.slow
def test_the_notebook_runs() -> None:
    shown = shown_by("exposure_bias.ipynb")
    texts = [each["data"].get("text/plain", "") for each in shown if "data" in each]
    assert any("regions among five" in text for text in texts)
    assert 0.7 < float(texts[-2]) < 0.9, "the ceiling"
    assert any("image/svg+xml" in each.get("data", {}) for each in shown)


@pytest.mark.slow
def test_two_frames_become_answers() -> None:
    shown = [each["data"] for each in shown_by("frames.ipynb") if "data" in each]
    assert any("<th>Preset</th>" in each.get("text/html", "") for each in shown), "the model shows itself"
    rests_on = next(each["text/plain"] for each in shown if "rests_on" in each["text/plain"])
    assert all(word in rests_on for word in ("history", "titles", "popularity"))
    assert float(shown[-1]["text/plain"]) == 0


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_no_output_is_kept_in_the_file(name: str) -> None:
    """What a run shows is made by the run, and a diff of the file is a diff of its words."""
    nbformat = pytest.importorskip("nbformat", reason="pip install 'merit-interests[dev]'")
    assert not [cell for cell in nbformat.read(EXAMPLES / name, as_version=4).cells if cell.get("outputs")]
