"""From a messy export to a list that can be sent: what docs/own-data.md does with commands, in Python.

    python examples/own_data.py

Ends with the path of a CSV file. Everything is written below the current folder.
"""

from __future__ import annotations

import runpy
import tomllib
from pathlib import Path

import merit
from merit.campaigns.audiences import build, export, request
from merit.core import artifacts, config
from merit.core.pipeline import run
from merit.core.settings import RunConfig
from merit.data import check, sources

HERE = Path(__file__).parent
SOURCE = {
    "kind": "tables",
    "interactions": "log.csv",
    "items": "catalogue.csv",
    "columns": {"user_id": "Client ref", "timestamp": "When", "event": "What", "order_id": "Receipt"},
    "item_columns": {"item_id": "Article", "title": "Product", "tags": "Topics", "vertical": "Dept"},
    "events": {"Seen": "view", "Opened": "click", "Basket": "cart", "Sold": "purchase"},
    "tag_separator": ",",
    "time_formats": ["%d.%m.%Y %H:%M"],  # 03.04. is never guessed
}


def main() -> Path:
    runpy.run_path(str(HERE / "messy_export.py"), run_name="__main__")
    small = tomllib.loads((HERE / "small.toml").read_text(encoding="utf-8"))
    settings = config.build(RunConfig, small | {"source": SOURCE, "out": "runs/own"})
    found = check.examine(sources.open_source(settings.source))
    print(f"{found.users_ready} users ready, {found.rows.bad_interactions} rows set aside. {found.missing or 'Ready.'}")
    run(settings)
    asked = request.read(None, ["size.by=percentile", "size.percent=50"], ["trail running shoes"])
    model = merit.load(settings.out)
    figures = build.preview(model, asked)
    assert figures.forecast
    print(f"{figures.members} of {figures.eligible} users, {figures.forecast.conversions:.0f} conversions expected")
    made = build.build(model, asked, Path("runs/own-audience"))
    sent = export.export(made, model, "csv", Path("runs/own-send"))
    file = sent.file("audience.csv")
    print(f"{file}: {artifacts.load(sent.path).manifest.summary['rows']} users")
    return file


if __name__ == "__main__":
    main()
