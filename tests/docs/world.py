"""The folder that the pages' commands are run in: a small shop, a run over it, and the tables the pages name."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import merit
from merit.campaigns.audiences import build, request
from merit.campaigns.experiments import steps
from merit.campaigns.experiments.assign import with_arms
from merit.campaigns.experiments.design import ExperimentDesign
from merit.core import config
from merit.core.pipeline import run
from merit.core.settings import RunConfig
from merit.data import planted
from tests import small_run
from tests.docs.blocks import ROOT, blocks

USERS = 200
NAMED = {
    "u000042": "u42",
    "u000007": "u7",
    "u000001": "1042",
    "u000002": "7",
    "u000010": "C-000010",
}  # users that pages speak of
SMALLER = {  # pages speak of shops with more users than this one
    "size.percent=5": "size.percent=80",
    "size.percent=50": "size.percent=80",
    "percent = 5": "percent = 80",
    "-n 500": "-n 120",
    "n=500": "n=120",
    "users = 20_000": "users = 120",
    "--regions 50": "--regions 5",
}


def make(place: Path) -> Path:
    """All of it. Some twenty seconds."""
    shop = planted.shop(planted.PlantedConfig(users=USERS), 3)
    events = shop.interactions.with_columns(pl.col("user_id").replace(NAMED))
    _tables(place, events, shop.items)
    tables = {"kind": "tables", "interactions": str(place / "log"), "items": str(place / "catalogue.csv")}
    values = small_run.SMALL | {"source": tables, "out": str(place / "runs/demo"), "cache": str(place / ".cache/merit")}
    run(config.build(RunConfig, values))
    for name in ("shop", "own"):
        shutil.copytree(place / "runs/demo", place / "runs" / name)
    (place / "examples").symlink_to(ROOT / "examples")
    model = merit.load(place / "runs/demo")
    model.users.select("user_id").head(5).write_csv(place / "users.csv")
    asked = request.read(None, ["size.by=count", "size.users=120"], ["gaiters"])
    build.build(model, asked, place / "runs/summer/audience")
    people = pl.DataFrame({"user_id": [f"v{number}" for number in range(20_000)]})
    people.write_parquet(place / "users.parquet")
    for page, name in (("audiences.md", "spring.toml"), ("experiments.md", "spring-test.toml")):
        found = next(block for block in blocks(ROOT / "docs" / page) if block.fate == "file")
        (place / name).write_text(found.code, encoding="utf-8")
    return place


def _tables(place: Path, events: pl.DataFrame, items: pl.DataFrame) -> None:
    (place / "log").mkdir(parents=True)
    (place / "service").mkdir()
    (place / "ids.txt").write_text("u42\n", encoding="utf-8")
    events.write_parquet(place / "log/part.parquet")
    brand = items["title"].str.split(" ").list.first().alias("brand")
    items.with_columns(pl.col("tags").list.join("|"), brand).write_csv(place / "catalogue.csv")
    users = events.select("user_id").unique(maintain_order=True)
    yes = pl.int_range(pl.len()) % 10 != 0
    users.with_columns(yes.alias("newsletter")).write_parquet(place / "customers.parquet")
    pl.DataFrame({"user_id": ["u42", "u7"], "interest": ["gaiters", "trail running"]}).write_ndjson(
        place / "pairs.jsonl"
    )


def campaign(place: Path, values: dict[str, Any]) -> None:
    """What is there once the campaign of a page's design is over, and another one that was analysed before it."""
    design = config.build(ExperimentDesign, values)
    other = config.build(ExperimentDesign, values | {"name": "Summer", "salt": "summer-2027"})
    _outcomes(place / "users.parquet", design, place / "outcomes.parquet")
    _outcomes(place / "users.parquet", other, place / "summer.parquet")
    frozen = steps.freeze(other, place / "runs/summer/design")
    steps.analyse_campaign(frozen, place / "runs/summer/lift", place / "summer.parquet", until=other.end)


def _outcomes(users: Path, design: ExperimentDesign, file: Path) -> None:
    """One row for each assigned user; the treatment lifts a rate of 20 % by a quarter."""
    drawn = with_arms(pl.scan_parquet(users), design.user, design.arms, str(design.salt)).collect()
    rng = np.random.default_rng(5)
    rate = np.where(drawn["arm"] == design.treatment, 0.25, 0.20)
    bought = pl.Series("bought", (rng.random(len(drawn)) < rate).astype(np.int64))
    drawn.with_columns(bought, pl.Series("orders_before", rng.poisson(2, len(drawn)))).write_parquet(file)
