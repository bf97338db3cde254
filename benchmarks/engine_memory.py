"""Memory of each streaming stage with eight times the users: that of a shard, or that of all of them?

python -m benchmarks.engine --memory
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from benchmarks import harness
from benchmarks.engine_audiences import BEST, Watch, live, multiplied, trained
from merit.core import artifacts, config
from merit.data import planted
from merit.data.corpus import CorpusRun, build_corpus
from merit.data.prepare import PrepareRun, prepare
from merit.engine.job import EngineConfig
from merit.generator.worker import DecodeJob
from merit.propensity.states import StatesConfig, write_states
from merit.retrieval.bulk import write_all_interests, write_audiences
from merit.retrieval.opening import load

TIMES = 8
ALLOWED = 0.1
PER_SHARD = {"prepare": 2_500, "states": 100, "lists": 1_000, "audiences": 12_500}
USERS = {"prepare": 20_000, "states": 400, "lists": 4_000, "audiences": 50_000}
QUICK = 4  # times fewer


def prepared(folder: Path, out: Path, shards: int) -> None:
    tables = {name: str(folder / f"{name}.parquet") for name in ("interactions", "items")}
    values = {"source": {"kind": "tables", **tables}, "prepare": {"shards": shards}}
    prepare(out, config.build(PrepareRun, values), 7)


def of_prepare(folder: Path, users: int, seed: int) -> float:
    shop = folder / f"shop-{users}"
    harness.in_child(write_shop, shop, users, seed)
    peak, _ = harness.in_child(prepared, shop, shop / "examples", users // PER_SHARD["prepare"])
    return peak


def write_shop(folder: Path, users: int, seed: int) -> None:
    planted.write(planted.shop(planted.PlantedConfig(users=users), seed), folder)


def of_states(folder: Path, users: int, run: Path) -> float:
    """Of a worker that looks at the users of one shop, with the generator of another run."""
    shop = folder / f"states-{users}"
    harness.in_child(_write_shop_like, run, shop, users)
    generator, corpus, labels = (artifacts.load(each) for each in (run / "stage-2", shop / "corpus", run / "labels"))
    engine = EngineConfig(runner="local", workers=1, threads=1, shards=users // PER_SHARD["states"])
    with Watch("VmHWM") as watch:
        write_states(DecodeJob(generator, corpus, labels, StatesConfig(), 7), shop / "states", engine)
    return watch.most


def _write_shop_like(run: Path, folder: Path, users: int) -> None:
    """The corpus of a shop with the items and labels of another, and so many users."""
    from benchmarks.engine_audiences import WIDE

    planted.write(planted.shop(planted.PlantedConfig(**(WIDE | {"users": users})), 7), folder)
    pl.read_parquet(run.parent / "items.parquet").write_parquet(folder / "items.parquet")
    prepared(folder, folder / "examples", max(1, users // 1_000))
    like = CorpusRun.model_validate(artifacts.load(run / "corpus").manifest.config)
    examples, labels = artifacts.load(folder / "examples"), artifacts.load(run / "labels")
    build_corpus(examples, labels, folder / "corpus", like, 7)


def of_scores(folder: Path, users: int, run: Path, what: str, seed: int) -> float:
    model = multiplied(artifacts.load(run / "model"), folder / f"{what}-{users}", users, seed)
    engine = EngineConfig(runner="local", workers=1, threads=1, shards=max(1, users // PER_SHARD[what]))
    with Watch("RssAnon") as watch:
        if what == "lists":
            write_all_interests(model.path, str(folder / f"{what}-{users}.parquet"), engine=engine)
        else:
            texts = live(load(model.path), 64)
            write_audiences(model.path, folder / f"{what}-{users}.parquet", texts, min(BEST, users), engine=engine)
    return watch.most


def measured(folder: Path, quick: bool, seed: int) -> tuple[dict[str, Any], dict[str, str]]:
    trained(folder, seed)
    run = folder / "run"
    ways = {
        "prepare": lambda users: of_prepare(folder, users, seed),
        "states": lambda users: of_states(folder, users, run),
        "lists": lambda users: of_scores(folder, users, run, "lists", seed),
        "audiences": lambda users: of_scores(folder, users, run, "audiences", seed),
    }
    figures: dict[str, Any] = {}
    for stage, peak in ways.items():
        few = USERS[stage] // (QUICK if quick else 1)
        small, large = peak(few), peak(TIMES * few)
        figures |= {f"{stage}_gib": round(small, 3), f"{stage}_gib_8_times_the_users": round(large, 3)}
        figures[f"{stage}_grows_by"] = round(large / small - 1, 3)
    figures["stages_within_10_percent"] = [stage for stage in ways if figures[f"{stage}_grows_by"] <= ALLOWED]
    return figures, {f"{stage}_gib": f"{USERS[stage] // (QUICK if quick else 1):,} users" for stage in ways} | {
        "prepare_grows_by": f"{PER_SHARD['prepare']:,} users in a shard",
        "states_grows_by": "of a worker",
        "lists_grows_by": "of a worker, its own pages",
        "audiences_grows_by": "of a worker, its own pages",
    }
