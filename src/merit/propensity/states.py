"""states: a trained generator → what it knows of every user, at the classification positions of its first labels.

The artifact: for train, validation, test and now (every user as they stand at the end of the data) the states, and
SPLIT.parquet with a row per user beside them: user_id, gold, what was bought later, the labels of the history, the
words of its titles (words.json has them all), and the week of asking: a row of trends.npy, how popular labels were.
purchases.parquet is such a table without states: what the product of the propensity model learns from.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
from pydantic import Field

from merit.core import artifacts
from merit.core.artifacts import Artifact
from merit.core.config import Frozen
from merit.core.errors import DamagedArtifact, DataError
from merit.core.ragged import Ragged, column_lists, list_column
from merit.core.types import Split
from merit.data.examples import DAY, current_histories, hindsight_window, history_window, training_examples
from merit.data.labelled import LabelledExamples, joined, label_examples, label_histories
from merit.data.patches import windows_of
from merit.data.prepare import PrepareRun, shards
from merit.data.texts import EncodedShop
from merit.data.title_words import TitleWords, WordCounts, vocabulary
from merit.data.trends import Trends, week_of
from merit.engine.job import EngineConfig
from merit.engine.run import INLINE, Parts, make_parts, workplace
from merit.generator.decoding import DecodeConfig, decode
from merit.generator.model import TOGETHER, read_labelled
from merit.generator.worker import Asked, Speaker, job_of, rows_of, threads_of
from merit.propensity import features
from merit.propensity.features import States, UserFeatures
from merit.propensity.weekly import write_trends

SPLITS: tuple[Split, ...] = ("train", "validation", "test")
NOW = "now"
WORDS = "words.json"
TRENDS = "trends.npy"
PURCHASES = "purchases"


class StatesConfig(Frozen):
    """What is kept of examples, users and purchases for the propensity model."""

    labels: int = Field(5, ge=1)
    """States of so many labels are kept; a propensity model may use fewer. END is suppressed, so all are there."""
    words: int = Field(4_000, ge=0)
    """So many words of titles are known to the propensity model; 0 for none: the paper."""
    purchases: int = Field(8, ge=0)
    """The product of the propensity model learns from so many purchases of each training user, with what came before
    and, once more, with what came after (docs/decisions/0013-hindsight.md). 0: from the examples, as all else does."""
    enough: int = Field(50_000, ge=0)
    """Purchases: a shop of few users gives more of each until there are so many."""


def write_states(
    generator: Artifact,
    examples: Artifact,
    labels: Artifact,
    out: Path,
    config: StatesConfig,
    seed: int,
    decode_batch: int = TOGETHER,
    engine: EngineConfig = INLINE,
) -> Artifact:
    """Decode every example and every user's present, and keep the states."""
    asked = Asked(generator, examples, labels, config, seed, decode_batch, engine.device)
    speaker = Speaker(asked)
    found = dict(_splits(examples, speaker.shop))
    rows = pl.concat([rows_of(each).with_columns(split=pl.lit(name)) for name, each in found.items()])
    parents = {"generator": generator, "examples": examples, "labels": labels}
    with (
        threads_of(engine) as settled,
        workplace(out, settled) as place,
        artifacts.writing(out, "states", config=config, seed=seed, parents=parents) as draft,
    ):
        parts = make_parts(job_of("states", asked, look), rows, place, settled, speaker)
        words = known_words(examples, config.words)
        first = write_trends(examples, speaker.shop.item_labels, speaker.labels, draft.path / TRENDS)
        (draft.path / WORDS).write_text(json.dumps(words.vocabulary, ensure_ascii=False), encoding="utf-8")
        gap = DAY * PrepareRun.model_validate(examples.manifest.config).prepare.gap_days
        for split, each in (found | _purchases(examples, speaker.shop, config, seed)).items():
            weeks = pl.Series("week", week_of(each.when - gap, first), dtype=pl.UInt32)
            table = _table(each, words.in_histories(each.items), items=split == NOW).with_columns(weeks)
            table.write_parquet(draft.path / f"{split}.parquet")
            draft.summary[split] = len(each)
        width = _gather(parts, draft.path, {split: len(each) for split, each in found.items()}, config.labels)
        draft.summary |= {"labels": config.labels, "width": width}
    return artifacts.load(out, "states")


def look(speaker: Speaker, rows: pl.DataFrame) -> pl.DataFrame:
    """The states of some users: a row's are the bytes of its numbers in half precision."""
    config, trained, prompts = speaker.asked.config, speaker.trained, speaker.prompts(rows)
    assert isinstance(config, StatesConfig)
    how = DecodeConfig(max_labels=config.labels, fixed_budget=True, batch_size=trained.together)
    words, texts = trained.shop.vocabulary, [prompts[row] for row in range(len(prompts))]
    windows = windows_of(prompts)
    said = decode(trained.model, texts, trained.trie, words.sep, words.end, how, states=config.labels, windows=windows)
    known = [each.tobytes() for each in features.half_precision(said.states[:, 0])]
    return rows.select("split", "row").with_columns(states=pl.Series(known), count=pl.Series(said.counts[:, 0]))


