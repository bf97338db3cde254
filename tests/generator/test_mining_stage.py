"""Mining can be stopped anywhere: what was sampled before is kept, and the result is the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from merit.core import artifacts, config
from merit.core.artifacts import Artifact
from merit.core.pipeline import run
from merit.core.settings import RunConfig
from merit.data.planted import PlantedConfig, shop, write
from merit.engine import storage
from merit.engine.job import EngineConfig
from merit.generator.mining import MiningConfig, draw_examples, mine
from merit.generator.model import GeneratorConfig, ObjectiveConfig
from merit.generator.train import train_generator
from merit.generator.worker import DecodeJob


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    folder = tmp_path_factory.mktemp("shop")
    write(shop(PlantedConfig(users=60), seed=7), folder)
    values = {
        "out": str(folder / "run"),
        "cache": str(folder / "cache"),
        "source": {
            "kind": "tables",
            "interactions": f"{folder}/interactions.parquet",
            "items": f"{folder}/items.parquet",
        },
        "reads": "text",
        "labels": {"encoder": "hashed"},
        "backbone": {"width": 32, "layers": 1, "vocabulary": 1400},
        "stage_1": {"objective": "teacher-forcing", "steps": 3},
    }
    return dict(run(config.build(RunConfig, values), until="stage-1"))


def mined(made: dict[str, Artifact], out: Path, shards: int = 1) -> Artifact:
    inputs = made["stage-1"], made["corpus"], made["labels"]
    return mine(DecodeJob(*inputs, MiningConfig(samples=2), 7), out, EngineConfig(shards=shards))


def test_shards_change_nothing_and_a_stopped_run_goes_on(
    made: dict[str, Artifact], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = mined(made, tmp_path / "whole")
    committed, real = [], storage.put

    def dies_after_three(address: str, data: bytes) -> None:
        if len(committed) == 3:
            raise KeyboardInterrupt
        real(address, data)
        if address.endswith(".record"):  # a part counts once its record is there
            committed.append(address)

    monkeypatch.setattr(storage, "put", dies_after_three)
    with pytest.raises(KeyboardInterrupt):
        mined(made, tmp_path / "parts", shards=9)
    assert not (tmp_path / "parts").exists()
    first, committed[:] = set(committed), []
    monkeypatch.setattr(storage, "put", lambda *given: (real(*given), committed.append(given[0])))
    again = mined(made, tmp_path / "parts", shards=9)
    assert not first & set(committed)  # only what was missing
    assert len(first | {each for each in committed if each.endswith(".record")}) == 9
    assert again.manifest.hash == whole.manifest.hash
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_the_report_says_how_many_were_bought_later(made: dict[str, Artifact], tmp_path: Path) -> None:
    told = mined(made, tmp_path / "mined").manifest.summary
    assert 0 < told["later_bought"] < told["mined"]
    assert artifacts.load(tmp_path / "mined", "mined").manifest.parents["generator"].kind == "generator"


def test_some_are_asked_and_say_what_they_say_among_all(made: dict[str, Artifact], tmp_path: Path) -> None:
    inputs = made["stage-1"], made["corpus"], made["labels"]
    whole = pl.read_parquet(mined(made, tmp_path / "whole").file("mined.parquet"))
    told = mine(DecodeJob(*inputs, MiningConfig(samples=2, examples=40), 7), tmp_path / "some")
    some = pl.read_parquet(told.file("mined.parquet"))
    assert whole["sampled"].all() and len(some) == len(whole) > 40 == some["sampled"].sum()
    assert some.filter("sampled").equals(whole.filter(some["sampled"]))
    left = some.filter(~pl.col("sampled"))
    assert left["labels"].list.len().sum() == 0 == left["hits"].explode().sum()
    assert left["hits"].list.len().equals(whole.filter(~some["sampled"])["hits"].list.len())
    assert told.manifest.summary["examples"] == 40


def test_self_correction_learns_from_whom_was_asked_about(made: dict[str, Artifact], tmp_path: Path) -> None:
    shop = made["corpus"], made["labels"]
    wrong = mine(DecodeJob(made["stage-1"], *shop, MiningConfig(samples=1, examples=30), 7), tmp_path / "mined")
    how = GeneratorConfig.model_validate(made["stage-1"].manifest.config)
    train = ObjectiveConfig(objective="self-correction", steps=1, batch_size=8)
    second = train_generator(*shop, tmp_path / "second", how.model_copy(update={"train": train}), 7, mined=wrong)
    assert made["stage-1"].manifest.summary["examples"] > second.manifest.summary["examples"] == 30


def test_a_run_asks_about_as_many_as_stage_2_reads() -> None:
    assert MiningConfig().of(640).examples == 640
    assert MiningConfig(examples=9).of(640).examples == 9
    assert ObjectiveConfig(steps=5, batch_size=8, accumulate=2).reads == 80
    assert (
        draw_examples(5, MiningConfig(), 1).tolist()
        == draw_examples(5, MiningConfig(examples=9), 1).tolist()
        == [0, 1, 2, 3, 4]
    )
    few = draw_examples(50, MiningConfig(examples=9), 1)
    assert len(set(few.tolist())) == 9 and (np.diff(few) > 0).all()
