from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from merit.data.ragged import Ragged
from merit.objective.collate import OBJECTIVES, CollateConfig, Corpus, choose_labels, collate
from merit.objective.losses import linear_set_loss

SEP, END = 1, 2
PATHS = [[10], [11], [12, 13], [12, 14], [15], [16, 17, 18]]


def corpus(gold: list[list[int]], mined: list[list[int]]) -> Corpus:
    prompts = [[3, *range(20, 20 + place), 4] for place in range(len(gold))]
    counts = np.ones(sum(map(len, mined)), np.int32)
    return Corpus(Ragged.of(prompts), Ragged.of(gold), Ragged.of(mined), counts, Ragged.of(PATHS), SEP, END)


SMALL = corpus([[0, 2], [3], [1, 4, 5]], [[1, 3], [0, 1, 2, 4, 5], []])
SELF = OBJECTIVES["self-correction"]


def test_a_batch_by_hand() -> None:
    one = corpus([[0, 2]], [[]])
    batch = collate(one, [0], 0, OBJECTIVES["teacher-forcing"], CollateConfig(), 7)
    assert batch.input_ids.tolist() == [[3, 4, 10, SEP, 12, 13]]
    assert batch.rows.tolist() == [1, 2, 3, 4, 5]
    assert batch.valid_ids.tolist() == [[10], [SEP], [12], [13], [END]]
    assert batch.classification.tolist() == [True, False, True, False, False]
    assert batch.weights.tolist() == pytest.approx([0.2] * 5)


def test_gold_order_is_the_datas_for_teacher_forcing_and_shuffled_otherwise() -> None:
    many = corpus([[0, 1, 4, 5]], [[]])
    forced = {tuple(choose_labels(many, 0, e, OBJECTIVES["teacher-forcing"], CollateConfig(), 7)[0]) for e in range(20)}
    free = {
        tuple(choose_labels(many, 0, e, OBJECTIVES["permutation-invariance"], CollateConfig(), 7)[0]) for e in range(20)
    }
    assert len(forced) == 1 and len(free) > 10


def test_mined_labels_are_drawn_afresh_every_epoch_and_never_more_than_asked() -> None:
    config = CollateConfig(mined_per_example=2)
    draws = [frozenset(choose_labels(SMALL, 1, epoch, SELF, config, 7)[0]) for epoch in range(30)]
    assert {len(draw) for draw in draws} == {3}  # one gold, two mined
    assert len(set(draws)) > 5


def test_often_mined_labels_are_drawn_more_often() -> None:
    base = corpus([[3]], [[0, 1, 4]])
    skewed = Corpus(**(vars(base) | {"mined_counts": np.array([98, 1, 1], np.int32)}))
    config = CollateConfig(mined_per_example=1)
    hits = sum((10,) in choose_labels(skewed, 0, epoch, SELF, config, 7)[0] for epoch in range(100))
    assert hits > 85


def test_whole_mined_labels_are_cut_first_then_gold_and_then_there_is_no_end() -> None:
    roomy, tight, tiny = (CollateConfig(max_target=size) for size in (96, 9, 4))
    gold = {(11,), (15,), (16, 17, 18)}
    three = corpus([[1, 4, 5]], [[0, 2]])
    assert set(choose_labels(three, 0, 0, SELF, roomy, 7)[0]) == gold | {(10,), (12, 13)}
    assert gold <= set(choose_labels(three, 0, 0, SELF, tight, 7)[0])
    for name, objective in OBJECTIVES.items():
        batch = collate(three, [0], 0, objective, tiny, 7)
        assert not (batch.valid_ids == END).any(), name


def test_a_batch_does_not_depend_on_its_company() -> None:
    alone = collate(SMALL, [1], 3, SELF, CollateConfig(), 7)
    together = collate(SMALL, [0, 1, 2], 3, SELF, CollateConfig(), 7)
    width = alone.input_ids.shape[1]
    assert together.input_ids[1, :width].tolist() == alone.input_ids[0].tolist()


examples = st.lists(st.integers(0, 2), min_size=1, max_size=4)


@given(examples, st.sampled_from(sorted(OBJECTIVES)), st.integers(0, 5))
@settings(max_examples=60, deadline=None)
def test_the_loss_of_a_batch_is_the_mean_of_its_examples(picked: list[int], name: str, epoch: int) -> None:
    """Against a slow twin: each example on its own, with a bag-of-states model that looks backwards only."""
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(40, 6, generator=generator, dtype=torch.float64)
    objective = OBJECTIVES[name]

    def loss(rows: list[int]) -> torch.Tensor:
        batch = collate(SMALL, rows, epoch, objective, CollateConfig(), 7)
        states = table[batch.input_ids].cumsum(1).flatten(0, 1)[batch.rows]
        return linear_set_loss(states, table, batch.valid_ids, batch.weights.double(), objective.beta)[0]

    assert torch.allclose(loss(picked), torch.stack([loss([row]) for row in picked]).mean(), rtol=1e-5)
