"""A generator is trained on a pretrained backbone as on a tiny one, and is measured on the way."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from merit.core import config, tracking
from merit.core.artifacts import Artifact
from merit.core.pipeline import run
from merit.core.ragged import Ragged
from merit.core.settings import RunConfig
from merit.data.corpus import read_inputs
from merit.data.planted import PlantedConfig, shop, write
from merit.generator import checkpoint
from merit.generator import train as stage
from merit.generator.decoding import DecodeConfig
from merit.generator.model import load_generator
from merit.generator.train import train_generator
from tests.generator.small import backbone_folder

STEPS = 4


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
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
        "backbone": {"name": str(backbone_folder(folder / "backbone")), "lora_rank": 2},
        "text": {"prompt": {"budget": 64}},
        "stage_1": {"steps": STEPS, "batch_size": 8, "evaluate_every": 2, "checkpoint_every": 1},
    }
    return config.build(RunConfig, values)


@pytest.fixture(scope="module")
def made(settings: RunConfig) -> dict[str, Artifact]:
    return dict(run(settings, until="stage-1"))


def test_a_pretrained_backbone_is_trained_in_its_own_words(settings: RunConfig, made: dict[str, Artifact]) -> None:
    trained = load_generator(made["stage-1"], made["corpus"], made["labels"])
    own = Tokenizer.from_file(f"{settings.backbone.name}/tokenizer.json")
    label = trained.labels.texts[0]
    assert trained.shop.vocabulary.encode([label]) == [own.encode(f" {label}").ids]
    prompts = read_inputs(made["corpus"], "test")
    said = trained.decode(prompts, DecodeConfig(max_labels=3, fixed_budget=True), seed=7)
    assert set(said.lengths()) == {3}
    assert trained.labels.live_mask()[said.values].all()


def test_the_artifact_holds_the_whole_model_and_no_adapter(settings: RunConfig, made: dict[str, Artifact]) -> None:
    before = load_file(f"{settings.backbone.name}/model.safetensors")
    after = load_file(made["stage-1"].file("model.safetensors"))
    assert set(after) == set(before)
    moved = [name for name in before if not np.array_equal(before[name], after[name][: len(before[name])])]
    assert len(moved) == 14  # the seven matrices of both layers; norms and the rows of old tokens are as they were


def test_the_log_has_recall_and_exposure_bias(made: dict[str, Artifact]) -> None:
    for name in ("validation/recall", "validation/exposure_bias"):
        assert [figure.step for figure in tracking.read(made["stage-1"].path, name)] == [2, 4]


def test_a_stopped_training_ends_with_the_same_bytes(
    settings: RunConfig, made: dict[str, Artifact], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = checkpoint.save

    def dies_after_two(file: Path, *arguments: Any) -> None:
        real(file, *arguments)
        if file.name == "step-0000002.safetensors":
            raise KeyboardInterrupt

    def train() -> Artifact:
        how = settings.generator(settings.stage_1)
        return train_generator(made["corpus"], made["labels"], tmp_path / "again", how, settings.seed)

    monkeypatch.setattr(checkpoint, "save", dies_after_two)
    with pytest.raises(KeyboardInterrupt):
        train()
    monkeypatch.setattr(checkpoint, "save", real)
    again = train().manifest.files["model.safetensors"]
    assert again.sha256 == made["stage-1"].manifest.files["model.safetensors"].sha256


GOLD = Ragged.of([[0, 1, 2], [2, 3], [4]])
WRONG = 5


@dataclass
class Parrot:
    """Says all golds, or a wrong label when it is sampled; after a mistake, if it is easily led, only wrong ones."""

    led: bool

    def decode(self, prompts: Ragged, config: DecodeConfig, seed: int, written: Ragged | None = None) -> Ragged:
        if config.mode == "sample":
            return Ragged.of([[WRONG]] * len(prompts))
        mistaken = [written is not None and WRONG in written[row] for row in range(len(prompts))]
        return Ragged.of([[WRONG] if self.led and bad else GOLD[row] for row, bad in enumerate(mistaken)])


@pytest.mark.parametrize(("led", "bias"), [(True, 1.0), (False, 0.0)])
def test_exposure_bias_is_what_a_mistake_costs(led: bool, bias: float) -> None:
    lists = {"gold": [GOLD[row].tolist() for row in range(len(GOLD))], "later": [[]] * len(GOLD)}
    examples = pl.DataFrame(lists, schema_overrides=dict.fromkeys(lists, pl.List(pl.UInt32)))
    prompts, vectors = Ragged.of([[50], [51], [52]]), np.eye(6, dtype=np.float32)
    parrot: Any = Parrot(led)
    told = stage._validate(parrot, examples, prompts, vectors, seed=7)
    assert told == {"recall": 1.0, "exposure_bias": bias}
