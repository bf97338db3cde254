"""states: a trained generator → what it knows of every user, at the classification positions of its first labels.

The artifact: for train, validation, test and now (every user as they stand at the end of the data) the states, and
SPLIT.parquet with a row per user beside them: user_id, gold, what was bought later, and the labels of the history.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
from pydantic import Field

from merit import artifacts, console
from merit.artifacts import Artifact
from merit.config import Frozen
from merit.data.examples import current_histories
from merit.data.labelled import Labelled, joined, label_histories
from merit.data.patches import windows_of
from merit.data.ragged import Ragged, column_lists, list_column
from merit.errors import DataError
from merit.generator.corpus import write_inputs
from merit.generator.decode import DecodeConfig, decode
from merit.propensity import states
from merit.propensity.states import Known
from merit.stages.generator import TOGETHER, Generator, GeneratorConfig, load_generator, read_examples
from merit.stages.prepare import PrepareRun, shards
from merit.types import Split

PART = 2_000  # users decoded between two writes
SPLITS: tuple[Split, ...] = ("train", "validation", "test")
NOW = "now"


class StatesConfig(Frozen):
    labels: int = Field(5, ge=1)
    """States of so many labels are kept; a propensity model may use fewer. END is suppressed, so all are there."""


def write_states(
    generator: Artifact,
    examples: Artifact,
    labels: Artifact,
    out: Path,
    config: StatesConfig,
    seed: int,
    together: int = TOGETHER,
) -> Artifact:
    """Decode every example and every user's present, and keep the states."""
    trained, settings = load_generator(generator, examples, labels, together)
    parents = {"generator": generator, "examples": examples, "labels": labels}
    with artifacts.writing(out, "states", config=config, seed=seed, parents=parents) as draft:
        for split, found, prompts in _splits(trained, settings, examples):
            _table(found, items=split == NOW).write_parquet(draft.path / f"{split}.parquet")
            _decode_states(trained, prompts, draft.path, split, config.labels)
            draft.summary[split] = len(found)
        draft.summary |= {"labels": config.labels, "width": trained.model.config.hidden_size}
    return artifacts.load(out, "states")


def read_states(artifact: Artifact, split: str) -> tuple[pl.DataFrame, Known]:
    """Who the rows are, and what is known of them."""
    table, found = pl.read_parquet(artifact.file(f"{split}.parquet")), states.read(artifact.path, split)
    if len(table) != len(found):
        raise DataError(f"{artifact.path} has {len(table)} users but {len(found)} states in {split}. Make it again.")
    return table, Known(found, column_lists(table["history"]), column_lists(table["counts"]).values)


def _splits(
    trained: Generator, settings: GeneratorConfig, examples: Artifact
) -> Iterator[tuple[str, Labelled, Ragged]]:
    for split in SPLITS:
        yield split, *read_examples(examples, split, trained, settings)
    present = _present(examples, trained)
    yield NOW, present, write_inputs(present.items, trained.shop, settings.text)


def _present(examples: Artifact, trained: Generator) -> Labelled:
    """Every user with a history, as of the last event of the data."""
    config = PrepareRun.model_validate(examples.manifest.config).prepare
    end = 1 + max(int(part.events["timestamp"].to_physical().max() or 0) for part in shards(examples))  # type: ignore[arg-type]
    return joined(
        label_histories(
            part.users,
            part.events,
            current_histories(part.events, part.users, end, config),
            trained.shop.item_labels,
        )
        for part in shards(examples)
    )


def _table(found: Labelled, items: bool) -> pl.DataFrame:
    """What later stages need to know of the examples, so that they need not read the events again."""
    columns = {"gold": found.gold, "later": found.later, "history": found.history}
    columns |= {"items": found.items} if items else {}
    columns |= {name: Ragged(found.history.offsets, getattr(found, name)) for name in ("counts", "purchases")}
    lists = {name: list_column(each.values.astype(np.uint32), each.lengths()) for name, each in columns.items()}
    return pl.DataFrame({"user_id": pl.Series(found.user_ids, dtype=pl.String), **lists})


def _decode_states(trained: Generator, prompts: Ragged, folder: Path, name: str, labels: int) -> None:
    words, width = trained.shop.vocabulary, trained.model.config.hidden_size
    kept = states.create(folder, name, len(prompts), labels, width)
    config = DecodeConfig(max_labels=labels, fixed_budget=True, batch_size=trained.together)
    starts = range(0, len(prompts), PART)
    for start in console.track(starts, f"states of {name}", total=len(starts)):
        rows = [prompts[row] for row in range(start, min(start + PART, len(prompts)))]
        said = decode(
            trained.model, rows, trained.trie, words.sep, words.end, config, states=labels, windows=windows_of(prompts)
        )
        states.fill(kept, start, said.states[:, 0], said.counts[:, 0])
