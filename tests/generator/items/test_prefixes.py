"""What stands before a label in training, and what is right behind it."""

from __future__ import annotations

from typing import get_args

import pytest
import torch

from merit.generator.items import prefixes
from merit.generator.items.prefixes import NONE, Prefixes

GOLD = torch.tensor([[1, 0, 1, 0, 0, 0], [0, 1, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0]], dtype=torch.bool)


def drawn(kind: Prefixes, seed: int = 0, most: int = 4, wrong: int = 2) -> torch.Tensor:
    torch.manual_seed(seed)
    return prefixes.draw(kind, torch.randn(3, 6), GOLD, most, wrong)


@pytest.mark.parametrize("kind", get_args(Prefixes))
def test_no_label_is_read_twice(kind: Prefixes) -> None:
    for row in drawn(kind).tolist():
        read = [column for column in row if column != NONE]
        assert len(read) == len(set(read)) and row == read + [NONE] * (len(row) - len(read))


def test_on_policy_gold_labels_are_read_as_often_as_the_model_would_write_them() -> None:
    torch.manual_seed(1)
    scores = torch.tensor([[2.0, 0.0, -1.0, 0.5, 0.0, 1.0]]).expand(20_000, -1)
    gold = torch.zeros(20_000, 6, dtype=torch.bool)
    gold[:, 1] = True
    first = prefixes.draw("own", scores, gold, 4, 2)[:, 0]
    shares = torch.bincount(first, minlength=6) / len(first)
    torch.testing.assert_close(shares, scores[0].softmax(0), atol=0.012, rtol=0)


def test_the_mixture_has_all_gold_labels_and_some_wrong_ones() -> None:
    for row, read in enumerate(drawn("mixed").tolist()):
        gold = set(GOLD[row].nonzero().flatten().tolist())
        assert gold <= set(read) and len(set(read) - gold - {NONE}) == 2


def test_teacher_forcing_reads_gold_labels_only_and_the_next_one_is_right() -> None:
    columns = drawn("gold")
    right = prefixes.right("gold", columns, GOLD, range(columns.shape[1] + 1))
    for row, read in enumerate(columns.tolist()):
        labels = [column for column in read if column != NONE]
        assert set(labels) == set(GOLD[row].nonzero().flatten().tolist())
        for place in range(len(read) + 1):
            expected = [labels[place]] if place < len(labels) else []
            assert right[row, place].nonzero().flatten().tolist() == expected


@pytest.mark.parametrize("kind", ["own", "mixed"])
def test_right_is_every_gold_label_that_was_not_written(kind: Prefixes) -> None:
    columns = drawn(kind)
    places = range(columns.shape[1] + 1)
    right, said = prefixes.right(kind, columns, GOLD, places), prefixes.said(columns, 6, places)
    assert torch.equal(prefixes.right(kind, columns, GOLD, [0, 2]), right[:, [0, 2]])
    for row, read in enumerate(columns.tolist()):
        left = set(GOLD[row].nonzero().flatten().tolist())
        for place, before in enumerate([None, *read]):
            left -= {before}
            ended = before == NONE
            assert set(right[row, place].nonzero().flatten().tolist()) == (set() if ended else left)
            assert set(said[row, place].nonzero().flatten().tolist()) == {c for c in read[:place] if c != NONE}
