"""A run labels its events in one stage and tokenises every text once; each stage reads a shard once at most."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from merit.core import config
from merit.core.artifacts import Artifact, load
from merit.core.pipeline import STAGES, run
from merit.core.ragged import Ragged
from merit.core.settings import RunConfig
from merit.data import corpus, labelled
from merit.data.labelled import label_examples
from merit.data.prepare import shards
from merit.data.texts import read_shop
from merit.data.tokenizer import Vocabulary
from tests.small_run import TEXT, shop

SHARDS = 3


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Counter[Any]]:
    """The folder of a whole run in three shards, and what each of its stages did how often."""
    place, calls, stage = tmp_path_factory.mktemp("counted"), Counter[Any](), [""]
    read, encode, label = pl.read_parquet, Vocabulary.encode, labelled.label_histories

    def read_parquet(source: Any, *args: Any, **options: Any) -> pl.DataFrame:
        if isinstance(source, Path) and re.fullmatch(r"(users|events|examples)-\d+\.parquet", source.name):
            calls[stage[0], "read", source.name] += 1
        return read(source, *args, **options)

    def encode_texts(self: Vocabulary, batch: Any) -> list[list[int]]:
        calls.update((stage[0], "tokenised", text) for text in batch)
        return encode(self, batch)

    def label_histories(*args: Any) -> Any:
        calls[stage[0], "labelled"] += 1
        return label(*args)

    def entered(name: str, make: Callable[..., Artifact]) -> Callable[..., Artifact]:
        def made(**options: Any) -> Artifact:
            stage[0] = name
            return make(**options)

        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pl, "read_parquet", read_parquet)
        patch.setattr(Vocabulary, "encode", encode_texts)
        for module in (labelled, corpus):
            patch.setattr(module, "label_histories", label_histories)
        for name, step in STAGES.items():
            patch.setitem(STAGES, name, replace(step, make=entered(name, step.make)))
        values = TEXT | {"source": shop(place, 90, 3), "out": str(place / "run"), "cache": str(place / "cache")}
        run(config.build(RunConfig, values | {"prepare": {"shards": SHARDS}}))
    return place / "run", calls


def test_each_stage_reads_each_shard_once_and_only_two_read_any(counted: tuple[Path, Counter[Any]]) -> None:
    reads = {key: times for key, times in counted[1].items() if key[1] == "read"}
    assert {stage for stage, *_ in reads} == {"corpus", "data-report"}
    assert set(reads.values()) == {1} and len(reads) == 2 * 3 * SHARDS


def test_only_the_corpus_labels_events(counted: tuple[Path, Counter[Any]]) -> None:
    assert {stage for stage, what, *_ in counted[1] if what == "labelled"} == {"corpus"}


def test_only_the_corpus_tokenises_texts_and_each_once(counted: tuple[Path, Counter[Any]]) -> None:
    texts = {key: times for key, times in counted[1].items() if key[1] == "tokenised"}
    assert texts and {stage for stage, *_ in texts} == {"corpus"} and set(texts.values()) == {1}


def test_labelling_and_prompts_have_no_loop_over_rows(counted: tuple[Path, Counter[Any]]) -> None:
    """As many calls of Python functions for a few examples as for all."""
    examples, encoded = load(counted[0] / "examples"), read_shop(load(counted[0] / "corpus"))
    text = corpus.CorpusRun.model_validate(load(counted[0] / "corpus").manifest.config).text
    shard = max(shards(examples), key=lambda part: len(part.examples))
    few = shard.examples.group_by("split", maintain_order=True).head(2)

    def calls(rows: pl.DataFrame) -> int:
        count = 0

        def called(frame: Any, event: str, arg: Any) -> None:
            nonlocal count
            count += event == "call"

        sys.setprofile(called)
        try:
            part = label_examples(shard.users, shard.events, rows, "train", encoded.item_labels)
            corpus.write_prompts(Ragged(part.items.offsets, part.items.values), encoded, text)
        finally:
            sys.setprofile(None)
        return count

    calls(few)  # what is computed once is computed
    assert len(shard.examples) > 10 * len(few) and calls(shard.examples) == calls(few)
