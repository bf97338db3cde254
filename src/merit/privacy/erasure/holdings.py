"""Which files of an artifact hold users, kind by kind, and how they are written without some of them.

A kind or a file that the tables at the end do not have is refused: nothing must be passed over in silence.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from merit.campaigns.audiences.export import safe
from merit.core import artifacts
from merit.core.artifacts import MANIFEST, Artifact
from merit.core.errors import DataError
from merit.core.types import SPLITS, Ints, Split
from merit.data.corpus import ITEM_WEEKS, LABEL_COUNTS, NOW, PURCHASES, TRENDS, VERTICALS, WORDS
from merit.data.normalise import identity
from merit.data.prepare import shard_files
from merit.data.texts import TOKENIZER, TOKENS
from merit.privacy.erasure import rewrite
from merit.retrieval import store
from merit.retrieval.build import SINCE
from merit.retrieval.exact import Exact

USER, EXAMPLE = "user_id", "example"
COUNTS, QUARANTINE, HITS = "item_counts.parquet", "quarantine.parquet", "hits.safetensors"
TAKEN_OUT = "<p>Taken out when users were erased.</p>"


@dataclass(frozen=True)
class HeldFiles:
    """Files that are written together, and the number of rows of these users in them."""

    files: tuple[str, ...]
    rows: int
    write: Callable[[Path], None]
    """Into a folder, without those rows."""
    always: bool = False
    """Whether they are written whoever is erased."""


class ExampleOwners:
    """The user of each example. Files without ids have their rows in the order of the corpus."""

    def __init__(self, found: Sequence[Artifact] = ()) -> None:
        self._by_hash = {artifact.manifest.hash: artifact for artifact in found}
        self._owners: dict[tuple[str, str], pl.Series] = {}

    def users(self, artifact: Artifact, split: str) -> pl.Series | None:
        """None where the corpus is gone: then nothing can tell whose the rows were."""
        corpus = self._corpus(artifact)
        if corpus is None:
            return None
        key = (corpus.manifest.hash, split)
        if key not in self._owners:
            self._owners[key] = pl.read_parquet(corpus.file(f"{split}.parquet"), columns=[USER])[USER]
        return self._owners[key]

    def _corpus(self, artifact: Artifact) -> Artifact | None:
        parent = artifact.manifest.parents["corpus"]
        place = artifact.path.parent / parent.path
        if (place / MANIFEST).exists() and (near := artifacts.load(place, verify=False)).manifest.hash == parent.hash:
            return near
        return self._by_hash.get(parent.hash)


class Holdings:
    """What an artifact holds of some users; the function of its kind in KINDS fills it."""

    def __init__(self, artifact: Artifact, users: frozenset[str], owners: ExampleOwners) -> None:
        self.artifact, self.users, self.owners = artifact, users, owners
        self.files: list[HeldFiles] = []
        self.found = set[str]()
        """The users who are named in it."""
        self.parts = Counter[str]()
        """Users by split, or by arm."""
        self.summary: dict[str, Any] = {}
        """Figures of the manifest that change."""
        self.unlinked = False
        """Whether it has rows of which nothing tells whose they are."""

    @property
    def rows(self) -> int:
        """The rows of these users in all files; those of files that are written together count once."""
        return sum(group.rows for group in self.files)

    @property
    def changes(self) -> list[HeldFiles]:
        """The files that must be written again."""
        return [group for group in self.files if group.rows or group.always]

    def rows_of(self, ids: pl.Series) -> Ints:
        """The rows of these users."""
        return np.flatnonzero(ids.is_in(list(self.users)).fill_null(False).to_numpy())

    def named(self, ids: pl.Series) -> Ints:
        """The same for ids that stand in the artifact."""
        rows = self.rows_of(ids)
        self.found.update(ids.gather(rows))
        return rows

    def drop(self, names: Sequence[str], rows: Ints, numbered: str | None = None) -> None:
        """Files that all lose the same rows."""

        def write(out: Path) -> None:
            for name in names:
                (out / name).parent.mkdir(exist_ok=True)
                rewrite.drop_rows(self.artifact.file(name), out / name, rows, numbered)

        self.files.append(HeldFiles(tuple(names), len(rows), write))

    def drop_users(self, name: str, user: str = USER) -> Ints:
        """The rows that a table loses, for their ids."""
        rows = self.named(pl.read_parquet(self.artifact.file(name), columns=[user])[user])
        self.drop([name], rows)
        return rows

    def rewrite(self, name: str, text: str, changed: bool) -> None:
        """A text that shows somebody's examples and does not tell whose: written again whoever is erased."""
        write = lambda out: (out / name).write_text(text, encoding="utf-8")  # noqa: E731
        self.files.append(HeldFiles((name,), 0, write, always=changed))

    def subtract(self, counts: Mapping[str, int]) -> None:
        """Lower those of these figures that the manifest has."""
        figures = self.artifact.manifest.summary
        self.summary |= {name: figures[name] - count for name, count in counts.items() if name in figures}


