"""A pretrained backbone against tiny: fewer examples by lot, all stages of both, and figures that are theirs."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from benchmarks import pretrained as bench
from benchmarks.objectives import settings
from benchmarks.pretrained import Fitted, Lot
from merit.core import artifacts
from merit.core.artifacts import Artifact
from merit.core.errors import MissingDependency
from merit.core.ragged import Ragged
from merit.core.settings import RunConfig
from merit.data import planted
from merit.data.prepare import shards
from merit.evaluation.evaluate import truth_of_test_users
from merit.evaluation.predictions import Truth
from merit.labels import space
from merit.labels.build import load_vectors

USERS, SEED, SECONDS = 8, 3, 0.05
OTHER = "again"
MADE = (*bench.STAGES, bench.SAID, "states", "mined-2", "propensity", bench.RANKED)
Runs = dict[str, RunConfig]


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    folder = tmp_path_factory.mktemp("pretrained")
    planted.write(planted.shop(planted.PlantedConfig(users=60), 7), folder)
    small = ["backbone.width=16", "backbone.layers=1", "backbone.heads=2", "prepare.shards=2"]
    overrides = [*bench.QUICK, *small, "text.prompt.budget=32", f"cache={folder / 'cache'}"]
    return settings(folder, [], 1, folder / "run", overrides)


@pytest.fixture(scope="module")
def shop(config: RunConfig) -> bench.Shop:
    return bench.few_users(config, USERS)


@pytest.fixture(scope="module")
def runs(config: RunConfig, shop: bench.Shop) -> Runs:
    own = config.model_copy(update={"seed": SEED})
    tiny = own.model_copy(update={"out": config.out / bench.TINY})
    bench.chain(tiny, shop, SECONDS)
    other = bench.pretrained(own, str(tiny.out / "stage-1"), config.out / OTHER, Fitted(2, 4, 1e-3))
    bench.chain(other, shop, SECONDS)
    return {bench.TINY: tiny, OTHER: other}


def rows(examples: Artifact, split: str) -> pl.DataFrame:
    parts = [each.examples.with_columns(shard=pl.lit(each.number)) for each in shards(examples)]
    return pl.concat(parts).filter(pl.col("split") == split)


def test_a_lot_leaves_out_examples_of_one_split_and_nothing_else(config: RunConfig, tmp_path: Path) -> None:
    all_ = bench.few_users(config, 10**6)[0]
    few = bench.thinned(all_, tmp_path / "few", Lot(split="train", most=11), SEED)
    had, got = rows(all_, "train"), rows(few, "train")
    assert len(got) == few.manifest.summary["train"] == 11 < len(had)
    assert got.join(had, on=had.columns, how="semi", nulls_equal=True).height == 11
    assert got["shard"].n_unique() == 2
    for split in ("validation", "test"):
        assert rows(few, split).equals(rows(all_, split))
    same = {name for name in all_.manifest.files if not name.startswith("examples-")}
    assert all(few.manifest.files[name] == all_.manifest.files[name] for name in same)
    again = bench.thinned(all_, tmp_path / "again", Lot(split="train", most=11), SEED)
    assert again.manifest.hash == few.manifest.hash
    other = bench.thinned(all_, tmp_path / "other", Lot(split="train", most=11), SEED + 1)
    assert other.manifest.hash != few.manifest.hash


def test_more_than_there_are_is_all_of_them(shop: bench.Shop, tmp_path: Path) -> None:
    assert shop[0].manifest.summary["test"] == USERS
    assert bench.drawn(shop[0], tmp_path / "none", "test", USERS, SEED) is shop[0]


def test_both_go_through_all_stages_and_mine_what_they_will_read(runs: Runs, shop: bench.Shop) -> None:
    for config in runs.values():
        first, second = (artifacts.load(config.out / name, "generator") for name in bench.STAGES)
        mined = artifacts.load(config.out / "mined", "mined")
        reads = first.manifest.summary["steps"] * config.stage_1.batch_size
        assert mined.manifest.summary["examples"] == min(reads, shop[0].manifest.summary["train"])
        assert second.manifest.parents["mined"].hash == mined.manifest.hash
        assert second.manifest.config["backbone"]["lora_rank"] == config.backbone.lora_rank
        states = artifacts.load(config.out / "states", "states").manifest
        assert states.parents["generator"].hash == second.manifest.hash
        assert states.summary["train"] == mined.manifest.summary["examples"]


def test_what_is_there_is_kept(runs: Runs, shop: bench.Shop) -> None:
    places = [config.out / name / artifacts.MANIFEST for config in runs.values() for name in MADE]
    before = [place.stat().st_mtime_ns for place in places]
    for config in runs.values():
        bench.chain(config, shop, SECONDS)
    assert [place.stat().st_mtime_ns for place in places] == before


def test_lora_trains_a_part_and_costs_are_told(runs: Runs) -> None:
    tiny, other = (bench.costs(config) for config in runs.values())
    assert tiny["trained parameters"] == tiny["parameters"]
    assert 0 < (other["trained parameters"] or 0) < (other["parameters"] or 0)
    for told in (tiny, other):
        assert all(value is not None and value > 0 for value in told.values())
        assert (told["training, peak GiB"] or 0) > 0.1  # Python and torch alone are more


def test_costs_that_nobody_noted_are_unknown(runs: Runs, tmp_path: Path) -> None:
    config = runs[bench.TINY]
    for name in (*bench.STAGES, "mined", "states"):
        (tmp_path / name).symlink_to(config.out / name)
    told = bench.costs(config.model_copy(update={"out": tmp_path}))
    assert told["tokens per second"] and told["training, peak GiB"] is None and told["decoding, s"] is None


def test_figures_are_those_of_the_lists(runs: Runs, shop: bench.Shop, capsys: pytest.CaptureFixture[str]) -> None:
    told = bench.compared(runs, shop, SECONDS)
    corpus = artifacts.load(runs[bench.TINY].out / "corpus", "corpus")
    truth = truth_of_test_users(corpus, space.load(shop[1].path), load_vectors(shop[1]))
    assert told["users"] == truth.users == USERS
    for way, both in bench.told(runs).items():
        values = {}
        for said in both:
            value, low, high = told[f"{said.method}, recall@10"]
            values[said.method] = value
            assert low <= value <= high
            assert value == pytest.approx(100 * by_hand(said.at(10), truth), abs=0.01)
        ahead = told[f"{OTHER}, {way}, recall@10 minus tiny"][0]
        assert ahead == pytest.approx(values[f"{OTHER}, {way}"] - values[f"tiny, {way}"], abs=0.02)
    shown = capsys.readouterr().out
    assert "history frequency" in shown and "tokens per second" in shown


def by_hand(lists: Ragged, truth: Truth) -> float:
    found = sum(len(set(lists[row].tolist()) & set(truth.gold[row].tolist())) for row in range(len(truth)))
    return found / len(truth.gold.values)


def test_weights_that_are_not_installed_are_told_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("merit.core.weights.UNPACKED", tmp_path / "weights")
    monkeypatch.setattr("sys.argv", ["pretrained", "--out", str(tmp_path / "runs")])
    with pytest.raises(MissingDependency, match="merit weights install smollm2"):
        bench.main()
    assert not any(tmp_path.iterdir())
