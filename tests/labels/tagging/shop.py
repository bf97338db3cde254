"""A small catalogue whose true tags are known: a title names a brand, a material, a kind and a size."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import polars as pl

from merit.core import config
from merit.core.shared import SharedRun
from merit.data import planted

KINDS = (
    "hiking boots",
    "rain jacket",
    "tea kettle",
    "reading lamp",
    "garden hose",
    "yoga mat",
    "coffee grinder",
    "desk chair",
)
MATERIALS = ("leather", "cotton", "steel", "copper", "bamboo", "canvas")
BRANDS = ("Aldora", "Brimwick", "Corvale")


def items() -> pl.DataFrame:
    rows = [
        (f"i{number:04}", f"{brand} {material.title()} {kind.title()}, {size} cm", [kind, material], brand)
        for number, (brand, material, kind, size) in enumerate(product(BRANDS, MATERIALS, KINDS, (10, 20)))
    ]
    return pl.DataFrame(rows, schema=["item_id", "title", "tags", "brand"], orient="row")


def settings(place: Path, table: pl.DataFrame, **tags: Any) -> SharedRun:
    """A quick run over this catalogue and a planted shop's events."""
    users = planted.shop(planted.PlantedConfig(users=60), 3)
    place.mkdir(parents=True, exist_ok=True)
    planted.write(users, place / "shop")
    events = pl.read_parquet(place / "shop/interactions.parquet")
    number = events["item_id"].rank("dense").cast(pl.Int64) % len(table)
    events.with_columns(item_id=table["item_id"].gather(number)).write_parquet(place / "events.parquet")
    table.write_parquet(place / "items.parquet")
    source = {"kind": "tables", "interactions": str(place / "events.parquet"), "items": str(place / "items.parquet")}
    values = {"preset": "quick", "source": source, "tags": tags, "labels": {"encoder": "hashed"}}
    small = {"evaluation": {"resamples": 100}, "ranking": {"resamples": 100}}
    return config.build(SharedRun, values | small | {"out": str(place / "run"), "cache": str(place / "cache")})
