"""The service's benchmark in small: random numbers that are a model, and figures that come from a real process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import merit
from benchmarks import large_model, serve
from merit.core.errors import ConfigError, DataError

SMALL = serve.Sizes(600, 300, 150, rounds=1, interests=1, previews=1, mixed=200)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return serve.model_in(tmp_path_factory.mktemp("large"), SMALL, 7)


def test_a_model_of_random_numbers_is_a_model(large: Path) -> None:
    model = merit.load(large)
    live = model.labels.live_mask()
    assert (len(model.users), len(model.labels)) == (600, 300) and 0 < (~live).sum() < 30  # cigars are blocked
    user, text = model.users["user_id"][0], model.labels.texts[int(np.flatnonzero(live)[5])]
    assert len(model.interests(user, k=5)) == 5 and len(model.verticals(user)) == len(large_model.VERTICALS)
    chances = model.audience_scores(text)
    assert 0 < chances.min() < np.median(chances) < 0.05 and chances.max() < 1
    assert model.interest("baskets for beginners").label == -1
    history, counts = (model.users[name].list for name in ("history", "counts"))
    assert (history.len() == counts.len()).all() and (history.n_unique() == history.len()).all()


def test_the_same_seed_makes_the_same_model_and_it_is_made_once(large: Path, tmp_path: Path) -> None:
    again = serve.model_in(tmp_path, SMALL, 7)
    assert merit.load(again).artifact.manifest.hash == merit.load(large).artifact.manifest.hash
    before = (again / "model/manifest.json").stat().st_mtime_ns
    assert serve.model_in(tmp_path, SMALL, 7) == again
    assert (again / "model/manifest.json").stat().st_mtime_ns == before


def test_more_labels_than_there_are_words_for_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="words for 291,600 labels"):
        large_model.make(tmp_path / "x", 100, 291_601, 7)
    assert not list(tmp_path.iterdir())


def test_no_interest_is_asked_for_twice(large: Path) -> None:
    class Asker:
        asked: list[Any] = []

        def ask(self, path: str, body: Any = None) -> float:
            self.asked.append((path, body))
            return 0.0

    questions, asker = serve.Questions(large, 150, 7), Asker()
    for _ in range(50):
        questions.preview(asker)  # type: ignore[arg-type]
    assert len({body["interests"][0] for _, body in asker.asked}) == 50
    asker.asked.clear()
    for _ in range(4_000):
        questions.mixed(asker)  # type: ignore[arg-type]
    paths = [path for path, _ in asker.asked]
    assert 30 <= sum("interests" in path for path in paths) <= 40 and 3 <= paths.count("/v1/audience/preview") <= 5
    assert {path.rstrip("0123456789") for path in paths} >= {"/health", "/ready", "/v1/key", "/v1/labels/", "/v1/score"}


@pytest.mark.slow
def test_figures_come_from_a_real_process(large: Path, tmp_path: Path) -> None:
    figures, remarks = serve.measured(large, tmp_path / "state", SMALL, 7)
    assert figures["start_seconds"] > 0 and figures["preview_over_bare"] > 0
    for name in ("interests", "preview"):
        for clients in serve.CLIENTS:
            key = f"{name}_{clients}_clients"
            assert figures[f"{key}_per_second"] > 0 and figures[f"{key}_p99_ms"] >= figures[f"{key}_p50_ms"] > 0
    assert figures["memory_mib"] > figures["own_memory_mib"] > 10 and abs(figures["own_memory_growth"]) < 0.5
    assert set(remarks) <= set(figures)
    json.dumps(figures)


def test_a_service_that_does_not_start_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="never ready"), serve.served(tmp_path, tmp_path / "state"):
        pass
