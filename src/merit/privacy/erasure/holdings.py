"""Which files of an artifact hold users, kind by kind, and how they are written without some of them.

A kind or a file that is not in the table KINDS is refused: what nobody thought of must not be passed over in silence.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
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
from merit.core.types import Ints, Split
from merit.data.corpus import LABEL_COUNTS, NOW, PURCHASES, TRENDS, VERTICALS, WORDS
from merit.data.split import SPLITS
from merit.data.texts import TOKENIZER, TOKENS
from merit.privacy.erasure import rewrite
from merit.retrieval import store
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
    """Whether they are written whoever is erased: a page that shows somebody's example does not tell whose."""


@dataclass(frozen=True)
class Holdings:
    """What an artifact holds of some users."""

    files: tuple[HeldFiles, ...] = ()
    found: frozenset[str] = frozenset()
    """The users who are named in it."""
    parts: Mapping[str, int] = field(default_factory=dict)
    """Users by split, or by arm."""
    summary: Mapping[str, Any] = field(default_factory=dict)
    """Figures of the manifest that change."""
    unlinked: bool = False
    """Whether it has rows of which nothing tells whose they are."""

    @property
    def rows(self) -> int:
        """The rows of these users in all files; those of files that are written together count once."""
        return sum(group.rows for group in self.files)

    @property
    def changes(self) -> list[HeldFiles]:
        """The files that must be written again."""
        return [group for group in self.files if group.rows or group.always]


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


def holdings(artifact: Artifact, users: frozenset[str], owners: ExampleOwners) -> Holdings:
    """What this artifact holds of these users."""
    kind = artifact.manifest.kind
    refusal = "`merit erase` does not know. Nothing was changed: remove it, or update merit."
    if kind not in KINDS:
        raise DataError(f"{artifact.path} is of the kind '{kind}', which {refusal}")
    holder, without_users = KINDS[kind]
    held = holder(artifact, users, owners) if holder else Holdings()
    judged = {name for group in held.files for name in group.files}
    for name in artifact.manifest.files:
        if name not in judged and not any(fnmatch(name, pattern) for pattern in without_users):
            raise DataError(f"{artifact.path / name} is a file that {refusal}")
    return held


def _without(artifact: Artifact, names: Sequence[str], rows: Ints, numbered: str | None = None) -> HeldFiles:
    """Files that all lose the same rows."""

    def write(out: Path) -> None:
        for name in names:
            rewrite.drop_rows(artifact.file(name), out / name, rows, numbered)

    return HeldFiles(tuple(names), len(rows), write)


def _less(artifact: Artifact, counts: Mapping[str, int]) -> dict[str, int]:
    """Figures of the manifest, less these."""
    return {name: artifact.manifest.summary[name] - count for name, count in counts.items()}


# --- tables with a user in every row ---------------------------------------------------------------------------------


def _rows_of(ids: pl.Series, users: frozenset[str]) -> tuple[Ints, frozenset[str]]:
    """The rows of these users, and which of them are there."""
    theirs = ids.is_in(list(users)).fill_null(False)
    return np.flatnonzero(theirs.to_numpy()), frozenset(ids.filter(theirs))


def _table(
    artifact: Artifact, name: str, users: frozenset[str], more: Sequence[str] = ()
) -> tuple[HeldFiles, frozenset[str], int]:
    """A table and files with the same rows, who of the users is there, and how many rows are left."""
    ids = pl.read_parquet(artifact.file(name), columns=[USER])[USER]
    rows, found = _rows_of(ids, users)
    names = [name, *(other for other in more if other in artifact.manifest.files)]
    return _without(artifact, names, rows), found, len(ids) - len(rows)


