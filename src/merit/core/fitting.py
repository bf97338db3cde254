"""`merit.fit`: two tables in memory → a trained model.

The tables are written to the run's folder as Parquet and read by the same source as files are: a model made here has
the bytes of one that `merit run` makes of those files with the same settings.
"""

from __future__ import annotations

import io
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from merit.core import files, presets
from merit.core.errors import ConfigError
from merit.core.shared import Preset
from merit.data import frames
from merit.privacy import pseudonyms
from merit.retrieval.model import Model
from merit.retrieval.opening import load

TABLES = "tables"  # the folder of a run that has them


def fit(
    interactions: Any, items: Any, preset: Preset = "quick", out: Path | str | None = None, **settings: Any
) -> Model:
    """A model trained on interactions and items: frames of polars or pandas, Arrow tables or DuckDB relations.

    `preset` is "quick" (the factor model in closed form, seconds, no torch) or "standard" (the whole of MERIT). `out`
    is the folder of the run; without it the model lives as long as this object. `settings` are those of a run by
    section: `seed=7, source={"default_event": "purchase"}`.
    """
    if preset not in ("quick", "standard"):
        raise ConfigError(f"There is no preset '{preset}'. Choose quick or standard.")
    tables = {
        "interactions": frames.polars(interactions, "The interactions"),
        "items": frames.polars(items, "The items"),
    }
    temporary = None if out else TemporaryDirectory(prefix="merit-", ignore_cleanup_errors=True)
    folder = Path(out or temporary.name)  # type: ignore[union-attr]
    source = {"kind": "tables"} | {name: str(folder / TABLES / f"{name}.parquet") for name in tables}
    source |= settings.pop("source", {})
    values = settings | {"preset": preset, "out": str(folder), "source": source}
    config = presets.build(values, "merit.fit")
    if key := getattr(config.source, "pseudonyms", None):
        pseudonyms.require_apart(key, folder)
    (folder / TABLES).mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        content = io.BytesIO()
        table.write_parquet(content)
        _write_changed(folder / TABLES / f"{name}.parquet", content.getvalue())
    model = load(presets.run(config)["model"].path, verify=False)
    model.pandas = frames.is_pandas(interactions)
    model.folder = temporary
    return model


def _write_changed(file: Path, content: bytes) -> None:
    """A file that is the same already keeps its time, so that what was made of it is kept."""
    if not file.exists() or file.read_bytes() != content:
        files.write(file, content)
