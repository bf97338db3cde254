"""How far is it from a raw event to a row of an exported audience? Functions and files that a reader passes.

    python -m benchmarks.walk           # a small planted shop: merit run, audience build, audience export

`WALK` names the functions that change what the event has become, in order. A hop is one of them, or a function that
only leads to one: what stands between them on the call stack at the first call, printed indented. Code outside of
merit, nested functions and the command line are left out. There are two counts, and both are printed:

- `hops`: all of the stack. This is what runs.
- `read`: those of them that a reader passes, who goes from a function to one that it names. A scheduler of shards, a
  pool of threads and a training loop call a function that they are handed: the reader finds that function named where
  it is handed over, and need not go through the loop to reach it. Such hops have a `-` in front. A function that no
  other on the stack names (one chosen from a table) counts as reached through its caller.

Last line: one JSON object.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple

import merit
from benchmarks.harness import run as run_benchmark
from merit.campaigns.audiences import export
from merit.campaigns.audiences.build import build
from merit.campaigns.audiences.request import AudienceRequest
from merit.core import config, pipeline
from merit.core.settings import RunConfig
from merit.data import planted

SOURCE = Path(merit.__file__).parent
# stage: function → what it passes on
WALK: dict[str, dict[str, str]] = {
    "examples": {
        "data/normalise:interactions": "the raw row as a typed event",
        "data/validate:validate": "events whose item, time and user are known; others are set aside",
        "data/prepare:assign_users": "the split of the event's user",
        "data/examples:build_examples": "a purchase with the rows of the user's history before it",
    },
    "labels": {
        "labels/space:build": "tags of items as labels",
        "labels/clusters:cluster": "a cluster for each label",
    },
    "corpus": {
        "data/labelled:label_examples": "labels of the history with their counts, gold labels of the purchase",
    },
    "factors": {
        "propensity/linear:factors_loss": "the loss of the factor model: label counts, title words, trends",
    },
    "stage-2": {
        "generator/items/training:item_loss": "the loss that trains the generator: which item is bought next",
        "generator/items/training:labels_loss": "and the loss that fits its trust in the factor model, over labels",
    },
    "states": {
        "generator/items/model:ItemGenerator.likely": "labels that the generator finds likely next, of each user",
    },
    "propensity": {
        "propensity/likely:fit_weight": "how much a likely label adds to a score",
        "propensity/calibration:calibrate": "the curve from score to probability",
    },
    "model": {
        "retrieval/store:write": "a file of all users' vectors, memory-mapped",
        "propensity/train:user_vectors": "the history of the user as one of them",
    },
    "audience build": {
        "propensity/score:repeat_score": "what earlier purchases of a label add",
        "retrieval/repeats:both": "and what the generator finds likely",
        "propensity/score:pair_score": "a score for user and label",
        "propensity/calibration:CalibrationCurve.probability": "its probability",
        "campaigns/audiences/eligibility:waterfall": "users who may be contacted",
        "campaigns/audiences/audience:cut": "users above the cut, with their arm",
        "campaigns/audiences/audience:members": "a row of the audience",
    },
    "audience export": {
        "campaigns/audiences/export:export": "the row in the exported file",
    },
}
SMALL = {
    "labels": {"encoder": "hashed"},
    "corpus": {"min_purchases": 4_000},
    "item_generator": {"network": {"width": 16, "layers": 1, "heads": 2}, "train": {"steps": 10}},
    "evaluation": {"resamples": 100},
    "ranking": {"resamples": 100},
}


class Hop(NamedTuple):
    """A function on the way."""

    stage: str
    name: str
    gives: str
    """What it passes on; nothing, where it only leads to others."""
    read: bool
    """Whether a reader passes it."""


class Trace:
    """The functions of merit on the stack at the first call of each function, by stage."""

    def __init__(self) -> None:
        self.stage = next(iter(WALK))
        self.stacks: dict[str, dict[str, list[str]]] = {}
        self.names_in: dict[str, set[str]] = {}
        """By function: every name in its code."""

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        """As sys.setprofile wants it."""
        if event != "call" or (name := name_of(frame)) is None:
            return
        if name == "core/stage:make_unless_current":
            self.stage = frame.f_locals["name"]
        self.names_in.setdefault(name, set(names_in(frame.f_code)))
        calls = self.stacks.setdefault(self.stage, {})
        if name not in calls:
            calls[name] = list(callers(frame))

    @contextlib.contextmanager
    def following(self) -> Iterator[None]:
        """Note calls while the block runs, in all threads."""
        threading.setprofile(self)
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)


def name_of(frame: FrameType) -> str | None:
    """folder/module:function, for functions of merit that have a name of their own."""
    file, name = frame.f_code.co_filename, frame.f_code.co_qualname
    if not file.startswith(f"{SOURCE}{os.sep}") or "<" in name:
        return None
    return f"{Path(file).relative_to(SOURCE).with_suffix('').as_posix()}:{name}"


def names_in(code: CodeType) -> Iterator[str]:
    """The names that a function's code uses, nested functions included."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from names_in(constant)


