"""The label space: every label has one id for ever, and every name it ever had still leads to it.

    labels, merged = space.build(tags, encoder.same)       # tags: text, count, vertical
    labels.find(["Trail  Running!", "unheard of"])         # [id, -1]

A space is never changed in place; `changes.py` makes the next version of one. The id is the row of the table and of
the vectors.
"""

from __future__ import annotations

import difflib
import json
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from merit.core.config import Frozen
from merit.core.errors import DamagedArtifact, DataError
from merit.core.ids import IdIndex
from merit.core.types import Ints
from merit.labels.names import clean, normalise, skeleton

Same = Callable[[Sequence[str]], list[str]]
Labels = Sequence[str] | Sequence[int]
Findable = Literal["live", "retired"]

COLUMNS = pl.Schema(
    {
        "id": pl.UInt32(),
        "text": pl.String(),
        "key": pl.String(),
        "count": pl.UInt64(),
        "vertical": pl.String(),
        "status": pl.Enum(["live", "retired", "blocked"]),
        "since": pl.Int32(),  # the version in which the label appeared
        "cluster": pl.Int32(),  # -1 until clustered
    }
)
MERGED = pl.Schema({"text": pl.String(), "kept": pl.String(), "reason": pl.String()})
TABLE, ALIASES, CHANGES = "labels.parquet", "aliases.parquet", "changes.json"


class Change(Frozen):
    """One line of the log of a space."""

    version: int
    action: str
    labels: list[int] = []
    reason: str = ""
    before: list[str] = []
    after: list[str] = []


@dataclass(frozen=True)
class LabelSpace:
    """The labels of one version."""

    table: pl.DataFrame
    """One row per label, row number = id; see COLUMNS."""
    aliases: pl.DataFrame
    """key → id, for every surface form ever merged into or renamed to a label. Keys are unique."""
    version: int
    changes: tuple[Change, ...]

    def __len__(self) -> int:
        return self.table.height

    @property
    def texts(self) -> list[str]:
        """By id, as people see them; those of retired and blocked labels too."""
        return self.table["text"].to_list()

    def live_mask(self) -> NDArray[np.bool_]:
        """By id: whether the label may be used, being neither retired nor blocked."""
        return (self.table["status"] == "live").to_numpy()

    def find(self, texts: Sequence[str]) -> Ints:
        """The id of each text under any name it ever had, live or not; -1 where there is none."""
        rows = self._alias_rows.find(pl.Series([normalise(text) for text in texts], dtype=pl.String))
        return np.where(rows >= 0, np.append(self.aliases["id"].to_numpy(), 0)[rows], -1).astype(np.int64)

    @cached_property
    def _alias_rows(self) -> IdIndex:
        return IdIndex.of(self.aliases["key"])


def build(tags: pl.DataFrame, same: Same | None = None, min_count: int = 0) -> tuple[LabelSpace, pl.DataFrame]:
    """A space from rows of (text, count, vertical), and the report of every text that is not a label of its own.

    Texts with one key are one label, shown in its most frequent form. With `same` (an encoder's), labels that the
    encoder cannot tell apart are one as well: their vectors are identical, so no score could ever separate them.
    Ids go by falling count.
    """
    rows = tags.drop_nulls("text").join(named(tags["text"]), on="text")
    keys = _roots(_first(rows, "key", "shown"), same)
    rows = rows.join(keys.select("key", "root", "kept"), on="key", how="left")
    labels = _first(rows, "root", "kept").join(_first(rows, "root", "vertical").select("root", "vertical"), on="root")
    enough = labels.filter(pl.col("total") >= min_count).sort("total", "kept", descending=[True, False])
    table = enough.select(
        id=pl.int_range(pl.len()),
        text="kept",
        key="root",
        count="total",
        vertical="vertical",
        status=pl.lit("live"),
        since=pl.lit(1),
        cluster=pl.lit(-1),
    ).cast(COLUMNS)
    aliases = keys.join(table.select("id", root="key"), on="root").select("key", "id").sort("id", "key")
    made = Change(version=1, action="build", reason=f"{table.height} labels from {rows['text'].n_unique()} texts")
    return LabelSpace(table, aliases, 1, (made,)), _report(rows, labels, min_count)


