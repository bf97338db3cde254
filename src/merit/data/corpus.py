"""corpus: events are labelled once and texts tokenised once. Every later stage reads this and never the events.

The artifact: train, validation, test and now.parquet (all users as they are at the end of the data) with a row per
example: user_id, when, week, gold, the items bought, later purchases, labels of the history with counts, words of its
titles, items and days between them and the purchase, and the prompt in tokens; now.parquet also says which were
bought. purchases.parquet has such rows without prompts and with the nearest items only, for the factor model.
tokens.safetensors and tokenizer.json: labels and items in tokens; without a tokenizer there are neither these nor
prompts. words.json: the title words. trends.npy: the popularity of labels by week. item_weeks.parquet: events of
training users by week and item. label_verticals.parquet: training events by label and vertical. label_counts.parquet:
events and users of each label. items.parquet: a copy of that of the examples.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import Field
from scipy.sparse import coo_array, csr_array

from merit.core import artifacts, console, weights
from merit.core.artifacts import Artifact
from merit.core.config import Frozen
from merit.core.errors import DataError
from merit.core.ragged import Ragged, column_lists, list_column, owners
from merit.core.types import SPLITS, Ints, Split
from merit.data import texts, tokenizer
from merit.data.examples import DAY, build_examples, current_histories, history_window, reversed_window
from merit.data.labelled import LabelledExamples, incidence, label_examples, label_histories
from merit.data.patches import pool
from merit.data.prepare import PrepareRun, Shard, shards
from merit.data.texts import EncodedShop, TextConfig, write_patched, write_prompts
from merit.data.title_words import TitleWords, vocabulary
from merit.data.tokenizer import Vocabulary
from merit.data.trends import ItemTrends, trends_of, week_of
from merit.labels import space
from merit.labels.space import LabelSpace

NOW = "now"
PURCHASES = "purchases"
WORDS = "words.json"
TRENDS = "trends.npy"
ITEM_WEEKS = "item_weeks.parquet"
VERTICALS = "label_verticals.parquet"
LABEL_COUNTS = "label_counts.parquet"
UNKNOWN = "unknown"  # vertical
LISTS = ("gold", "target_items", "history", "later", "items")  # of labelled examples
LABELS = 16_384  # whose trends are computed at a time


class CorpusConfig(Frozen):
    """What is kept of examples, users and purchases."""

    title_words: int = Field(4_000, ge=0)
    """Words of titles that the factor model reads; 0 for none: the paper."""
    purchases_per_user: int = Field(8, ge=0)
    """Purchases of each training user that the factor model learns from, each with the history before it and with the
    reversed history after it (docs/decisions/0013-hindsight.md). 0: it learns from the examples."""
    min_purchases: int = Field(50_000, ge=0)
    """Where users are few, more purchases of each are taken until there are so many."""
    recent_items: int = Field(100, ge=1)
    """Of each of these purchases so many items of its history are kept, the nearest in time."""


class TokenizerConfig(Frozen):
    """The words of the generator: learnt from this shop, or those of a pretrained backbone."""

    backbone: str = "tiny"
    size: int = 4096
    whole_labels: int = 2000


class CorpusRun(Frozen):
    """The settings of this stage."""

    corpus: CorpusConfig = CorpusConfig()
    text: TextConfig = TextConfig()
    tokenizer: TokenizerConfig | None = TokenizerConfig()
    """None for a corpus without tokens and prompts, where no generator is to be trained."""


def build_corpus(examples: Artifact, labels: Artifact, out: Path, config: CorpusRun, seed: int) -> Artifact:
    """The corpus, made in one pass over the shards of the examples."""
    label_space = space.load(labels.path)
    items = pl.read_parquet(examples.file("items.parquet"))
    sold = pl.read_parquet(examples.file("item_counts.parquet"))["count"].to_numpy().astype(np.int64)
    parents = {"examples": examples, "labels": labels}
    with artifacts.writing(out, "corpus", config=config, seed=seed, parents=parents) as draft:
        shop = _encoded(items, labels, label_space, config) if config.tokenizer else None
        item_labels = shop.item_labels if shop else Ragged(*space.item_labels(label_space, items))
        title_words = TitleWords.of(vocabulary(items["title"], sold, config.corpus.title_words), items["title"])
        builder = _Builder(examples, item_labels, shop, title_words, config, seed, len(label_space))
        draft.summary |= builder.write(draft.path)
        _write_trends(builder.weekly, builder.carried, draft.path / TRENDS)
        _weekly_table(builder.weekly).write_parquet(draft.path / ITEM_WEEKS)
        pl.DataFrame(builder.label_counts.T, schema=["events", "users"]).write_parquet(draft.path / LABEL_COUNTS)
        if shop:
            texts.save(shop, draft.path)
        (draft.path / WORDS).write_text(json.dumps(title_words.vocabulary, ensure_ascii=False), encoding="utf-8")
        vertical_counts(items["vertical"], sold, item_labels).write_parquet(draft.path / VERTICALS)
        shutil.copyfile(examples.file("items.parquet"), draft.path / "items.parquet")
        draft.summary |= {name: examples.manifest.summary[name] for name in ("users", "events", "first", "last")}
        draft.summary |= {name: getattr(builder.prepare, name) for name in ("history_days", "gap_days")}
    return artifacts.load(out, "corpus")


def _encoded(items: pl.DataFrame, labels: Artifact, label_space: LabelSpace, config: CorpusRun) -> EncodedShop:
    """Labels and items in tokens."""
    assert config.tokenizer is not None
    with console.spinner(f"tokenising {len(label_space):,} labels and {len(items):,} items"):
        words = _vocabulary(items, label_space, config.tokenizer)
        if config.text.cluster_form == "token":
            words = tokenizer.of(words.tokenizer, clusters=labels.manifest.summary["clusters"])
        return texts.encode_shop(items, labels, label_space, words, config.text)


class _Builder:
    """Tables of a corpus, shard by shard. On the way, events are counted: of training users by week and item, and of
    all users by label."""

    def __init__(
        self,
        examples: Artifact,
        item_labels: Ragged,
        shop: EncodedShop | None,
        words: TitleWords,
        config: CorpusRun,
        seed: int,
        labels: int,
    ) -> None:
        self.examples, self.words, self.config, self.seed = examples, words, config, seed
        self.item_labels, self.shop = item_labels, shop
        self.prepare = PrepareRun.model_validate(examples.manifest.config).prepare
        self.first, self.last = (int(examples.manifest.summary[name]) for name in ("first", "last"))
        weeks = 1 + int(week_of(np.array([self.last]), self.first)[0])
        self.weekly: Any = csr_array((weeks, len(item_labels)))
        self.carried = incidence(item_labels, labels)
        self.label_counts = np.zeros((2, labels), np.int64)  # events, users

    def write(self, folder: Path) -> dict[str, int]:
        """How many rows each table has."""
        writers: dict[str, pq.ParquetWriter] = {}
        rows = dict.fromkeys((*SPLITS, NOW), 0)
        number = self.examples.manifest.summary["shards"]
        try:
            for shard in console.track(shards(self.examples), "labelling events", total=number):
                self._count(shard)
                for name, part in self._parts(shard):
                    table = self._table(part, whole=name != PURCHASES, bought=name == NOW).to_arrow()
                    if name not in writers:
                        writers[name] = pq.ParquetWriter(folder / f"{name}.parquet", table.schema, compression="zstd")
                    writers[name].write_table(table)
                    rows[name] = rows.get(name, 0) + len(part)
        finally:
            for writer in writers.values():
                writer.close()
        for split in SPLITS:
            if not rows[split]:
                raise DataError(f"No {split} example is left: every target's labels are blocked or retired.")
        return rows

    def _parts(self, shard: Shard) -> Iterator[tuple[str, LabelledExamples]]:
        item_labels, config = self.item_labels, self.config.corpus
        for split in SPLITS:
            yield split, label_examples(shard.users, shard.events, shard.examples, split, item_labels)
        present = current_histories(shard.events, shard.users, self.last + 1, self.prepare)
        yield NOW, label_histories(shard.users, shard.events, present, item_labels)
        if config.purchases_per_user:
            train_users = int(self.examples.manifest.summary["train_users"])
            most = max(config.purchases_per_user, -(-config.min_purchases // train_users))
            tagged = item_labels.lengths() > 0
            for window in (history_window, reversed_window):
                chosen = build_examples(shard.events, shard.users, tagged, self.prepare, self.seed, window, most)
                part = label_examples(shard.users, shard.events, chosen, SPLITS[0], item_labels)
                yield PURCHASES, _backwards(part) if window is reversed_window else part

    def _table(self, part: LabelledExamples, whole: bool, bought: bool) -> pl.DataFrame:
        words, text = self.words.in_histories(part.items), self.config.text
        weeks = week_of(part.when - DAY * self.prepare.gap_days, self.first)
        columns = {"gold": part.gold, "target_items": part.target_items, "later": part.later, "history": part.history}
        columns |= {name: Ragged(part.history.offsets, getattr(part, name)) for name in ("counts", "purchases")}
        columns |= {"words": words.words, "word_counts": Ragged(words.words.offsets, words.times)}
        items = {"items": part.items, "days": Ragged(part.items.offsets, part.days)}
        if whole:
            columns |= items
        else:
            columns |= {name: column.tail(self.config.corpus.recent_items) for name, column in items.items()}
        if whole and self.shop:
            columns |= {"prompt": write_prompts(part.items, self.shop, text)}
        if (
            whole and self.shop and text.patching
        ):  # also the longer ones that are pooled, and the tokens of each position
            tokens, sizes = write_patched(part.items, self.shop, text.prompt, text.patching)
            columns |= {"patched": tokens, "patched_sizes": sizes}
        lists = {name: list_column(rows.values.astype(np.uint32), rows.lengths()) for name, rows in columns.items()}
        if bought and part.bought is not None:
            lists["bought"] = list_column(part.bought, part.items.lengths())
        numbers = {"when": part.when, "week": weeks.astype(np.uint32)}
        return pl.DataFrame({"user_id": pl.Series(part.user_ids, dtype=pl.String), **numbers, **lists})

    def _count(self, shard: Shard) -> None:
        times, users, items = (shard.events[name].to_physical().to_numpy() for name in ("timestamp", "user", "item"))
        ones, by_user = np.ones(len(items), np.int64), (len(shard.users), len(self.item_labels))
        labelled = coo_array((ones, (users, items)), shape=by_user).tocsr() @ self.carried
        events = np.bincount(labelled.indices, labelled.data, labelled.shape[1])
        self.label_counts += [events.astype(np.int64), np.bincount(labelled.indices, minlength=labelled.shape[1])]
        training = (shard.users["split"] == SPLITS[0]).to_numpy()[users]
        weeks = week_of(times[training], self.first)
        self.weekly += coo_array((ones[training], (weeks, items[training])), shape=self.weekly.shape).tocsr()


def _backwards(part: LabelledExamples) -> LabelledExamples:
    """Reversed histories with the item nearest to the purchase last, as in the others."""
    days = Ragged(part.items.offsets, part.days).backwards().values
    return replace(part, items=part.items.backwards(), days=days)


@artifacts.opens
def read_words(made: Artifact) -> list[str]:
    """The words of titles that the corpus has counted, or those that a model was trained with."""
    words: list[str] = json.loads(made.file(WORDS).read_text(encoding="utf-8"))
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise TypeError("not a list of words")
    return words


@artifacts.opens
def read_table(corpus: Artifact, split: str, *columns: str) -> pl.DataFrame:
    """Rows of a split, all columns or some."""
    return pl.read_parquet(corpus.file(f"{split}.parquet"), columns=list(columns) or None)


def current_columns(corpus: Artifact) -> list[str]:
    """What tells the items of histories at the end of the data; a corpus of an older merit does not say `bought`."""
    return [
        name for name in ("items", "days", "bought") if name in pl.read_parquet_schema(corpus.file(f"{NOW}.parquet"))
    ]


def purchases_table(corpus: Artifact) -> str:
    """The table that the factor model learns from: purchases where the corpus has them, else the training examples."""
    return PURCHASES if f"{PURCHASES}.parquet" in corpus.manifest.files else SPLITS[0]


def vertical_names(corpus: Artifact, label_space: LabelSpace) -> list[str]:
    """All verticals, of labels and of items, by name."""
    return sorted({*label_space.table["vertical"].fill_null(UNKNOWN), *item_verticals(corpus)})


def item_verticals(corpus: Artifact) -> pl.Series:
    """The vertical of every item."""
    return pl.read_parquet(corpus.file("items.parquet"), columns=["vertical"])["vertical"].fill_null(UNKNOWN)


def item_trends(corpus: Artifact) -> ItemTrends:
    """The trends of all items, by week."""
    return ItemTrends.of(item_weeks(corpus).toarray())


def item_weeks(corpus: Artifact) -> Any:
    """(weeks, items), sparse: events of training users."""
    table = pl.read_parquet(corpus.file(ITEM_WEEKS))
    weeks = len(np.load(corpus.file(TRENDS), mmap_mode="r", allow_pickle=False)) - 1
    items = pl.scan_parquet(corpus.file("items.parquet")).select(pl.len()).collect().item()
    counts, places = table["count"].to_numpy().astype(np.float64), (table["week"].to_numpy(), table["item"].to_numpy())
    return coo_array((counts, places), shape=(weeks, items)).tocsr()


def read_examples(corpus: Artifact, split: Split | str) -> LabelledExamples:
    """The examples of a split."""
    table = read_table(corpus, split, "user_id", "when", *LISTS, "counts", "purchases", "days")
    lists = {name: column_lists(table[name]) for name in LISTS}
    counts, purchases, days = (column_lists(table[name]).values for name in ("counts", "purchases", "days"))
    when = table["when"].to_numpy().astype(np.int64)
    return LabelledExamples(
        counts=counts,
        purchases=purchases,
        days=days,
        when=when,
        user_ids=table["user_id"].to_list(),
        bought=None,
        **lists,
    )


def read_inputs(corpus: Artifact, split: str) -> Ragged:
    """The prompts of a split as a trained generator reads them: with patches where the settings have them."""
    return inputs_of(read_table(corpus, split, *input_columns(corpus)))


def input_columns(corpus: Artifact) -> list[str]:
    """The columns from which `inputs_of` makes prompts."""
    patching = CorpusRun.model_validate(corpus.manifest.config).text.patching
    return ["patched", "patched_sizes"] if patching else ["prompt"]


def inputs_of(rows: pl.DataFrame) -> Ragged:
    """Prompts as a trained generator reads them, from the columns of a table."""
    if "patched" in rows.columns:
        return pool(column_lists(rows["patched"]), column_lists(rows["patched_sizes"]))
    return column_lists(rows["prompt"])


def _vocabulary(items: pl.DataFrame, label_space: LabelSpace, config: TokenizerConfig) -> Vocabulary:
    """A tiny backbone learns the words of the shop, its most frequent live labels whole; a pretrained one brings its
    own."""
    if config.backbone != "tiny":
        return tokenizer.pretrained(weights.backbone_folder(config.backbone))
    live = label_space.table.filter(pl.col("status") == "live").sort("count", "id", descending=[True, False])["text"]
    whole = live.head(max(0, min(config.whole_labels, config.size - 1024)))
    return tokenizer.train([*items["title"], *live], whole.to_list(), config.size)


def vertical_counts(verticals: pl.Series, sold: Ints, item_labels: Ragged) -> pl.DataFrame:
    """Training events by label and vertical of the item."""
    owner = owners(item_labels)
    events = {"label": item_labels.values, "vertical": verticals.fill_null(UNKNOWN).gather(owner), "count": sold[owner]}
    return pl.DataFrame(events).group_by("label", "vertical").agg(pl.col("count").sum()).sort("label", "vertical")


def _weekly_table(weekly: Any) -> pl.DataFrame:
    """week, item and count, from (weeks, items), sparse."""
    entries = weekly.tocoo()
    columns = {"week": entries.row, "item": entries.col, "count": entries.data}
    return pl.DataFrame({name: values.astype(np.uint32) for name, values in columns.items()}).sort("week", "item")


def _write_trends(weekly: Any, carried: Any, file: Path) -> None:
    """(weeks + 1, labels) in half precision, from the events of training users by week and item."""
    shape = (weekly.shape[0] + 1, carried.shape[1])
    trends = np.lib.format.open_memmap(file, mode="w+", dtype=np.float16, shape=shape)
    for at, block in label_trends(weekly, carried):
        trends[:, at : at + LABELS] = block
    trends.flush()


def label_trends(weekly: Any, carried: Any) -> Iterator[tuple[int, NDArray[np.float16]]]:
    """(weeks + 1, labels), some labels after the others with the number of the first."""
    columns, total = carried.tocsc(), weekly @ np.diff(carried.indptr)
    for at in range(0, carried.shape[1], LABELS):
        yield at, trends_of((weekly @ columns[:, at : at + LABELS]).toarray(), total)