def _examples(artifact: Artifact, users: frozenset[str], owners: ExampleOwners) -> Holdings:
    counts, files, erased = Counter[str](), [], dict[int, pl.DataFrame]()
    for number in range(artifact.manifest.summary["shards"]):
        names = rewrite.shard_files(number)
        table = pl.scan_parquet(artifact.file(names[0])).select(USER, "user", "split")
        those = erased[number] = table.filter(pl.col(USER).is_in(list(users))).collect()
        rows = rewrite.shard_rows(artifact, number, those)
        counts += rows
        total = rows["users"] + rows["events"] + rows["examples"]
        files.append(HeldFiles(names, total, partial(rewrite.write_shard, artifact, number, those)))
    files.append(_item_counts(artifact, erased))
    all_erased = pl.concat(erased.values())
    counts["train_users"] = int((all_erased["split"] == SPLITS[0]).sum())
    found, summary = frozenset(all_erased[USER]), _less(artifact, counts) | _span(artifact, erased)
    if QUARANTINE in artifact.manifest.files:  # ids are read as `prepare` reads them
        original = pl.read_parquet(artifact.file(QUARANTINE), columns=["original"])["original"]
        ids = original.str.json_path_match("$.user_id").str.strip_chars().str.replace(r"^(\d+)\.0$", "${1}")
        aside, named = _rows_of(ids, users)
        files.append(_without(artifact, [QUARANTINE], aside))
        found, summary = found | named, summary | _less(artifact, {"set_aside": len(aside)})
    return Holdings(tuple(files), found, Counter(all_erased["split"].cast(pl.String)), summary)


def _span(artifact: Artifact, erased: Mapping[int, pl.DataFrame]) -> dict[str, int]:
    """The times of the first and last event of all other users."""
    spans = [
        pl.scan_parquet(artifact.file(rewrite.shard_files(number)[1]))
        .filter(~pl.col("user").is_in(users["user"].to_list()))
        .select(first=pl.col("timestamp").to_physical().min(), last=pl.col("timestamp").to_physical().max())
        for number, users in erased.items()
    ]
    first, last = pl.concat(spans).select(pl.col("first").min(), pl.col("last").max()).collect().row(0)
    return {"first": first, "last": last}


def _item_counts(artifact: Artifact, erased: Mapping[int, pl.DataFrame]) -> HeldFiles:
    """How often training users met each item, less the erased ones."""
    counts = pl.read_parquet(artifact.file(COUNTS))
    less = np.zeros(len(counts), dtype=np.int64)
    for number, users in erased.items():
        training = users.filter(pl.col("split") == SPLITS[0])["user"].to_list()
        if training:
            events = pl.scan_parquet(artifact.file(rewrite.shard_files(number)[1]))
            items = events.filter(pl.col("user").is_in(training)).select("item").collect()["item"]
            less += np.bincount(items.to_numpy(), minlength=len(counts))

    def write(out: Path) -> None:
        left = pl.Series(counts["count"].to_numpy().astype(np.int64) - less, dtype=pl.UInt64)
        counts.with_columns(count=left).write_parquet(out / COUNTS)

    return HeldFiles((COUNTS,), int((less > 0).sum()), write)


def _corpus(artifact: Artifact, users: frozenset[str], owners: ExampleOwners) -> Holdings:
    """A table of users for each split, and of purchases."""
    splits = [name for name in (*SPLITS, NOW, PURCHASES) if f"{name}.parquet" in artifact.manifest.files]
    held = {split: _table(artifact, f"{split}.parquet", users) for split in splits}
    found = frozenset[str]().union(*(found for _, found, _ in held.values()))
    files = tuple(files for files, _, _ in held.values())
    return Holdings(files, found, summary={split: left for split, (_, _, left) in held.items()})


def _states(artifact: Artifact, users: frozenset[str], owners: ExampleOwners) -> Holdings:
    """Arrays with a row for each row of the corpus."""
    files, summary, unlinked = [], {}, False
    for split in (*SPLITS, NOW):
        names, of_row = [f"{split}.npy", f"{split}-counts.npy"], owners.users(artifact, split)
        unlinked |= of_row is None
        rows = np.empty(0, np.int64) if of_row is None else _rows_of(of_row, users)[0]
        if of_row is not None:
            _require_length(artifact, names[0], artifact.manifest.summary[split], len(of_row))
        files.append(_without(artifact, names, rows))
        summary[split] = artifact.manifest.summary[split] - len(rows)
    return Holdings(tuple(files), summary=summary, unlinked=unlinked)


