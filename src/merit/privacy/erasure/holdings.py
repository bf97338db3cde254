"""Which files of an artifact hold users, kind by kind, and how each is written without some of them.

A kind or a file that is not known here is refused: what nobody thought of must not be passed over in silence.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from merit.campaigns.audiences.export import safe
from merit.core.artifacts import Artifact
from merit.core.errors import DataError
from merit.core.types import Ints, Split
from merit.privacy.erasure import rows as without
from merit.privacy.erasure import shards
from merit.privacy.erasure.orders import Orders
from merit.retrieval import store
from merit.retrieval.exact import Exact

USER = "user_id"


@dataclass(frozen=True)
class Holding:
    """Files that are written together, and the rows of these users in them."""

    files: tuple[str, ...]
    rows: int
    write: Callable[[Path], None]
    """Into a folder, without those rows."""
    always: bool = False
    """Whether they are written whoever is erased: a page that shows somebody's example does not tell whose."""


@dataclass(frozen=True)
class Held:
    """What an artifact holds of some users."""

    files: tuple[Holding, ...] = ()
    found: frozenset[str] = frozenset()
    """Those who are named in it."""
    parts: Mapping[str, int] = field(default_factory=dict)
    """Users by split, or by arm."""
    summary: Mapping[str, Any] = field(default_factory=dict)
    """Figures of the manifest that change."""
    unlinked: bool = False
    """Whether it has rows of which nothing tells whose they are."""

    @property
    def rows(self) -> int:
        """Of these users in all files; rows that the files of one holding share are counted once."""
        return sum(each.rows for each in self.files)


def held(artifact: Artifact, users: frozenset[str], orders: Orders) -> Held:
    """What this artifact holds of these users."""
    kind = artifact.manifest.kind
    if kind not in HOLDERS and kind not in NOBODY:
        raise DataError(f"{artifact.path} is of the kind '{kind}', which `merit erase` does not know. {_REPORT}")
    found = HOLDERS[kind](artifact, users, orders) if kind in HOLDERS else Held()
    judged = {name for each in found.files for name in each.files}
    for name in artifact.manifest.files:
        if name not in judged and not any(fnmatch(name, pattern) for pattern in NOBODY.get(kind, ())):
            raise DataError(f"{artifact.path / name} is a file that `merit erase` does not know. {_REPORT}")
    return found


_REPORT = "Nothing was changed: remove it, or update merit."
# Files without rows of users: weights, labels, figures over many.
NOBODY: dict[str, tuple[str, ...]] = {
    "examples": ("items.parquet",),
    "labels": ("*",),
    "generator": ("*",),
    "propensity": ("*",),
    "states": ("words.json", "trends.npy"),
    "predictions": ("audiences.parquet", "reliability.parquet"),
    "cell": ("reliability.parquet",),
    "data-report": ("facts.json", "README.md"),
    "results": ("figures.parquet", "results.md"),
    "bench-results": ("figures.parquet",),
    "model": (
        *("labels/*", "propensity/*", "generator/*", "interests/*"),
        *("items.parquet", "mlp.safetensors", "verticals.*", "README.md"),
    ),
    "audience": ("audience.json", "request.json", "index.html"),
    "experiment-design": ("*",),
    "lift": ("*",),
    "pooled-lift": ("*",),
    "weights": ("*",),
    "erasure": ("*",),
}


# --- tables with a user in every row ---------------------------------------------------------------------------------


def _table(artifact: Artifact, name: str, users: frozenset[str], column: str = USER) -> tuple[Holding, frozenset[str]]:
    ids = pl.read_parquet(artifact.file(name), columns=[column])[column]
    theirs = ids.is_in(list(users))
    gone = np.flatnonzero(theirs.to_numpy())
    return _without_rows(artifact, (name,), gone), frozenset(ids.filter(theirs))


def _without_rows(artifact: Artifact, names: tuple[str, ...], gone: Ints, numbered: str | None = None) -> Holding:
    def write(out: Path) -> None:
        for name in names:
            if name.endswith(".npy"):
                without.drop_from_array(artifact.file(name), out / name, gone)
            elif name.endswith(".safetensors"):
                without.drop_from_arrays(artifact.file(name), out / name, gone)
            else:
                without.drop_from_table(artifact.file(name), out / name, gone, numbered)

    return Holding(names, len(gone), write)


