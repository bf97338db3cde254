"""Which events carry a user's vector: the generator reads the history again without each of them.

Leave one out, all variants in one batch: as many prompts as there are different items in the history, and the whole.
"""

from __future__ import annotations

import json

import numpy as np
import polars as pl
from numpy.typing import NDArray

from merit.core import artifacts
from merit.core.artifacts import Artifact
from merit.core.ragged import Ragged
from merit.core.types import Floats, Ints
from merit.data.patches import windows_of
from merit.data.texts import write_inputs
from merit.data.title_words import TitleWords
from merit.generator.decoding import DecodeConfig, decode
from merit.generator.model import load_generator
from merit.propensity.features import States, UserFeatures
from merit.propensity.states import WORDS
from merit.propensity.train import load_scorer

MOST = 200  # different items, the newest ones: older ones hardly ever reach the prompt


def leave_one_out(
    model: Artifact, labels: Artifact, items: NDArray[np.int32], label: int
) -> tuple[Floats, Ints, NDArray[np.float64], NDArray[np.float64]]:
    """(1 + items, width): the user's vector, then without each of the different items, newest first.

    Also those items, how often the label is in each of these histories, and how many labels are in all.
    """
    newest_first = items[::-1]
    _, first = np.unique(newest_first, return_index=True)
    distinct = newest_first[np.sort(first)][:MOST].astype(np.int64)
    generator, config = load_generator(artifacts.load(model.file("generator"), "generator"), model, labels)
    scorer = load_scorer(artifacts.load(model.file("propensity"), "propensity"), labels)
    shop, words = generator.shop, generator.shop.vocabulary
    histories = [items, *(items[items != item] for item in distinct)]
    prompts = write_inputs(Ragged.of([each.tolist() for each in histories]), shop, config.text)
    how = DecodeConfig(max_labels=scorer.labels, fixed_budget=True)
    said = decode(
        generator.model,
        [prompts[row] for row in range(len(prompts))],
        generator.trie,
        words.sep,
        words.end,
        how,
        states=scorer.labels,
        windows=windows_of(prompts),
    )
    states = States(said.states[:, 0].astype(np.float16), said.counts[:, 0])
    own = [np.unique(shop.item_labels.take(each)[0], return_counts=True) for each in histories]
    times = np.concatenate([counts for _, counts in own]).astype(np.int32)
    titles = pl.read_parquet(model.file("items.parquet"), columns=["title"])["title"]
    read = TitleWords.of(json.loads(model.file(f"propensity/{WORDS}").read_text(encoding="utf-8")), titles)
    texts = read.in_histories(Ragged.of([each.tolist() for each in histories]))
    known = UserFeatures(states, Ragged.of([found.tolist() for found, _ in own]), times, texts)
    often = np.array([counts[found == label].sum() for found, counts in own], dtype=np.float64)
    totals = np.array([counts.sum() for _, counts in own], dtype=np.float64)
    return scorer.vectors(known).numpy(), distinct, often, totals
