"""The grid end to end: cells are made once, one that fails sinks nothing, and what is kept is what was made."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from merit.baselines.methods import METHODS
from merit.baselines.world import Answer, World
from merit.bench import cells, chain, grid
from merit.bench.cells import HITS, read_hits, score_metrics, write_hits
from merit.bench.chain import Chain, step_seconds
from merit.bench.config import slug
from merit.bench.grid import BenchOutcome, bench
from merit.bench.results import read
from merit.core import artifacts, timings
from merit.core.errors import TrainingError
from merit.evaluation.classification import MetricKey
from merit.evaluation.evaluate import read_predictions
from merit.evaluation.ranking import MEAN, SHARES, hit_key
from merit.evaluation.tables import pick
from tests.bench.conftest import VARIANTS, Small
from tests.bench.small import settings

MAKERS = [
    *((cells, name) for name in ("write_baseline", "write_generator", "write_merit")),
    (grid, "write_results"),
    *((chain, name) for name in ("train_generator", "mine", "predict", "write_states", "train_propensity")),
]


def refused(*_: Any, **named: Any) -> Any:
    raise AssertionError("made again")


def test_every_cell_is_made_and_judged(grid: Small) -> None:
    assert grid.outcome.failures == {}
    (results,) = grid.outcome.results
    recall = pick(results.frame(), MetricKey("recall", "exact", 10))
    assert set(recall["method"]) >= {"trivial", "linear", "teacher-forcing", "self-correction (β = 0)", "MERIT"}
    assert any(name.startswith("teacher-forcing, ") for name in recall["method"])  # length-matched
    assert recall.filter(recall["method"] != "MERIT")["lead"].null_count() == 0
    assert {each.method for each in results.costs} == set(results.seeds)
    steps = {"teacher-forcing": [3], "self-correction (β = 0)": [3]}
    assert {name: results.steps[name] for name in steps} == steps and results.steps["item generator"]
    assert {"cores", "memory", "python", "torch"} <= set(results.machine)


def test_figures_are_those_of_the_predictions(grid: Small) -> None:
    (results,) = grid.outcome.results
    said = read_predictions(artifacts.load(grid.folder / "seed-1/cell-linear", "cell"))[0]
    truth = grid.ground().truth
    found = sum(len(np.intersect1d(said.at(10)[row], truth.gold[row])) for row in range(len(truth)))
    row = pick(results.frame(), MetricKey("recall", "exact", 10)).filter(method="linear")
    assert row["value"][0] == pytest.approx(found / len(truth.gold.values), abs=1e-5)
    base, ours = (
        pick(results.frame(), MetricKey("recall", "exact", 10)).filter(method=name)["value"][0]
        for name in ("trivial", "MERIT")
    )
    assert row["gain"][0] == pytest.approx(row["value"][0] - base, abs=2e-5)
    assert row["lead"][0] == pytest.approx(ours - row["value"][0], abs=2e-5)


def test_what_is_finished_is_not_made_again(grid: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    for place, name in MAKERS:
        monkeypatch.setattr(place, name, refused)
    again = bench(grid.config, ["planted"])
    assert again.failures == {}
    assert again.results == grid.outcome.results == [read(grid.config.results / "planted.json")]


def test_variants_share_what_is_the_same(grid: Small) -> None:
    own = sorted(path.name.rsplit("-", 1)[0] for path in (grid.folder / "seed-1/variants").iterdir() if path.is_dir())
    assert own == ["mined-item-generator", "propensity", "propensity", "states"]  # states only: its own
    usual = artifacts.load(grid.folder / "seed-1/cell-MERIT")
    without, states = (artifacts.load(grid.folder / f"seed-1/cell-{slug(name)}") for name in VARIANTS)
    assert without.manifest.parents["states"] == usual.manifest.parents["states"] != states.manifest.parents["states"]
    assert without.manifest.parents["propensity"] != usual.manifest.parents["propensity"]
    assert {cell.manifest.parents["generator"].hash for cell in (usual, without, states)} == {
        artifacts.load(grid.folder / "seed-1/item-generator").manifest.hash
    }
    (results,) = grid.outcome.results
    promised = sum(pairs for _, _, pairs, *_ in results.reliability)
    assert promised == len(grid.ground().truth) * results.labels  # of MERIT alone


def test_a_missing_cell_is_made_alone(grid: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(grid.config.out, tmp_path / "bench")
    shutil.rmtree(tmp_path / "bench/planted/seed-1/cell-linear")
    for place, name in MAKERS:
        if name not in ("write_baseline", "write_results"):
            monkeypatch.setattr(place, name, refused)
    moved = grid.config.model_copy(update={"out": tmp_path / "bench", "results": tmp_path / "results"})
    assert bench(moved, ["planted"]).failures == {}
    assert (tmp_path / "bench/planted/seed-1/cell-linear" / artifacts.MANIFEST).exists()


def broken(world: World, seed: int) -> Answer:
    raise TrainingError("The loss is not a number.")


def buggy(world: World, seed: int) -> Answer:
    return [][seed]  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> tuple[BenchOutcome, Path]:
    place = tmp_path_factory.mktemp("failing")
    methods = ["trivial", "popularity", "linear", "history frequency"]
    config = settings(place, [{"methods": methods}], 'datasets.gone.source={kind="tables",interactions="x",items="y"}')
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(METHODS, "popularity", f"{__name__}:broken")
        patch.setitem(METHODS, "linear", f"{__name__}:buggy")
        return bench(config, ["gone", "planted"]), place


def test_a_failing_cell_does_not_sink_the_grid(failing: tuple[BenchOutcome, Path]) -> None:
    outcome, place = failing
    assert set(outcome.failures) == {"gone", "planted/popularity/seed 1", "planted/linear/seed 1"}
    assert "does not exist" in outcome.failures["gone"]
    assert outcome.failures["planted/linear/seed 1"].startswith("IndexError")
    (results,) = outcome.results
    assert set(results.frame()["method"]) == {"trivial", "history frequency"}
    assert set(json.loads((place / "results/planted.json").read_text())["missing"]) == set(outcome.failures) - {"gone"}
    assert not list((place / "bench/planted/seed-1").glob("*linear*"))


def test_some_methods_alone_are_shown_and_not_kept(failing: tuple[BenchOutcome, Path]) -> None:
    _, place = failing
    before = (place / "results/planted.json").read_bytes()
    config = settings(place, [{"methods": ["trivial", "popularity", "linear"]}])
    (results,) = bench(config, ["planted"], ["popularity"]).results
    assert set(results.frame()["method"]) == {"trivial", "popularity"}
    assert (place / "results/planted.json").read_bytes() == before


def test_steps_follow_the_time(grid: Small, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As many as fit: the probe is timed once, kept, and asked again when the grid goes on."""
    config, ground = grid.config.model_copy(update={"steps": None, "probe": 12, "seconds": 0.5}), grid.ground()
    trained = Chain(config, ground, tmp_path / "seed-1", 1).generator("teacher-forcing")
    probe = artifacts.load(tmp_path / "seed-1/probe-teacher-forcing", "generator")
    assert probe.manifest.summary["steps"] == 12
    assert trained.manifest.summary["steps"] == max(2, int(0.5 / step_seconds(probe)))
    monkeypatch.setattr(chain, "train_generator", refused)
    again = Chain(config, ground, tmp_path / "seed-1", 1)
    assert again.generator("teacher-forcing").manifest.hash == trained.manifest.hash
    timing = timings.read(tmp_path / "seed-1")[trained.path.name]
    assert timing.hash == trained.manifest.hash and again.spent(trained) == timing.seconds
    by_log = pytest.approx(step_seconds(trained) * trained.manifest.summary["steps"])
    timings.note(tmp_path / "seed-1", timing.model_copy(update={"resumed": True}))
    assert again.spent(trained) == by_log  # the timing is that of the last session only
    (tmp_path / "seed-1" / timings.FILE).unlink()
    assert again.spent(trained) == by_log