def _examples(artifact: Artifact, users: frozenset[str], orders: Orders) -> Held:
    gone = {
        number: shards.erased_users(artifact, number, users) for number in range(artifact.manifest.summary["shards"])
    }
    total, files = Counter[str](), []
    for number, those in gone.items():
        counted = shards.held(artifact, number, those)
        rows = counted["users"] + counted["events"] + counted["examples"]
        write = partial(shards.write_without, artifact, number, those)
        files.append(Holding(shards.files_of(number), rows, write))
        total += counted
    files.append(_item_counts(artifact, gone))
    found = frozenset(name for those in gone.values() for name in those[USER])
    summary = {name: artifact.manifest.summary[name] - count for name, count in total.items()}
    if shards.QUARANTINE in artifact.manifest.files:
        aside, named = shards.quarantined(artifact.file(shards.QUARANTINE), users)
        files.append(_without_rows(artifact, (shards.QUARANTINE,), aside))
        found, summary = found | named, summary | {"set_aside": artifact.manifest.summary["set_aside"] - len(aside)}
    parts = Counter(split for those in gone.values() for split in those["split"].cast(pl.String))
    return Held(tuple(files), found, parts, summary)


def _item_counts(artifact: Artifact, gone: dict[int, pl.DataFrame]) -> Holding:
    counts = pl.read_parquet(artifact.file(shards.COUNTS))
    less = shards.training_counts(artifact, gone, len(counts))

    def write(out: Path) -> None:
        left = pl.Series(counts["count"].to_numpy().astype(np.int64) - less, dtype=pl.UInt64)
        counts.with_columns(count=left).write_parquet(out / shards.COUNTS)

    return Holding((shards.COUNTS,), int((less > 0).sum()), write)


def _states(artifact: Artifact, users: frozenset[str], orders: Orders) -> Held:
    files, found, summary = [], frozenset[str](), dict[str, Any]()
    for name in sorted(each for each in artifact.manifest.files if each.endswith(".parquet")):
        split = name.removesuffix(".parquet")
        ids = pl.read_parquet(artifact.file(name), columns=[USER])[USER]
        theirs = ids.is_in(list(users))
        gone = np.flatnonzero(theirs.to_numpy())
        together = (name, f"{split}.npy", f"{split}-counts.npy")  # purchases have no states
        files.append(_without_rows(artifact, tuple(each for each in together if each in artifact.manifest.files), gone))
        found |= frozenset(ids.filter(theirs))
        summary[split] = len(ids) - len(gone)
    return Held(tuple(files), found, summary=summary)


def _model(artifact: Artifact, users: frozenset[str], orders: Orders) -> Held:
    table, found = _table(artifact, "users.parquet", users)
    ids = pl.read_parquet(artifact.file("users.parquet"), columns=[USER])[USER]
    gone = np.flatnonzero(ids.is_in(list(users)).to_numpy())
    if len(gone) == len(ids):
        raise DataError(f"No user would be left in {artifact.path}. Remove the folder instead.")

    def write(out: Path) -> None:
        layers = Exact.read(artifact.file("mlp.safetensors"))
        (out / "users").mkdir(exist_ok=True)
        store.without(artifact.file("users"), out / "users", gone, layers.users)

    side = tuple(name for name in artifact.manifest.files if name.startswith("users/"))
    files = (table, Holding(side, len(gone), write))
    return Held(files, found, summary={"users": len(ids) - len(gone)})


def _audience(artifact: Artifact, users: frozenset[str], orders: Orders) -> Held:
    table, found = _table(artifact, "members.parquet", users)
    arms = _by(artifact.file("members.parquet"), USER, users, "arm")
    summary = {name: artifact.manifest.summary[name] - count for name, count in arms.items()}
    return Held((table,), found, arms, summary | {"members": artifact.manifest.summary["members"] - table.rows})


def _assignment(artifact: Artifact, users: frozenset[str], orders: Orders) -> Held:
    design = artifact.manifest.config
    table, found = _table(artifact, "assignment.parquet", users, design["user"])
    arms = _by(artifact.file("assignment.parquet"), design["user"], users, design["arm"])
    summary = {name: artifact.manifest.summary[name] - count for name, count in arms.items()}
    return Held((table,), found, arms, summary | {"users": artifact.manifest.summary["users"] - table.rows})


def _by(file: Path, user: str, users: frozenset[str], column: str) -> dict[str, int]:
    theirs = pl.scan_parquet(file).filter(pl.col(user).is_in(list(users))).select(column).collect()[column]
    return dict(Counter(theirs.cast(pl.String)))


def _parts(artifact: Artifact, users: frozenset[str], orders: Orders) -> Held:
    """Interests of everyone, shard by shard."""
    tables = [_table(artifact, name, users) for name in artifact.manifest.files]
    return Held(tuple(table for table, _ in tables), frozenset(name for _, found in tables for name in found))


