"""Figures of the benchmarks of patching and of several processes: tokens behind prompts, and their intervals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from benchmarks import patching, processes
from merit.core.ragged import Ragged
from merit.data.patches import pool
from merit.data.texts import TextConfig
from merit.evaluation.classification import EvaluationConfig, measure
from merit.evaluation.predictions import Predictions, Truth

TOKENS = Ragged.of([[1, 2, 3, 4, 5], [6], [7, 8, 9]])


def test_a_patch_stands_for_its_tokens() -> None:
    read = pool(TOKENS, Ragged.of([[1, 3, 1], [1], [2, 1]]))
    assert read.lengths().tolist() == [3, 1, 2]
    assert patching.behind(read).tolist() == patching.behind(TOKENS).tolist() == [5, 1, 3]
    assert patching.behind(read.gather(np.array([2, 0]))).tolist() == [3, 5]


def test_intervals_are_around_what_they_are_of() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        middle, low, high = patching.usual(rng.normal(5, 1, 15), 6)
        assert low <= middle <= high and high - low < 3
    same = patching.usual(np.full(9, 2.5), 3)
    assert same == [2.5, 2.5, 2.5]
    lengths = rng.integers(10, 100, 400)
    middle, low, high = patching.mean(lengths)
    assert middle == pytest.approx(lengths.mean(), abs=0.05)
    assert high - low == pytest.approx(2 * 1.96 * lengths.std() / 20, abs=0.1)


def test_cells_differ_in_context_alone() -> None:
    base = TextConfig()
    texts = {name: patching.text_of(each, base, 40) for name, each in patching.CELLS.items()}
    assert {name: text.prompt.budget for name, text in texts.items()} == {
        "N recent": 40, "2N recent": 80, "2N patched": 80, "2N patched from the start": 80,
    }  # fmt: skip
    schedules = [text.patching and text.patching.schedule for text in texts.values()]
    assert schedules == [None, None, "curriculum", "from-the-start"]


@pytest.fixture
def judged() -> patching.Judged:
    """Two users with two labels each; each cell finds as many of them as its place says, whichever way it is read."""
    gold, none = Ragged.of([[0, 1], [2, 3]]), np.zeros(0, np.int32)
    truth = Truth(
        gold, Ragged.of([[0], [0]]), Ragged.of([[], []]), none, none, np.array([0, 1]), np.zeros(9, np.int64), ["all"],
        np.eye(9, dtype=np.float32), np.zeros(9, np.int64),
    )  # fmt: skip
    said = []
    for found, cell in enumerate(patching.CELLS):
        lists = Ragged.of([[0, 1][: min(found, 2)] or [8], [2, 3][: max(0, found - 2)] or [8]])
        said += [Predictions(cell + end, 1, lists) for end in ("", patching.LIKELY)]
    return [(each, measure(each, truth, EvaluationConfig(resamples=100))) for each in said]


def test_gains_are_over_the_cell_that_is_named(judged: patching.Judged) -> None:
    shares = {"N recent": 0.0, "2N recent": 25.0, "2N patched": 50.0, "2N patched from the start": 75.0}
    plain, started = (patching.against(cell, judged, 2, 100) for cell in (patching.PLAIN, patching.STARTED))
    told = patching.recalls(plain)
    for cell, share in shares.items():
        assert told[f"{cell} @10"][0] == told[f"{cell}, likelihood ranking @10"][0] == share
        if cell != patching.PLAIN:
            assert told[f"{cell} @10, gain"][0] == share - 25
    worth = patching.worth_of_curriculum(started)
    assert len(worth) == 2 * len(patching.BUDGETS)
    assert {each[0] for each in worth.values()} == {-25.0}
    assert all(low <= value <= high for value, low, high in (*told.values(), *worth.values()))


def test_weights_are_as_far_apart_as_their_furthest_numbers(tmp_path: Path) -> None:
    one = {"a": np.zeros((2, 3), np.float32), "b": np.ones(4, np.float32)}
    other = {"a": one["a"] + 0.25, "b": one["b"] - np.array([0, 0, 0.5, 0], np.float32)}
    for name, weights in (("one", one), ("other", other)):
        save_file(weights, tmp_path / name)
    assert processes.apart(tmp_path / "one", tmp_path / "other") == 0.5
    assert processes.apart(tmp_path / "one", tmp_path / "one") == 0
