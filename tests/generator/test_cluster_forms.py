"""Clusters before leaves, from end to end: all stages in each form, and later versions of the label space."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import merit
from merit.core import artifacts
from merit.core.artifacts import Artifact
from merit.core.pipeline import run
from merit.core.ragged import Ragged, column_lists
from merit.core.settings import RunConfig
from merit.data.corpus import read_inputs
from merit.data.texts import EncodedShop, read_shop
from merit.generator import checkpoint
from merit.generator.decoding import DecodeConfig
from merit.generator.model import Generator, load_generator, load_over_items
from merit.generator.train import train_generator
from merit.labels import space
from merit.labels.build import change_labels
from tests.plan.settings import settings

FORMS = ("text", "token")


def settings_of(made_text: Path, folder: Path, form: str) -> RunConfig:
    return settings(made_text, f"out={folder / 'run'}", f"text.cluster_form={form}")


@pytest.fixture(scope="module", params=FORMS)
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def stages(made_text: Path, once: Callable[[str, Any], Path], form: str) -> dict[str, Artifact]:
    """All stages of the small run in this form; those that do not depend on it are copies."""

    def make(folder: Path) -> None:
        for name in ("examples", "labels"):
            shutil.copytree(made_text / name, folder / "run" / name)
        run(settings_of(made_text, folder, form))

    return {folder.name: artifacts.load(folder) for folder in artifact_folders(once(form, make) / "run")}


def artifact_folders(folder: Path) -> list[Path]:
    return sorted(place.parent for place in folder.glob(f"*/{artifacts.MANIFEST}"))


@pytest.fixture(scope="module")
def shop(stages: dict[str, Artifact]) -> EncodedShop:
    return read_shop(stages["corpus"])


def test_the_path_of_a_label_is_its_cluster_and_its_own_tokens(
    stages: dict[str, Artifact], shop: EncodedShop, form: str
) -> None:
    names = pl.read_parquet(stages["labels"].file("clusters.parquet"))["name"]
    heads = {"text": shop.vocabulary.encode(names.to_list()), "token": [[token] for token in shop.vocabulary.clusters]}
    labels = space.load(stages["labels"].path)
    assert len(names) > 1 and len(heads[form]) == len(names)
    for label, text, cluster in labels.table.select("id", "text", "cluster").iter_rows():
        head = heads[form][cluster] if cluster >= 0 else []
        assert shop.paths.path(label) == (*head, *shop.vocabulary.encode([text])[0])


def test_a_model_has_a_row_for_every_token_and_lists_hold_live_labels_once(
    stages: dict[str, Artifact], shop: EncodedShop
) -> None:
    generator = load_generator(stages["stage-2"], stages["corpus"], stages["labels"])
    assert len(generator.model.get_input_embeddings().weight) == len(shop.vocabulary)
    assert len(generator.model.get_output_embeddings().weight) == len(shop.vocabulary)
    lists = column_lists(pl.read_parquet(stages["predictions-2"].file("predictions-0.parquet"))["ranked"])
    assert set(lists.lengths()) == {20}
    for row in range(len(lists)):
        assert len(set(lists[row].tolist())) == 20 and generator.labels.live_mask()[lists[row]].all()


def test_a_run_gives_a_model_that_can_be_asked(stages: dict[str, Artifact]) -> None:
    model = merit.load(stages["model"].path.parent)
    users = model.users["user_id"].head(3).to_list()
    interests = model.interests(users, k=4)
    assert interests.height == 12 and interests["probability"].is_between(0, 1).all()
    explained = model.explain(users[0], interests["interest"][0], k=2)
    assert explained.height


def test_a_stopped_training_ends_with_the_same_bytes(
    made_text: Path, stages: dict[str, Artifact], form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, how = checkpoint.save, settings_of(made_text, tmp_path, form)
    config = how.generator(how.stage_1.model_copy(update={"checkpoint_every": 1}))

    def dies_after_two(file: Path, *arguments: Any) -> None:
        real(file, *arguments)
        if file.name == "step-0000002.safetensors":
            raise KeyboardInterrupt

    def train() -> Artifact:
        return train_generator(stages["corpus"], stages["labels"], tmp_path / "again", config, how.seed)

    monkeypatch.setattr(checkpoint, "save", dies_after_two)
    with pytest.raises(KeyboardInterrupt):
        train()
    monkeypatch.setattr(checkpoint, "save", real)
    again = train().manifest.files["model.safetensors"]
    assert again.sha256 == stages["stage-1"].manifest.files["model.safetensors"].sha256


def decoded(generator: Generator, prompts: Ragged) -> Ragged:
    return generator.decode(prompts, DecodeConfig(max_labels=15, fixed_budget=True), seed=7)


def test_a_later_label_space_needs_no_other_model(made_text: Path, stages: dict[str, Artifact], tmp_path: Path) -> None:
    labels, cache = stages["labels"], made_text.parent / "cache"
    names = pl.read_parquet(labels.file("clusters.parquet"))["name"]
    prompts = read_inputs(stages["corpus"], "test").gather(np.arange(8))
    before = load_generator(stages["stage-2"], stages["corpus"], labels)
    retired = before.labels.texts[int(decoded(before, prompts).values[0])]
    renamed = next(name for name in names if name != retired)
    newer = change_labels(labels, tmp_path / "v2", "add", ["zebra saddles"], reason="new shelf", cache=cache)
    newer = change_labels(newer, tmp_path / "v3", "rename", [renamed], to="otter", reason="as said", cache=cache)
    newer = change_labels(newer, tmp_path / "v4", "retire", [retired], reason="sold out", cache=cache)
    items = pl.read_parquet(stages["corpus"].file("items.parquet"))
    after = load_over_items(stages["stage-2"], items, newer)
    added, gone, other = after.labels.find(["zebra saddles", retired, renamed])
    untouched = np.setdiff1d(np.arange(len(before.labels)), [gone, other])
    for label in untouched:
        assert after.shop.paths.path(label) == before.shop.paths.path(label)
    assert set(after.trie.label) - {-1} == set(np.flatnonzero(after.labels.live_mask())) - set(
        after.shop.paths.merged[:, 0]
    )
    cluster = after.labels.table["cluster"][int(added)]
    sibling = next(label for label in untouched if after.labels.table["cluster"][int(label)] == cluster)
    assert after.shop.paths.path(added)[0] == after.shop.paths.path(sibling)[0]
    lists = decoded(after, prompts)
    assert gone not in lists.values and after.labels.live_mask()[lists.values].all()
    every = after.decode(prompts.gather(np.arange(2)), DecodeConfig(max_labels=len(after.labels), fixed_budget=True), 7)
    assert added in every[0] and other in every[1]
