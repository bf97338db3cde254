from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from merit.core.errors import ConfigError, DataError
from merit.core.ragged import Ragged
from merit.data.patches import pool
from merit.objective.collate import OBJECTIVES, CollateConfig, Corpus, check_corpus, choose_labels, collate
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


def test_mined_labels_are_read_only_by_an_objective_that_mixes_them_in() -> None:
    for name, objective in OBJECTIVES.items():
        labels, gold = choose_labels(SMALL, 0, 0, objective, CollateConfig(), 7)
        assert (set(labels) > set(gold)) == objective.mined, name


def test_mined_and_gold_labels_are_shuffled_together() -> None:
    """Otherwise the generator would learn that mistakes come last."""
    firsts = {choose_labels(SMALL, 0, epoch, SELF, CollateConfig(), 7)[0][0] for epoch in range(30)}
    assert firsts == {(10,), (12, 13), (11,), (12, 14)}


def test_a_draw_is_named_after_seed_epoch_and_example() -> None:
    """Another of the three is another order; the same ones are the same order, which a resumed run relies on."""
    alike = corpus([[0, 1, 2, 3, 4, 5]] * 20, [[]] * 20)

    def order(example: int, epoch: int, seed: int) -> tuple[tuple[int, ...], ...]:
        return tuple(choose_labels(alike, example, epoch, SELF, CollateConfig(), seed)[0])

    assert order(3, 4, 5) == order(3, 4, 5)
    for varied in (lambda n: (n, 0, 7), lambda n: (0, n, 7), lambda n: (0, 0, n)):
        assert len({order(*varied(n)) for n in range(20)}) > 15


def test_a_batch_reads_the_labels_that_were_chosen_for_its_epoch_and_seed() -> None:
    for epoch, seed in ((0, 7), (3, 7), (3, 8)):
        batch = collate(SMALL, [1], epoch, SELF, CollateConfig(), seed)
        labels, _ = choose_labels(SMALL, 1, epoch, SELF, CollateConfig(), seed)
        read = [token for label in labels for token in (*label, SEP)][:-1]
        assert batch.input_ids[0].tolist() == [3, 20, 4, *read]


def test_a_target_may_be_filled_to_the_last_token() -> None:
    """(11,), (15,) and (16, 17, 18) with their terminators take eight."""
    three = corpus([[1, 4, 5]], [[]])
    for room, kept in ((8, 3), (7, 2), (6, 2)):
        labels, gold = choose_labels(three, 0, 0, OBJECTIVES["teacher-forcing"], CollateConfig(max_target=room), 7)
        assert len(labels) == kept and len(gold) == 3


def test_a_label_that_does_not_fit_is_read_alone() -> None:
    long = corpus([[5, 0]], [[]])  # (16, 17, 18) and its terminator take all four
    labels, _ = choose_labels(long, 0, 0, OBJECTIVES["teacher-forcing"], CollateConfig(max_target=4), 7)
    assert labels == [(16, 17, 18)]


def test_padding_is_the_share_of_cells_that_nobody_filled() -> None:
    batch = collate(SMALL, [0, 2], 0, OBJECTIVES["teacher-forcing"], CollateConfig(), 7)
    # [3, 4] with 10 SEP 12 13, and [3, 20, 21, 4] with 11 SEP 15 SEP 16 17 18: 6 and 11 of 2 × 11 cells.
    assert batch.input_ids.shape == (2, 11)
    assert batch.padding == pytest.approx(1 - 17 / 22)
    assert collate(SMALL, [1], 0, OBJECTIVES["teacher-forcing"], CollateConfig(), 7).padding == 0


def test_sets_are_padded_with_minus_one() -> None:
    batch = collate(SMALL, [2], 0, OBJECTIVES["permutation-invariance"], CollateConfig(), 7)
    assert batch.valid_ids[0].tolist() == [11, 15, 16]  # all three are open at the first position
    assert batch.valid_ids[-1].tolist() == [END, -1, -1]
    assert batch.valid_ids.dtype == batch.input_ids.dtype == batch.rows.dtype == torch.int64


def patched_corpus() -> Corpus:
    """Token 0 among the others; of the second prompt, the first two tokens are one patch."""
    prompts = Ragged.of([[3, 0, 4], [5, 0, 0, 6]])
    patched = pool(prompts, Ragged.of([[1, 1, 1], [2, 1, 1]]))
    base = corpus([[0], [1]], [[], []])
    return Corpus(**(vars(base) | {"prompts": prompts, "patched": patched}))


def test_patches_come_with_their_windows_and_only_when_there_are_some() -> None:
    both, objective = patched_corpus(), OBJECTIVES["teacher-forcing"]
    told = collate(both, [0, 1], 0, objective, CollateConfig(), 7, patched=np.array([False, True]))
    assert told.input_ids.tolist() == [[3, 0, 4, 10], [~0, 0, 6, 11]]
    assert told.patches is not None and told.patches.tokens.values.tolist() == [5, 0]
    for picked, forms in (([0, 1], [False, False]), ([0, 0], [True, True])):  # not asked for; nothing to pool
        plain = collate(both, picked, 0, objective, CollateConfig(), 7, patched=np.array(forms))
        assert plain.patches is None and (plain.input_ids >= 0).all()
    assert collate(both, [1], 0, objective, CollateConfig(), 7).patches is None
    unpatched = Corpus(**(vars(both) | {"patched": None}))
    assert collate(unpatched, [1], 0, objective, CollateConfig(), 7, patched=np.array([True])).patches is None


def test_every_example_says_in_which_form_it_is_read() -> None:
    with pytest.raises(ValueError):
        collate(patched_corpus(), [0, 1], 0, SELF, CollateConfig(), 7, patched=np.array([True]))


def test_what_cannot_be_learnt_from_is_refused_before_training() -> None:
    with pytest.raises(DataError, match=r"^There is nothing to train on: no example has a gold label"):
        check_corpus(corpus([], []), CollateConfig())
    with pytest.raises(DataError, match=r"^There is nothing to train on"):
        check_corpus(corpus([[], []], [[], []]), CollateConfig())
    with pytest.raises(DataError, match=r"^An example has no gold label left; leave such examples out"):
        check_corpus(corpus([[0], []], [[], []]), CollateConfig())
    check_corpus(corpus([[0], [2, 3]], [[], []]), CollateConfig())


def test_a_gold_label_that_no_target_can_hold_is_refused_with_the_size_that_would() -> None:
    """(16, 17, 18) needs four with its terminator; labels that are only mined may be any length."""
    check_corpus(corpus([[0], [5]], [[], []]), CollateConfig(max_target=4))
    long = Ragged.of([[10], [11, 12, 13, 14]])
    base = corpus([[0]], [[1]])
    check_corpus(Corpus(**(vars(base) | {"paths": long})), CollateConfig(max_target=4))
    wanted = Corpus(**(vars(corpus([[0, 1]], [[]])) | {"paths": long}))
    with pytest.raises(ConfigError, match=r"takes 5 tokens.* may have 4\. .*max_target to 5 or more"):
        check_corpus(wanted, CollateConfig(max_target=4))


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