def holdings(artifact: Artifact, users: frozenset[str], owners: ExampleOwners) -> Holdings:
    """What this artifact holds of these users."""
    kind, held = artifact.manifest.kind, Holdings(artifact, users, owners)
    refusal = "`merit erase` does not know. Nothing was changed: remove it, or update merit."
    if kind in WITHOUT_USERS:
        return held
    if kind not in KINDS:
        raise DataError(f"{artifact.path} is of the kind '{kind}', which {refusal}")
    fill, without_users = KINDS[kind]
    fill(held)
    judged = {name for group in held.files for name in group.files}
    for name in artifact.manifest.files:
        if name not in judged and not any(fnmatch(name, pattern) for pattern in without_users):
            raise DataError(f"{artifact.path / name} is a file that {refusal}")
    return held


# --- tables with a user in every row ---------------------------------------------------------------------------------


def _examples(held: Holdings) -> None:
    """Shards, whose users are numbers; how often training users met each item; and rows that could not be read."""
    artifact, counts, erased, spans = held.artifact, Counter[str](), [], []
    item_counts = pl.read_parquet(artifact.file(COUNTS))
    less = np.zeros(len(item_counts), dtype=np.int64)
    for number in range(artifact.manifest.summary["shards"]):
        names = shard_files(number)
        users, events, built = (pl.scan_parquet(artifact.file(name)) for name in names)
        users = users.select(USER, "user", "split").filter(pl.col(USER).is_in(list(held.users)))
        shard = users.with_columns(pl.col("split").cast(pl.String)).collect()
        theirs = pl.col("user").is_in(shard["user"].to_list())
        training = pl.col("user").is_in(shard.filter(pl.col("split") == SPLITS[0])["user"].to_list())
        others = pl.col("timestamp").to_physical().filter(~theirs)
        items = pl.col("item").filter(training).implode()
        totals = events.select(items, rows=theirs.sum(), first=others.min(), last=others.max()).collect()
        less += np.bincount(totals["item"][0].to_numpy(), minlength=len(less))
        spans.append(totals.select("first", "last"))
        splits = Counter(built.filter(theirs).select(pl.col("split").cast(pl.String)).collect()["split"])
        total = Counter({"users": len(shard), "events": totals["rows"][0], "examples": splits.total()})
        counts += total + splits
        held.files.append(HeldFiles(names, total.total(), partial(rewrite.write_shard, artifact, number, shard)))
        erased.append(shard)

    def write(out: Path) -> None:
        left = pl.Series(item_counts["count"].to_numpy().astype(np.int64) - less, dtype=pl.UInt64)
        item_counts.with_columns(count=left).write_parquet(out / COUNTS)

    held.files.append(HeldFiles((COUNTS,), int((less > 0).sum()), write))
    all_erased = pl.concat(erased)
    held.found.update(all_erased[USER])
    held.parts.update(all_erased["split"])
    held.subtract({**counts, "train_users": held.parts[SPLITS[0]]})
    held.summary |= pl.concat(spans).select(pl.min("first"), pl.max("last")).row(0, named=True)
    if QUARANTINE in artifact.manifest.files:  # ids are read as `prepare` reads them
        original = pl.read_parquet(artifact.file(QUARANTINE), columns=["original"])["original"]
        ids = original.str.json_path_match("$.user_id").str.strip_chars().str.replace(r"^(\d+)\.0$", "${1}")
        aside = held.named(ids)
        held.drop([QUARANTINE], aside)
        held.subtract({"set_aside": len(aside)})


