"""The language-model loss on the prompt: one more set of positions, with sets of one member."""

from dataclasses import replace

import numpy as np
import torch

from merit.core.ragged import Ragged
from merit.data.patches import pool
from merit.objective.collate import OBJECTIVES, CollateConfig, Corpus, collate

SEP, END = 90, 91
CORPUS = Corpus(
    prompts=Ragged.of([[1, 2, 3], [4, 5], [6]]),
    gold=Ragged.of([[0, 1], [1], [0]]),
    mined=Ragged.of([[], [], []]),
    mined_counts=np.zeros(0, np.int32),
    paths=Ragged.of([[10], [11, 12]]),
    sep=SEP,
    end=END,
)


def _batches(weight):
    objective = OBJECTIVES["permutation-invariance"]
    return [
        collate(CORPUS, [0, 1, 2], 0, objective, CollateConfig(history_weight=each), seed=1) for each in (0.0, weight)
    ]


def test_targets_come_first_and_stay_as_they_are():
    plain, more = _batches(0.5)
    targets = len(plain.rows)
    assert torch.equal(more.rows[:targets], plain.rows)
    assert torch.equal(more.valid_ids[:targets], plain.valid_ids)
    assert torch.equal(more.weights[:targets], plain.weights)
    assert torch.equal(more.classification, plain.classification)


def test_every_prompt_position_but_the_last_predicts_the_next_token():
    plain, more = _batches(0.5)
    targets = len(plain.rows)
    tokens = more.input_ids.flatten()
    read, wanted = tokens[more.rows[targets:]], more.valid_ids[targets:, 0]
    assert list(zip(read.tolist(), wanted.tolist(), strict=True)) == [(1, 2), (2, 3), (4, 5)]
    assert (more.valid_ids[targets:, 1:] == -1).all()


def test_histories_weigh_what_was_asked_a_mean_over_positions_then_examples():
    plain, more = _batches(0.5)
    extra = more.weights[len(plain.rows) :]
    torch.testing.assert_close(extra, 0.5 * torch.tensor([1 / 6, 1 / 6, 1 / 3]))


def test_no_position_is_asked_for_a_patch():
    patched = pool(Ragged.of([[1, 2, 3, 4, 5], [4, 5], [6]]), Ragged.of([[1, 3, 1], [1, 1], [1]]))
    batch = collate(
        replace(CORPUS, patched=patched),
        [0, 1, 2],
        0,
        OBJECTIVES["permutation-invariance"],
        CollateConfig(history_weight=0.5),
        seed=1,
        patched=np.array([True, True, True]),
    )
    targets = len(batch.classification)
    read, wanted = batch.input_ids.flatten()[batch.rows[targets:]], batch.valid_ids[targets:, 0]
    assert list(zip(read.tolist(), wanted.tolist(), strict=True)) == [(~0, 5), (4, 5)]
    torch.testing.assert_close(batch.weights[targets:], 0.5 * torch.tensor([1 / 3, 1 / 3]))