def named(texts: pl.Series) -> pl.DataFrame:
    """Each distinct text with its shown form and its key. Python runs once per distinct text, not per row."""
    distinct = texts.drop_nulls().unique().sort()
    names = distinct.to_list()
    return pl.DataFrame(
        {"text": distinct, "shown": [clean(name) for name in names], "key": [normalise(name) for name in names]},
        schema={"text": pl.String, "shown": pl.String, "key": pl.String},
    )


def _first(rows: pl.DataFrame, group: str, column: str) -> pl.DataFrame:
    """Per group the total, and the value of `column` with most weight (then in most rows, then first by alphabet)."""
    ranked = (
        rows.filter(pl.col(group) != "")
        .group_by(group, column)
        .agg(pl.col("count").sum(), rows=pl.len())
        .with_columns(total=pl.col("count").sum().over(group))
        .sort(group, "count", "rows", column, descending=[False, True, True, False], nulls_last=True)
    )
    return ranked.unique(group, keep="first", maintain_order=True).select(group, column, "total")


def _roots(keys: pl.DataFrame, same: Same | None) -> pl.DataFrame:
    """Each key with the key (root) and the text (kept) of the label it belongs to: the most frequent of its like."""
    ranked = keys.sort("total", "shown", descending=[True, False])
    like = likeness(ranked["shown"].to_list(), same) if same else ranked["key"].to_list()
    return ranked.with_columns(like=pl.Series(like, dtype=pl.String)).with_columns(
        root=pl.col("key").first().over("like"), kept=pl.col("shown").first().over("like")
    )


def likeness(texts: Sequence[str], same: Same) -> list[str]:
    """A key per text, equal where the encoder reads the same and a person would too.

    To an encoder all signs it does not know are one ([UNK]): 🍕 and 🚀 share a vector, but they are not one label.
    """
    return [f"{like}\x1f{skeleton(text)}" for text, like in zip(texts, same(texts) if texts else [], strict=True)]


def _report(rows: pl.DataFrame, labels: pl.DataFrame, min_count: int) -> pl.DataFrame:
    rare = labels.filter(pl.col("total") < min_count)["root"].implode()
    reason = (
        pl.when(pl.col("key") == "")
        .then(pl.lit("nothing left after normalisation"))
        .when(pl.col("root").is_in(rare))
        .then(pl.lit(f"fewer than {min_count} interactions"))
        .when(pl.col("key") != pl.col("root"))
        .then(pl.lit("equal after tokenisation"))
        .when(pl.col("shown") != pl.col("kept"))
        .then(pl.lit("equal after normalisation"))
    )
    gone = reason.str.contains("^(nothing|fewer)")
    report = rows.select(
        text=pl.when(pl.col("shown") == "").then("text").otherwise("shown"),
        kept=pl.when(~gone).then("kept"),
        reason=reason,
    )
    return report.drop_nulls("reason").unique().sort("text", "reason").cast(MERGED)


def resolve(space: LabelSpace, labels: Labels) -> Ints:
    """The ids of labels given by text or by id; an unknown one is an error that names its nearest neighbours."""
    numbers = [label for label in labels if not isinstance(label, str)]
    ids = np.array(numbers, dtype=np.int64) if numbers else space.find(cast(Sequence[str], labels))
    for label, number in zip(labels, ids.tolist(), strict=True):
        if not 0 <= number < len(space):
            raise DataError(f"There is no label {label!r} in this space. {_hint(space, str(label))}")
    return ids


def _hint(space: LabelSpace, label: str) -> str:
    """Names that look like it. Only keys that share a beginning or a word are compared: difflib is slow on 291k."""
    key = normalise(label)
    words = [key, *(word for word in key.split() if len(word) > 3)]
    alike = pl.col("key").str.starts_with(key[:2]) | pl.col("key").str.contains_any(words)
    near = difflib.get_close_matches(key, space.aliases.filter(alike)["key"].to_list(), n=3, cutoff=0.5)
    named = [f"'{space.table['text'][int(number)]}'" for number in space.find(near)]
    return f"Nearest: {', '.join(dict.fromkeys(named))}." if named else f"No name is similar; see {TABLE}."