def callers(frame: FrameType) -> Iterator[str]:
    """The named functions of merit that led to this frame, nearest first."""
    above = frame.f_back
    while above is not None:
        if name := name_of(above):
            yield name
        above = above.f_back


def follow(place: Path) -> Trace:
    """A run on a planted shop, an audience of it, and its export."""
    planted.write(planted.shop(planted.PlantedConfig(users=300), seed=1), place / "shop")
    tables = {name: str(place / f"shop/{name}.parquet") for name in ("interactions", "items")}
    values = SMALL | {"source": {"kind": "tables", **tables}, "out": str(place / "run"), "cache": str(place / "cache")}
    settings, trace = config.build(RunConfig, values), Trace()
    with trace.following():
        pipeline.run(settings)
    model = merit.load(place / "run")
    label = model.labels.table.filter(status="live")["text"][0]
    request = AudienceRequest.model_validate(
        {"name": "walk", "interests": [label], "size": {"by": "count", "users": 120}}
    )
    trace.stage = "audience build"
    with trace.following():
        made = build(model, request, place / "audience")
    trace.stage = "audience export"
    with trace.following():
        export.export(made, model, "csv", place / "users.csv", "treatment")
    return trace


def hops(trace: Trace) -> tuple[list[Hop], list[str]]:
    """Every hop in order, none twice, and the functions of `WALK` that were not called."""
    path: dict[str, Hop] = {}
    missing = []
    for stage, functions in WALK.items():
        calls = trace.stacks.get(stage, {})
        for name, gives in functions.items():
            if name not in calls:
                missing.append(f"{stage}: {name}")
                continue
            stack, read = calls[name], set(naming(name, calls[name], trace.names_in))
            for caller in reversed(stack):
                if caller not in path and not _landmark(caller):
                    path[caller] = Hop(stage, caller, "", caller in read)
                elif caller in path and caller in read:
                    path[caller] = path[caller]._replace(read=True)
            path[name] = Hop(stage, name, gives, True)
    return list(path.values()), missing


def naming(name: str, stack: Sequence[str], names_in: Mapping[str, set[str]]) -> Iterator[str]:
    """Those of the callers, nearest first, through which a reader gets to a function: each names the one before."""
    while stack:
        simple = name.replace(":", ".").rpartition(".")[2]
        place = next((at for at, caller in enumerate(stack) if simple in names_in[caller]), 0)
        name, stack = stack[place], stack[place + 1 :]
        yield name


def files(path: Sequence[Hop]) -> int:
    """In how many files they are."""
    return len({hop.name.partition(":")[0] for hop in path})


def _landmark(name: str) -> bool:
    return any(name in functions for functions in WALK.values())


def disordered(trace: Trace) -> Sequence[str]:
    """Functions of `WALK` that are called before the one that stands above them in their stage."""
    late = []
    for stage, functions in WALK.items():
        order = list(trace.stacks.get(stage, {}))
        places = [order.index(name) for name in functions if name in order]
        late += [f"{stage}: {order[two]}" for one, two in pairwise(places) if two < one]
    return late


def table() -> str:
    """`WALK` as it stands in docs/architecture.md."""
    rows = [
        f"| {stage} | `{name.partition(':')[0]}.py` | `{name.partition(':')[2]}` | {gives} |"
        for stage, functions in WALK.items()
        for name, gives in functions.items()
    ]
    return "\n".join(["| stage | file | function | what it passes on |", "|---|---|---|---|", *rows]) + "\n"


def main() -> None:
    with tempfile.TemporaryDirectory() as place, contextlib.redirect_stdout(io.StringIO()):
        trace = follow(Path(place))
    path, missing = hops(trace)
    for number, hop in enumerate(path, 1):
        print(
            f"{number:3} {hop.stage:16} ",
            f"{hop.name}: {hop.gives}" if hop.gives else f"  {' -'[not hop.read]} {hop.name}",
        )
    read = [hop for hop in path if hop.read]
    counts = {"hops": len(path), "files": files(path), "read": len(read), "files_read": files(read)}
    print(json.dumps(counts | {"called": not missing, "missing": missing, "disordered": disordered(trace)}))


if __name__ == "__main__":
    run_benchmark(main)
