"""The network against itself without a cache, and labels by items against a loop."""

from __future__ import annotations

import numpy as np
import torch

from merit.core.ragged import Ragged
from merit.generator.items.network import ItemCandidates, ItemContents, label_chances
from tests.generator.items import worlds


@torch.inference_mode()
def test_writing_step_by_step_is_writing_at_once() -> None:
    network, catalogue, users = worlds.network(), worlds.contents(), worlds.histories()
    cache, mask = network.read(users.positions(), catalogue)
    written = torch.tensor([[-1, 2, 5, 0]]).expand(len(users), -1)
    whole, _ = network.write(written, cache, mask)
    steps, grown = [], cache
    for place in range(written.shape[1]):
        state, grown = network.write(written[:, place : place + 1], grown, mask)
        steps.append(state)
    torch.testing.assert_close(torch.cat(steps, 1), whole, atol=1e-5, rtol=1e-4)


@torch.inference_mode()
def test_padding_changes_no_state() -> None:
    network, catalogue, users = worlds.network(), worlds.contents(), worlds.histories()
    begin = torch.full((1, 1), -1)
    together, _ = network.write(begin.expand(len(users), -1), *network.read(users.positions(), catalogue))
    for row in range(len(users)):
        alone, _ = network.write(begin, *network.read(users.gather(np.array([row])).positions(), catalogue))
        torch.testing.assert_close(alone[0], together[row], atol=1e-5, rtol=1e-4)


@torch.inference_mode()
def test_a_label_is_as_likely_as_the_items_that_carry_it() -> None:
    catalogue, logits = worlds.contents(), torch.randn(3, 2, worlds.ITEMS)
    among = ItemCandidates.all(catalogue.carries(worlds.LIVE), worlds.LIVE)
    chances, found = logits.softmax(-1), label_chances(logits, among)
    for column, label in enumerate(worlds.LIVE):
        carriers = [item for item in range(worlds.ITEMS) if label in catalogue.labels[item]]
        torch.testing.assert_close(found[..., column], chances[..., carriers].sum(-1))


def test_drawn_items_stand_for_those_that_were_not() -> None:
    """A drawn item weighs as many as it stands for, so that sums over a sample are those over all, on average."""
    catalogue, logits = worlds.contents(), torch.randn(1, 1, worlds.ITEMS)
    carries, rng = catalogue.carries(worlds.LIVE), np.random.default_rng(0)
    ones = np.ones(len(worlds.LIVE), np.float32)
    sums = []
    for _ in range(4000):
        items = np.sort(rng.choice(worlds.ITEMS, 6, replace=False))
        among = ItemCandidates.of(carries[items], items, np.full(6, 2.0, np.float32), worlds.LIVE, ones)
        sums.append((logits[..., items] + among.item_weights).logsumexp(-1).exp().item())
    assert abs(np.mean(sums) / logits.exp().sum().item() - 1) < 0.02


def test_gradients_pass_through_sums_over_items() -> None:
    catalogue, logits = worlds.contents(), torch.randn(2, 1, worlds.ITEMS, requires_grad=True)
    among, target = ItemCandidates.all(catalogue.carries(worlds.LIVE), worlds.LIVE), torch.rand(2, 1, len(worlds.LIVE))
    dense = torch.from_numpy(catalogue.carries(worlds.LIVE).toarray())
    (ours,) = torch.autograd.grad((label_chances(logits, among) * target).sum(), logits)
    (theirs,) = torch.autograd.grad((logits.softmax(-1) @ dense * target).sum(), logits)
    torch.testing.assert_close(ours, theirs)


@torch.inference_mode()
def test_offsets_are_repeats_and_trends_of_the_week() -> None:
    network, catalogue, users = worlds.network(), worlds.contents(), worlds.histories()
    items, positions = np.array([1, 4, 9]), users.positions()
    found = network.offsets(positions, users.weeks, catalogue, items)
    for row in range(len(users)):
        for column, item in enumerate(items.tolist()):
            times = int((users.items[row] == item).sum())
            again = network.repeat[0] * (times > 0) + network.repeat[1] * np.log1p(times)
            recent = catalogue.trends.table[users.weeks[row], item].astype(np.float32) @ network.recent.numpy()
            assert abs(found[row, column].item() - float(again + recent)) < 1e-4


@torch.inference_mode()
def test_items_and_labels_newer_than_the_network_are_read_and_chosen_by_what_is_known_of_them() -> None:
    network, known, more = worlds.network(), worlds.contents(), worlds.contents(items=worlds.ITEMS)
    labels = Ragged.of([*(row.tolist() for row in (more.labels[item] for item in range(worlds.ITEMS))), [1, 9]])
    without = Ragged.of([*(row.tolist() for row in (more.known[item] for item in range(worlds.ITEMS))), [1]])
    words = Ragged.of([*(more.words[item].tolist() for item in range(worlds.ITEMS)), []])
    trends = worlds.ItemTrends(np.pad(more.trends.table, ((0, 0), (0, 1), (0, 0))))
    catalogue = ItemContents(labels, without, words, trends, (worlds.LABELS, worlds.WORDS))
    vectors, biases = network.vectors(catalogue, np.array([3, worlds.ITEMS]))
    torch.testing.assert_close(vectors[1], 2 * network.label[1])
    assert biases[1] == network.item_bias.min()
    old, _ = network.vectors(known, np.array([3]))
    torch.testing.assert_close(vectors[0], old[0])
    assert catalogue.carries(np.array([1, 9])).toarray()[-1].tolist() == [1, 1]