def _export(artifact: Artifact, users: frozenset[str], orders: Orders) -> Held:
    form = artifact.manifest.config["form"]
    name = f"audience.{form}"
    if form == "parquet":
        file, found = _table(artifact, name, users)
    else:
        marked = {str(pl.select(safe(pl.lit(user))).item()): user for user in users} if form == "csv" else {}
        names = marked or {user: user for user in users}
        count, write = LINES[form]
        there = count(artifact.file(name), USER, frozenset(names))
        found = frozenset(names[each] for each in there)
        file = Holding((name,), len(there), lambda out: write(artifact.file(name), out / name, USER, frozenset(names)))
    return Held((file,), found, summary={"rows": artifact.manifest.summary["rows"] - file.rows})


LINES: dict[str, tuple[Callable[..., list[str]], Callable[..., None]]] = {
    "csv": (without.found_in_csv, without.drop_from_csv),
    "jsonl": (without.found_in_json_lines, without.drop_from_json_lines),
}


# --- rows in the order of the examples -------------------------------------------------------------------------------


def _ordered(artifact: Artifact, users: frozenset[str], orders: Orders, split: Split) -> Held:
    owners = orders.users(artifact, split)
    tables = [name for name in artifact.manifest.files if name in ROWS_OF[split] or name.startswith("predictions-")]
    if owners is None:
        nothing = [Holding((name,), 0, lambda out: None) for name in [*tables, *_hits(artifact)]]
        return Held(tuple(nothing), unlinked=True)
    gone = np.flatnonzero(owners.is_in(list(users)).to_numpy())
    files = []
    for name in tables:
        columns = pl.read_parquet_schema(artifact.file(name))
        _require_length(artifact, name, pl.scan_parquet(artifact.file(name)).select(pl.len()).collect().item(), owners)
        files.append(_without_rows(artifact, (name,), gone, EXAMPLE if EXAMPLE in columns else None))
    people = owners.unique().sort()
    theirs = np.flatnonzero(people.is_in(list(users)).to_numpy())
    files += [_without_rows(artifact, (name,), theirs) for name in _hits(artifact)]
    counted = artifact.manifest.summary.get("examples")
    return Held(tuple(files), summary={} if counted is None else {"examples": counted - len(gone)})


EXAMPLE = "example"
ROWS_OF: dict[Split, tuple[str, ...]] = {
    "train": ("mined.parquet",),
    "test": ("after-gold.parquet", "after-mistakes.parquet", "left.parquet"),
}


def _hits(artifact: Artifact) -> list[str]:
    """What every test user adds to a figure of a benchmark, in the order of their ids."""
    return [name for name in artifact.manifest.files if name == "hits.safetensors"]


def _require_length(artifact: Artifact, name: str, rows: int, owners: pl.Series) -> None:
    if rows != len(owners):
        raise DataError(
            f"{artifact.path / name} has {rows:,} rows for {len(owners):,} examples: users were erased from one of "
            "them and not from the other. Make it again with `merit run`, or remove it."
        )


# --- pages that show a few examples by lot ---------------------------------------------------------------------------


def _page(title: str) -> Callable[[Artifact, frozenset[str], Orders], Held]:
    """The section of that title is taken out, whoever it is about."""
    section = re.compile(rf'(<section id="s\d+">\n<h2>{title}</h2>\n)(?!{re.escape(TAKEN_OUT)}).*?(</section>)', re.S)

    def holder(artifact: Artifact, users: frozenset[str], orders: Orders) -> Held:
        text = artifact.file("index.html").read_text(encoding="utf-8")

        def write(out: Path) -> None:
            (out / "index.html").write_text(section.sub(rf"\1{TAKEN_OUT}\n\2", text), encoding="utf-8")

        return Held((Holding(("index.html",), 0, write, always=bool(section.search(text))),))

    return holder


TAKEN_OUT = "<p>Taken out when users were erased.</p>"


def _bench_results(artifact: Artifact, users: frozenset[str], orders: Orders) -> Held:
    told = json.loads(artifact.file("results.json").read_text(encoding="utf-8"))

    def write(out: Path) -> None:
        (out / "results.json").write_text(json.dumps(told | {"pictures": []}, indent=1) + "\n", encoding="utf-8")

    return Held((Holding(("results.json",), 0, write, always=bool(told["pictures"])),))


HOLDERS: dict[str, Callable[[Artifact, frozenset[str], Orders], Held]] = {
    "examples": _examples,
    "mined": partial(_ordered, split="train"),
    "predictions": partial(_ordered, split="test"),
    "cell": partial(_ordered, split="test"),
    "states": _states,
    "model": _model,
    "audience": _audience,
    "audience-export": _export,
    "assignment": _assignment,
    "parts": _parts,
    "data-report": _page("Examples in words"),
    "results": _page("Cascades in pictures"),
    "bench-results": _bench_results,
}