def _tables(held: Holdings, names: Sequence[str], total: str = "") -> None:
    """Tables of users, with their arms if they have any. Figures of the manifest: `total`, by table, and by arm."""
    config = held.artifact.manifest.config
    user, arm = config.get("user", USER), config.get("arm", "arm")  # as the design of an assignment names them
    for name in held.artifact.manifest.files:
        if any(fnmatch(name, pattern) for pattern in names):
            rows, file = held.drop_users(name, user), held.artifact.file(name)
            if arm in pl.read_parquet_schema(file):
                held.parts.update(pl.read_parquet(file, columns=[arm])[arm].gather(rows).cast(pl.String))
            held.subtract({name.removesuffix(".parquet"): len(rows), total: len(rows), **held.parts})


def _snapshot(held: Holdings) -> None:
    """Rows of interactions as a database gave them. Copies of files are not looked into."""
    artifact = held.artifact
    if artifact.manifest.config["kind"] != "sql":
        raise DataError(
            f"{artifact.path} is a copy of tables as they are elsewhere. Nothing was changed: erase the users there, "
            "remove this folder, and copy the tables again with `merit data pull CONFIG`."
        )
    table, gone = artifact.manifest.summary["interactions"], 0
    for name in artifact.manifest.files:
        if name.startswith("interactions/"):
            frame = pl.scan_parquet(artifact.file(name))
            ids = frame.select(identity(frame, table["users"][0], text=False)).collect().to_series()
            rows = held.named(ids)
            held.drop([name], rows)
            gone += len(rows)
    held.summary["interactions"] = table | {"rows": table["rows"] - gone}


def _states(held: Holdings) -> None:
    """Arrays with a row for each row of the corpus."""
    for split in (*SPLITS, NOW):
        names, rows = [f"{split}.npy", f"{split}-counts.npy", f"likely-{split}.parquet"], np.empty(0, np.int64)
        names = [name for name in names if name in held.artifact.manifest.files]
        if not names:
            continue
        users = held.owners.users(held.artifact, split)
        if users is None:
            held.unlinked = True
        else:
            _require_length(held.artifact, names[0], held.artifact.manifest.summary[split], len(users))
            rows = held.rows_of(users)
        held.drop(names, rows)
        held.subtract({split: len(rows)})


def require_users_left(artifact: Artifact, users: frozenset[str]) -> None:
    """Refuse to empty a model: there is no file without any user."""
    ids = pl.read_parquet(artifact.file("users.parquet"), columns=[USER])[USER]
    if ids.is_in(list(users)).all():
        raise DataError(f"No user would be left in {artifact.path}. Nobody was erased: remove that folder instead.")


def _model(held: Holdings) -> None:
    artifact, gone = held.artifact, held.drop_users("users.parquet")

    def write(out: Path) -> None:
        layers = Exact.read(artifact.file("mlp.safetensors"))
        (out / "users").mkdir(exist_ok=True)
        store.without(artifact.file("users"), out / "users", gone, layers.users)

    vectors = tuple(name for name in artifact.manifest.files if name.startswith("users/"))
    held.files.append(HeldFiles(vectors, len(gone), write))
    if SINCE in artifact.manifest.files:
        held.drop_users(SINCE)
    held.subtract({"users": len(gone)})


def _export(held: Holdings) -> None:
    form = held.artifact.manifest.config["form"]
    name = f"audience.{form}"
    if form == "parquet":
        held.drop_users(name)
    else:
        file = held.artifact.file(name)
        written = {str(pl.select(safe(pl.lit(user))).item()) if form == "csv" else user: user for user in held.users}
        rows = [value for _, value in rewrite.records(file, USER) if value in written]
        held.found.update(written[value] for value in rows)
        drop = partial(rewrite.drop_lines, file, column=USER, values=frozenset(written))
        held.files.append(HeldFiles((name,), len(rows), lambda out: drop(out / name)))
    held.subtract({"rows": held.rows})