def search(space: LabelSpace, typed: str, status: Findable) -> pl.DataFrame:
    """Rows of the space's table: labels that begin like `typed`, then labels with such words; the most frequent first.

    Blocked labels have no status to be searched by.
    """
    table = space.table.filter(pl.col("status") == status)
    key = normalise(typed)
    if key:
        padded = pl.concat_str(pl.lit(" "), "key")
        words = pl.all_horizontal(padded.str.contains(f" {word}", literal=True) for word in key.split())
        begins = pl.col("key").str.starts_with(key)
        table = table.with_columns(begins=begins).filter(begins | words)
        return table.sort("begins", "count", "id", descending=[True, True, False]).drop("begins")
    return table.sort("count", "id", descending=[True, False])


def listed(rows: pl.DataFrame, histories: pl.Series) -> pl.DataFrame:
    """interest, users with it (`histories`: a list of label ids of each user), events of training users, and more."""
    users = histories.explode().drop_nulls().cast(pl.UInt32).alias("id").value_counts(name="users")
    return rows.join(users, on="id", how="left", maintain_order="left").select(
        pl.col("text").alias("interest"),
        pl.col("users").fill_null(0),
        pl.col("count").alias("events"),
        "vertical",
        pl.col("status").cast(pl.String),
    )


def no_match(typed: str, status: Findable, folder: Path) -> str:
    """The message where `search` gives no rows."""
    if normalise(typed):
        command = shlex.join(["merit", "model", "audience", str(folder), typed])
        return f"No {status} interest has words that begin like '{typed}'. Any phrase can be asked for: `{command}`."
    return f"There are no {status} interests in {folder}."


def item_labels(space: LabelSpace, items: pl.DataFrame) -> tuple[Ints, NDArray[np.int32]]:
    """Items (item, tags) → CSR (offsets, label ids): item i has `labels[offsets[i]:offsets[i + 1]]`, no label twice.

    Retired and blocked labels are left out: a blocked label never leaves the space.
    """
    pairs = items.select("item", text="tags").explode("text").drop_nulls("text")
    names = named(pairs["text"]).select("text", "key").join(space.aliases, on="key")
    live = space.table.filter(pl.col("status") == "live").select("id")
    pairs = pairs.join(names, on="text", maintain_order="left").join(live, on="id", how="semi", maintain_order="left")
    pairs = pairs.unique(["item", "id"], keep="first", maintain_order=True).sort("item", maintain_order=True)
    size = int(cast(int, items["item"].max())) + 1 if items.height else 0
    counts = np.bincount(pairs["item"].to_numpy(), minlength=size)
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), pairs["id"].to_numpy().astype(np.int32)


# --- on disk ---------------------------------------------------------------------------------------------------------


def save(space: LabelSpace, folder: Path) -> None:
    """Write three files into a folder that exists, such as an artifact's draft."""
    space.table.write_parquet(folder / TABLE)
    space.aliases.write_parquet(folder / ALIASES)
    log = {"version": space.version, "changes": [change.model_dump() for change in space.changes]}
    (folder / CHANGES).write_text(json.dumps(log, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def load(folder: Path) -> LabelSpace:
    """What `save` wrote. Files that are missing, or not what it writes, are refused as damaged."""
    try:
        log = json.loads((folder / CHANGES).read_text(encoding="utf-8"))
        changes = tuple(Change.model_validate(change) for change in log["changes"])
        table = pl.read_parquet(folder / TABLE).cast(COLUMNS)
        return LabelSpace(table, pl.read_parquet(folder / ALIASES), log["version"], changes)
    except (OSError, ValueError, KeyError, TypeError, pl.exceptions.PolarsError) as error:
        raise DamagedArtifact(
            f"{folder} does not hold a readable label space ({error}). Make it again with `merit run`."
        ) from None
