"""The notebook runs from its first cell to its last, and shows what its words say."""

from __future__ import annotations

from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[2] / "examples" / "exposure_bias.ipynb"


@pytest.mark.slow
def test_the_notebook_runs() -> None:
    nbformat = pytest.importorskip("nbformat", reason="pip install 'merit-interests[dev]'")
    client = pytest.importorskip("nbclient", reason="pip install 'merit-interests[dev]'")
    pytest.importorskip("ipykernel", reason="pip install 'merit-interests[dev]'")
    book = nbformat.read(NOTEBOOK, as_version=4)
    client.NotebookClient(book, timeout=120, resources={"metadata": {"path": str(NOTEBOOK.parent)}}).execute()
    shown = [each for cell in book.cells for each in cell.get("outputs", [])]
    assert not [each for each in shown if each["output_type"] == "error"]
    texts = [each["data"].get("text/plain", "") for each in shown if "data" in each]
    assert any("regions among five" in text for text in texts)
    assert 0.7 < float(texts[-2]) < 0.9, "the ceiling"
    assert any("image/svg+xml" in each.get("data", {}) for each in shown)


def test_no_output_is_kept_in_the_file() -> None:
    """What a run shows is made by the run, and a diff of the file is a diff of its words."""
    nbformat = pytest.importorskip("nbformat", reason="pip install 'merit-interests[dev]'")
    assert not [cell for cell in nbformat.read(NOTEBOOK, as_version=4).cells if cell.get("outputs")]