def _model(artifact: Artifact, users: frozenset[str], owners: ExampleOwners) -> Holdings:
    ids = pl.read_parquet(artifact.file("users.parquet"), columns=[USER])[USER]
    gone, found = _rows_of(ids, users)
    if len(gone) == len(ids):
        raise DataError(f"No user would be left in {artifact.path}. Remove the folder instead.")

    def write(out: Path) -> None:
        layers = Exact.read(artifact.file("mlp.safetensors"))
        (out / "users").mkdir(exist_ok=True)
        store.without(artifact.file("users"), out / "users", gone, layers.users)

    vectors = tuple(name for name in artifact.manifest.files if name.startswith("users/"))
    files = (_without(artifact, ["users.parquet"], gone), HeldFiles(vectors, len(gone), write))
    return Holdings(files, found, summary={"users": len(ids) - len(gone)})


def _arms(artifact: Artifact, users: frozenset[str], name: str, user: str, arm: str, total: str) -> Holdings:
    table = pl.read_parquet(artifact.file(name), columns=[user, arm])
    rows, found = _rows_of(table[user], users)
    arms = Counter(table[arm].gather(rows).cast(pl.String))
    summary = _less(artifact, {**arms, total: len(rows)})
    return Holdings((_without(artifact, [name], rows),), found, arms, summary)


def _audience(artifact: Artifact, users: frozenset[str], owners: ExampleOwners) -> Holdings:
    return _arms(artifact, users, "members.parquet", USER, "arm", "members")


def _assignment(artifact: Artifact, users: frozenset[str], owners: ExampleOwners) -> Holdings:
    design = artifact.manifest.config
    return _arms(artifact, users, "assignment.parquet", design["user"], design["arm"], "users")


def _parts(artifact: Artifact, users: frozenset[str], owners: ExampleOwners) -> Holdings:
    """Interests of all users, shard by shard."""
    tables = [_table(artifact, name, users) for name in artifact.manifest.files]
    return Holdings(tuple(files for files, _, _ in tables), frozenset(user for _, found, _ in tables for user in found))


def _export(artifact: Artifact, users: frozenset[str], owners: ExampleOwners) -> Holdings:
    form = artifact.manifest.config["form"]
    name = f"audience.{form}"
    if form == "parquet":
        files, found, _ = _table(artifact, name, users)
    else:
        written = {str(pl.select(safe(pl.lit(user))).item()) if form == "csv" else user: user for user in users}
        rows = [value for _, value in rewrite.records(artifact.file(name), USER) if value in written]
        found = frozenset(written[value] for value in rows)
        drop = partial(rewrite.drop_lines, artifact.file(name), column=USER, values=frozenset(written))
        files = HeldFiles((name,), len(rows), lambda out: drop(out / name))
    return Holdings((files,), found, summary=_less(artifact, {"rows": files.rows}))


# --- rows in the order of the examples -------------------------------------------------------------------------------


def _ordered(artifact: Artifact, users: frozenset[str], owners: ExampleOwners, split: Split) -> Holdings:
    """Tables with a row for each example; and, of a benchmark, what every test user adds to a figure, sorted by id."""
    by_user = [name for name in artifact.manifest.files if name == HITS]
    tables = [name for name in artifact.manifest.files if name in ORDERED or name.startswith("predictions-")]
    of_row = owners.users(artifact, split)
    if of_row is None:
        return Holdings((_without(artifact, [*tables, *by_user], np.empty(0, np.int64)),), unlinked=True)
    rows, _ = _rows_of(of_row, users)
    files = []
    for name in tables:
        table = pl.scan_parquet(artifact.file(name))
        _require_length(artifact, name, table.select(pl.len()).collect().item(), len(of_row))
        files.append(_without(artifact, [name], rows, EXAMPLE if EXAMPLE in table.collect_schema() else None))
    user_rows, _ = _rows_of(of_row.unique().sort(), users)
    files += [_without(artifact, [name], user_rows) for name in by_user]
    summary = _less(artifact, {"examples": len(rows)}) if "examples" in artifact.manifest.summary else {}
    return Holdings(tuple(files), summary=summary)