# --- rows in the order of the examples -------------------------------------------------------------------------------


def _ordered(held: Holdings, split: Split) -> None:
    """Tables with a row for each example; and, of a benchmark, what every test user adds to a figure, sorted by id."""
    artifact, users = held.artifact, held.owners.users(held.artifact, split)
    by_user = [name for name in artifact.manifest.files if name == HITS]
    tables = [name for name in artifact.manifest.files if name in ORDERED or name.startswith("predictions-")]
    if users is None:
        held.unlinked = True
        held.drop([*tables, *by_user], np.empty(0, np.int64))
        return
    rows = held.rows_of(users)
    for name in tables:
        table = pl.scan_parquet(artifact.file(name))
        _require_length(artifact, name, table.select(pl.len()).collect().item(), len(users))
        held.drop([name], rows, EXAMPLE if EXAMPLE in table.collect_schema() else None)
    if by_user:
        held.drop(by_user, held.rows_of(users.unique().sort()))
    held.subtract({"examples": len(rows)})


ORDERED = ("mined.parquet", "after-gold.parquet", "after-mistakes.parquet", "left.parquet")


def _require_length(artifact: Artifact, name: str, rows: int, examples: int) -> None:
    if rows != examples:
        raise DataError(
            f"{artifact.path / name} has {rows:,} rows for {examples:,} examples: users were erased from one of "
            "them and not from the other. Make it again with `merit run`, or remove it."
        )


# --- pages that show a few random examples ----------------------------------------------------------------------------


def _page(held: Holdings, title: str) -> None:
    """The section of that title is taken out, whoever it is about."""
    section = re.compile(rf'(<section id="s\d+">\n<h2>{title}</h2>\n)(?!{re.escape(TAKEN_OUT)}).*?(</section>)', re.S)
    text = held.artifact.file("index.html").read_text(encoding="utf-8")
    held.rewrite("index.html", section.sub(rf"\1{TAKEN_OUT}\n\2", text), bool(section.search(text)))


def _bench_results(held: Holdings) -> None:
    results = json.loads(held.artifact.file("results.json").read_text(encoding="utf-8"))
    text = json.dumps(results | {"pictures": []}, indent=1) + "\n"
    held.rewrite("results.json", text, bool(results["pictures"]))


# Weights, labels, and figures over many users.
WITHOUT_USERS = {
    *("labels", "factors", "generator", "propensity", "weights", "erasure", "tags"),
    *("experiment-design", "lift", "pooled-lift"),
}
# By kind: what finds the rows of users, and the files without any.
KINDS: dict[str, tuple[Callable[[Holdings], None], tuple[str, ...]]] = {
    "examples": (_examples, ("items.parquet",)),
    "snapshot": (_snapshot, ("items/*",)),
    "mined": (partial(_ordered, split="train"), ()),
    "corpus": (
        partial(_tables, names=[f"{name}.parquet" for name in (*SPLITS, NOW, PURCHASES)]),
        ("items.parquet", VERTICALS, LABEL_COUNTS, WORDS, TRENDS, ITEM_WEEKS, TOKENS, TOKENIZER),
    ),
    "states": (_states, ()),
    "predictions": (partial(_ordered, split="test"), ("audiences.parquet", "reliability.parquet")),
    "cell": (partial(_ordered, split="test"), ("reliability.parquet",)),
    "model": (
        _model,
        (
            *("labels/*", "propensity/*", "generator/*", "interests/*", "later/*", "log/*"),
            *("items.parquet", "mlp.safetensors", "verticals.*", "windows.json", "README.md"),
        ),
    ),
    "parts": (partial(_tables, names=["*"]), ()),
    "data-report": (partial(_page, title="Examples in words"), ("figures.json", "README.md")),
    "results": (partial(_page, title="Cascades in pictures"), ("figures.parquet", "results.md")),
    "bench-results": (_bench_results, ("figures.parquet",)),
    "audience": (
        partial(_tables, names=["members.parquet"], total="members"),
        ("audience.json", "request.json", "index.html"),
    ),
    "audience-export": (_export, ()),
    "assignment": (partial(_tables, names=["assignment.parquet"], total="users"), ()),
}
