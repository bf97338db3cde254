"""An export as shops write them, for docs/own-data.md: log.csv and catalogue.csv in the current folder.

    python examples/messy_export.py

Other column names, semicolons, four ways to write a time, words of their own for events, tags in one cell with commas
between them, products without any, and some rows that nobody can mend.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import polars as pl

from merit.data.planted import PlantedConfig, shop

WORDS = {"view": "Seen", "click": "Opened", "cart": "Basket", "purchase": "Sold"}


def messy_time(row: int, at: datetime) -> str:
    """Three programs wrote this log, and a person typed the rest."""
    if row % 10 == 9:
        return at.strftime("%d.%m.%Y %H:%M")
    if row % 10 == 8:
        return str(int(at.timestamp()))
    return at.strftime("%Y-%m-%dT%H:%M:%S+00:00" if row % 10 > 5 else "%Y-%m-%d %H:%M:%S")


def main() -> None:
    planted = shop(PlantedConfig(users=300), seed=11)
    events = planted.interactions
    log = pl.DataFrame(
        {
            "Client ref": events["user_id"].str.replace("u", "C-"),
            "SKU": events["item_id"],
            "When": [messy_time(row, at) for row, at in enumerate(events["timestamp"])],
            "What": events["event"].cast(pl.String).replace(WORDS),
            "Receipt": events["order_id"],
        }
    )
    broken = pl.DataFrame({"Client ref": ["C-000001", ""], "SKU": ["i00001", "i00002"], "When": ["soon", "2024-05-01"]})
    pl.concat([log, broken], how="diagonal").write_csv(Path("log.csv"), separator=";")
    items = planted.items
    tags = [", ".join(each) if row % 17 else "" for row, each in enumerate(items["tags"].to_list())]
    catalogue = pl.DataFrame(
        {"Article": items["item_id"], "Product": items["title"], "Topics": tags, "Dept": items["vertical"]}
    )
    catalogue.write_csv(Path("catalogue.csv"))


if __name__ == "__main__":
    main()