def read_states(artifact: Artifact, split: str) -> tuple[pl.DataFrame, UserFeatures]:
    """Who the rows are, and what is known of them."""
    table, found = pl.read_parquet(artifact.file(f"{split}.parquet")), features.read(artifact.path, split)
    if len(table) != len(found):
        raise DataError(f"{artifact.path} has {len(table)} users but {len(found)} states in {split}. Make it again.")
    return table, _known(artifact, table, found)


def read_purchases(artifact: Artifact) -> tuple[Ragged, UserFeatures]:
    """What the product learns from: labels bought, and what is known beside states of who bought them."""
    name = f"{PURCHASES}.parquet" if f"{PURCHASES}.parquet" in artifact.manifest.files else "train.parquet"
    table = pl.read_parquet(artifact.file(name))
    return column_lists(table["gold"]), _known(artifact, table, features.no_states(len(table)))


def _known(artifact: Artifact, table: pl.DataFrame, found: States) -> UserFeatures:
    trends = np.load(artifact.file(TRENDS), mmap_mode="r", allow_pickle=False)
    lists = {name: column_lists(table[name]) for name in ("history", "counts", "words", "word_counts")}
    words = WordCounts(lists["words"], lists["word_counts"].values)
    lately = Trends(table["week"].to_numpy().astype(np.int64), trends)
    return UserFeatures(found, lists["history"], lists["counts"].values, words, lately)


def _splits(examples: Artifact, shop: EncodedShop) -> Iterator[tuple[str, LabelledExamples]]:
    for split in SPLITS:
        yield split, read_labelled(examples, split, shop)
    yield NOW, _present(examples, shop)


def _present(examples: Artifact, shop: EncodedShop) -> LabelledExamples:
    """Every user with a history, as of the last event of the data."""
    config = PrepareRun.model_validate(examples.manifest.config).prepare
    end = 1 + max(int(part.events["timestamp"].to_physical().max() or 0) for part in shards(examples))  # type: ignore[arg-type]
    return joined(
        label_histories(
            part.users,
            part.events,
            current_histories(part.events, part.users, end, config),
            shop.item_labels,
        )
        for part in shards(examples)
    )


def _purchases(examples: Artifact, shop: EncodedShop, config: StatesConfig, seed: int) -> dict[str, LabelledExamples]:
    """Purchases of training users, with what came before and with what came after, under the name of their file."""
    if not config.purchases:
        return {}
    how, tagged = PrepareRun.model_validate(examples.manifest.config).prepare, shop.item_labels.lengths() > 0
    users = sum(int((part.users["split"] == SPLITS[0]).sum()) for part in shards(examples))
    most = max(config.purchases, -(-config.enough // users))
    parts = (
        (part, training_examples(part.events, part.users, tagged, how, seed, window, most))
        for part in shards(examples)
        for window in (history_window, hindsight_window)
    )
    return {
        PURCHASES: joined(
            label_examples(part.users, part.events, found, SPLITS[0], shop.item_labels) for part, found in parts
        )
    }


def known_words(examples: Artifact, most: int) -> TitleWords:
    """The words of titles, chosen by what training users had."""
    titles = pl.read_parquet(examples.file("items.parquet"), columns=["title"])["title"]
    sold = pl.read_parquet(examples.file("item_counts.parquet"))["count"].to_numpy().astype(np.int64)
    return TitleWords.of(vocabulary(titles, sold, most), titles)


def _table(found: LabelledExamples, words: WordCounts, items: bool) -> pl.DataFrame:
    """What later stages need to know of the examples, so that they need not read the events again."""
    columns = {"gold": found.gold, "later": found.later, "history": found.history}
    columns |= {"words": words.words, "word_counts": Ragged(words.words.offsets, words.times)}
    columns |= {"items": found.items} if items else {}
    columns |= {name: Ragged(found.history.offsets, getattr(found, name)) for name in ("counts", "purchases")}
    lists = {name: list_column(each.values.astype(np.uint32), each.lengths()) for name, each in columns.items()}
    return pl.DataFrame({"user_id": pl.Series(found.user_ids, dtype=pl.String), **lists})


def _gather(parts: Parts, folder: Path, users: dict[str, int], labels: int) -> int:
    """Put the states of every part into the files of their splits, one part in memory at a time; their width."""
    kept: dict[str, States] = {}
    filled = width = 0
    for table in parts.tables():
        width = len(table["states"][0]) // (2 * labels)
        kept = kept or {split: features.create(folder, split, size, labels, width) for split, size in users.items()}
        for (split,), own in table.partition_by("split", as_dict=True).items():
            values = np.frombuffer(b"".join(own["states"].to_list()), dtype=np.float16).reshape(-1, labels, width)
            features.fill(kept[str(split)], own["row"].to_numpy().astype(np.int64), values, own["count"].to_numpy())
        filled += table.select("split", "row").n_unique()
    if filled != sum(users.values()):
        raise DamagedArtifact(f"{parts.folder} has not every row once. Remove it and run the same again.")
    return width
