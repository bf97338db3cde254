"""Labels that no training target has: a corpus to see what methods know of labels that were never asked for.

Of a share of the live labels, training and validation targets say nothing, and test targets say nothing else. Histories
keep them, so that a user may have had one.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from merit.core import artifacts
from merit.core.artifacts import Artifact
from merit.core.errors import DataError
from merit.core.ragged import column_lists, list_column, select
from merit.core.seeds import stream
from merit.core.stage import make_unless_current
from merit.core.types import SPLITS
from merit.data.corpus import CorpusRun, purchases_table
from merit.labels import space


def withhold(corpus: Artifact, labels: Artifact, out: Path, share: float, seed: int) -> Artifact:
    """The corpus without this share of the labels in its training targets; kept where nothing has changed."""
    settings, parents = CorpusRun.model_validate(corpus.manifest.config), {"corpus": corpus, "labels": labels}
    live, inputs = space.load(labels.path).live_mask(), {"withheld": share}
    held = live & (stream(seed, "withheld").random(len(live)) < share)
    tables = {f"{name}.parquet": name == SPLITS[-1] for name in (*SPLITS, purchases_table(corpus))}

    def make(out: Path) -> Artifact:
        with artifacts.writing(out, "corpus", config=settings, seed=seed, parents=parents, inputs=inputs) as draft:
            draft.summary |= corpus.manifest.summary | {"withheld": int(held.sum())}
            for name in corpus.manifest.files:
                if name not in tables:
                    shutil.copyfile(corpus.file(name), draft.path / name)
            for name, tested in tables.items():
                table = targets_among(pl.read_parquet(corpus.file(name)), held if tested else ~held)
                if not len(table):
                    raise DataError(f"No example of {name} is left. Withhold another share of the labels.")
                table.write_parquet(draft.path / name)
                draft.summary[Path(name).stem] = len(table)
        return artifacts.load(out, "corpus")

    return make_unless_current(out, out.name, "corpus", settings, seed, parents, make, inputs)


def targets_among(table: pl.DataFrame, wanted: NDArray[np.bool_]) -> pl.DataFrame:
    """The rows of a corpus table whose targets have labels that are wanted, with these only."""
    lists = {name: column_lists(table[name]) for name in ("gold", "later")}
    kept = {name: select(rows, wanted[rows.values]) for name, rows in lists.items()}
    columns = {name: list_column(rows.values.astype(np.uint32), rows.lengths()) for name, rows in kept.items()}
    return table.with_columns(**columns).filter(pl.col("gold").list.len() > 0)