ORDERED = ("mined.parquet", "after-gold.parquet", "after-mistakes.parquet", "left.parquet")


def _require_length(artifact: Artifact, name: str, rows: int, examples: int) -> None:
    if rows != examples:
        raise DataError(
            f"{artifact.path / name} has {rows:,} rows for {examples:,} examples: users were erased from one of "
            "them and not from the other. Make it again with `merit run`, or remove it."
        )


# --- pages that show a few random examples ----------------------------------------------------------------------------


def _page(artifact: Artifact, users: frozenset[str], owners: ExampleOwners, title: str) -> Holdings:
    """The section of that title is taken out, whoever it is about."""
    section = re.compile(rf'(<section id="s\d+">\n<h2>{title}</h2>\n)(?!{re.escape(TAKEN_OUT)}).*?(</section>)', re.S)
    text = artifact.file("index.html").read_text(encoding="utf-8")

    def write(out: Path) -> None:
        (out / "index.html").write_text(section.sub(rf"\1{TAKEN_OUT}\n\2", text), encoding="utf-8")

    return Holdings((HeldFiles(("index.html",), 0, write, always=bool(section.search(text))),))


def _bench_results(artifact: Artifact, users: frozenset[str], owners: ExampleOwners) -> Holdings:
    results = json.loads(artifact.file("results.json").read_text(encoding="utf-8"))

    def write(out: Path) -> None:
        (out / "results.json").write_text(json.dumps(results | {"pictures": []}, indent=1) + "\n", encoding="utf-8")

    return Holdings((HeldFiles(("results.json",), 0, write, always=bool(results["pictures"])),))


# By kind: what finds the rows of users, and the files without any (weights, labels, figures over many users).
KINDS: dict[str, tuple[Callable[[Artifact, frozenset[str], ExampleOwners], Holdings] | None, tuple[str, ...]]] = {
    "examples": (_examples, ("items.parquet",)),
    "labels": (None, ("*",)),
    "generator": (None, ("*",)),
    "mined": (partial(_ordered, split="train"), ()),
    "corpus": (_corpus, ("items.parquet", VERTICALS, LABEL_COUNTS, WORDS, TRENDS, TOKENS, TOKENIZER)),
    "states": (_states, ()),
    "propensity": (None, ("*",)),
    "predictions": (partial(_ordered, split="test"), ("audiences.parquet", "reliability.parquet")),
    "cell": (partial(_ordered, split="test"), ("reliability.parquet",)),
    "model": (
        _model,
        (
            *("labels/*", "propensity/*", "generator/*", "interests/*"),
            *("items.parquet", "mlp.safetensors", "verticals.*", "README.md"),
        ),
    ),
    "parts": (_parts, ()),
    "data-report": (partial(_page, title="Examples in words"), ("figures.json", "README.md")),
    "results": (partial(_page, title="Cascades in pictures"), ("figures.parquet", "results.md")),
    "bench-results": (_bench_results, ("figures.parquet",)),
    "audience": (_audience, ("audience.json", "request.json", "index.html")),
    "audience-export": (_export, ()),
    "assignment": (_assignment, ()),
    "experiment-design": (None, ("*",)),
    "lift": (None, ("*",)),
    "pooled-lift": (None, ("*",)),
    "weights": (None, ("*",)),
    "erasure": (None, ("*",)),
}