def test_a_failure_is_remembered(grid: Small, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two methods on one broken generator: it is trained once."""
    tries = []

    def failing(*_: Any, **named: Any) -> Any:
        tries.append(1)
        raise TrainingError("The loss is not a number.")

    monkeypatch.setattr(chain, "train_generator", failing)
    made = Chain(grid.config, grid.ground(), tmp_path, 1)
    for name in ("teacher-forcing", "self-correction (β = 0)", "self-correction (β = 1)"):
        with pytest.raises(TrainingError):
            made.generator(name)
    assert len(tries) == 1


def test_a_cell_costs_all_that_it_builds_on(grid: Small) -> None:
    folder = grid.folder / "seed-1"
    timing = timings.read(folder)
    costs = {each.method: each for each in grid.outcome.results[0].costs}
    assert costs["teacher-forcing"].train_seconds < costs["self-correction (β = 0)"].train_seconds
    assert costs["MERIT"].train_seconds >= timing["states"].seconds + timing["propensity"].seconds
    assert costs["MERIT"].parameters > costs["item generator"].parameters
    assert all(each.predict_seconds > 0 for each in costs.values())


def test_what_was_brought_has_no_cost_here(grid: Small, tmp_path: Path) -> None:
    """A part that this grid did not make: its cost is unknown, not nothing."""
    config = grid.config
    folder = tmp_path / "seed-1"
    shutil.copytree(grid.folder / "seed-1", folder)
    assert Chain(config, grid.ground(), folder, 1).spent(artifacts.load(folder / "states")) is not None
    (folder / timings.FILE).unlink()
    assert Chain(config, grid.ground(), folder, 1).spent(artifacts.load(folder / "states")) is None


def test_hits_are_the_same_when_read_again(grid: Small, tmp_path: Path) -> None:
    ground = grid.ground()
    rng = np.random.default_rng(0)
    scores = rng.random((len(ground.truth), ground.truth.labels), dtype=np.float32)
    found = score_metrics(ground, lambda block: scores[:, block])
    write_hits(tmp_path / HITS, found)
    again = read_hits(tmp_path / HITS)
    assert set(again) == set(found)
    assert all(again[key].value == pytest.approx(found[key].value, nan_ok=True) for key in found)
    draws = {share: again[hit_key(share, MEAN)].columns.sum() for share in SHARES}
    assert draws == {share: found[hit_key(share, MEAN)].columns.sum() for share in SHARES}
