"""The parts of the methods that write labels: beams that are summed, own prefixes, clusters behind the text."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from merit.baselines.generative import corpus_of, label_corpus, untrained
from merit.baselines.groov import GroovConfig, _Reader, _spellings, _written, beam_sums
from merit.baselines.ocd import OcdConfig, batch_of, sampled
from merit.baselines.sasrec import Sasrec, SasrecConfig, _loss, _Sequences, next_events
from merit.baselines.world import World
from merit.baselines.xlgen import _Guide, _likely, _means, frequent_first, label_clusters
from merit.core.ragged import Ragged
from merit.evaluation.predictions import filled

SEP, END = 98, 99


def rows(lists: Ragged) -> list[list[int]]:
    return [lists[row].tolist() for row in range(len(lists))]


# --- GROOV -----------------------------------------------------------------------------------------------------------


def test_a_label_has_the_probability_of_all_beams_it_is_in() -> None:
    said = [[[1, 2], [2, 3], [4]], [[5], [], [6]]]
    labels, masses = beam_sums(said, np.array([[0.3, 0.25, 0.1], [0.2, 0.1, 0.2]], np.float32))
    assert rows(labels) == [[2, 1, 3, 4], [5, 6]]
    assert masses.tolist() == pytest.approx([0.55, 0.3, 0.25, 0.1, 0.2, 0.2])


def test_short_lists_are_filled_with_other_labels() -> None:
    assert rows(filled(Ragged.of([[2, 1], []]), Ragged.of([[1, 7, 8], [4, 5, 6]]), budget=3)) == [[2, 1, 7], [4, 5, 6]]


def test_only_terminated_spellings_count() -> None:
    assert _spellings([1, 2, SEP, SEP, 3, END, 4, SEP], SEP, END) == [(1, 2), (3,)]
    assert _spellings([1, SEP, 2], SEP, END) == [(1,)]


def test_a_label_is_known_by_its_text_in_other_tokens_too(world: World) -> None:
    read = _Reader(world)
    words, paths = world.text.shop.vocabulary, world.text.shop.paths
    label = next(row for row, text in enumerate(world.labels.texts) if len(text.split()) == 2)
    first, second = words.encode(world.labels.texts[label].split())
    own = list(paths.path(label))
    assert own != [*first, *second]
    assert read.labels([*own, words.sep, *first, *second, words.sep, *first, *first, words.end]) == [label]
    assert (read.spelt, read.invented) == (3, 1)


def test_an_open_beam_has_the_probability_the_model_gives_it(world: World) -> None:
    generator, end = untrained(world, 7), world.text.shop.vocabulary.end
    prompts = Ragged.of([world.text.test[0].tolist(), world.text.test[1][:9].tolist()])  # one is padded
    written, logs = _written(generator, prompts, GroovConfig(beams=3, max_tokens=5))
    for prompt, beams, own in zip(prompts, written, logs, strict=True):
        for tokens, log in zip(beams, own, strict=True):
            said = tokens[: tokens.index(end) + 1] if end in tokens else tokens
            with torch.inference_mode():
                read = torch.tensor([[*prompt.tolist(), *said]])
                chances = generator.model(input_ids=read).logits.log_softmax(-1)[0, len(prompt) - 1 : -1]
            assert float(chances[range(len(said)), said].sum()) == pytest.approx(float(log), abs=1e-3)


# --- OCD -------------------------------------------------------------------------------------------------------------


def test_on_its_own_prefix_all_missing_golds_are_right() -> None:
    paths = Ragged.of([[10], [11], [12], [13]])
    words: Any = SimpleNamespace(sep=SEP, end=END)
    corpus = corpus_of(Ragged.of([[50, 51], [52]]), Ragged.of([[0, 1], [2]]), paths, words)
    own = Ragged.of([[3, 0], [2, 3]])  # a mistake and then a gold; a gold and then a mistake
    batch = batch_of(own, np.array([0, 1]), corpus, words)
    right = [sorted(set(row) - {-1}) for row in batch.valid_ids.tolist()]
    assert batch.input_ids.tolist() == [[50, 51, 13, SEP, 10], [52, 12, SEP, 13, 0]]
    first = [[10, 11], [SEP], [10, 11], [SEP]]  # 11 is still missing at the end: it must not stop there
    second = [[12], [END], [END], [END]]
    assert right == first + second


def test_samples_are_live_labels_and_their_own(world: World) -> None:
    generator, corpus = untrained(world, 7), label_corpus(world)
    prompts = corpus.prompts.gather(np.arange(8))
    one, other = (sampled(generator, prompts, OcdConfig(max_labels=3), seed) for seed in (1, 2))
    assert world.labels.live_mask()[one.values].all()
    assert 1 <= one.lengths().min() <= one.lengths().max() <= 3
    assert rows(one) != rows(other)


# --- XLGen -----------------------------------------------------------------------------------------------------------


def test_labels_are_ordered_by_frequency() -> None:
    popularity = np.array([5, 9, 9, 1])
    assert rows(frequent_first(Ragged.of([[0, 3, 2, 1], [3, 0]]), popularity)) == [[1, 2, 0, 3], [0, 3]]


def test_clusters_stand_behind_the_text() -> None:
    guide = _Guide(cluster=np.array([1, 0, 1, 2]), number=3, first=100)
    clusters = guide.of(Ragged.of([[0, 2, 3], [1]]))
    assert rows(clusters) == [[1, 2], [0]]
    assert rows(guide.behind(Ragged.of([[7, 8], [9]]), clusters, guide.to_labels)) == [
        [7, 8, 101, 102, 104],
        [9, 100, 104],
    ]


def test_the_mean_state_leaves_out_what_is_behind_the_text() -> None:
    hidden = torch.arange(12, dtype=torch.float32).reshape(2, 3, 2)
    assert _means(hidden, np.array([2, 1])).tolist() == [[1, 2], [6, 7]]


def test_at_least_one_cluster_is_named() -> None:
    assert _likely(np.array([-1.0, 2.0, 3.0], np.float32)) == [2, 1]
    assert _likely(np.array([-2.0, -1.0], np.float32)) == [1]


def test_labels_of_the_same_users_share_a_cluster(world: World) -> None:
    cluster = label_clusters(world, 6, seed=7)
    assert cluster.shape == (len(world.labels),)
    assert len(np.unique(cluster)) == 6


# --- SASRec ----------------------------------------------------------------------------------------------------------

BAGS, WORDS = Ragged.of([[0, 1], [2], [], [3]]), Ragged.of([[4], [0, 1], [2], []])


def test_the_next_event_is_right() -> None:
    where, right, weights = next_events(Ragged.of([[0, 2, 1, 3], [1]]), BAGS)
    assert where.tolist() == [
        1,
        2,
    ]  # the event without labels is no target; the second row has nothing behind its first
    assert rows(right) == [[2], [3]]
    assert weights.tolist() == pytest.approx([0.25, 0.25])


def test_what_comes_later_changes_nothing_before() -> None:
    model = Sasrec(7, 5, SasrecConfig(width=8, events=5)).eval()
    with torch.inference_mode():
        one, other = (model(Ragged.of([items]), BAGS, WORDS) for items in ([0, 1, 3], [0, 1, 0]))
    assert torch.allclose(one[:, :2], other[:, :2], atol=1e-6)
    assert not torch.allclose(one[:, 2], other[:, 2], atol=1e-3)


@pytest.mark.parametrize("offered", [True, False])
def test_the_loss_is_that_of_one_example_after_the_other(world: World, offered: bool) -> None:
    """Title words enter with the labels of an event, and recent popularity is added to the last logits."""
    seen = world if offered else world.offered(())
    labels, words, size = world.text.shop.item_labels, seen.item_words, len(world.labels)
    model = Sasrec(size, seen.title_words, SasrecConfig(width=8, events=6)).eval()
    torch.nn.init.constant_(model.trend, 0.7)
    chosen = np.arange(len(seen.purchases) - 5, len(seen.purchases))
    part, gold = _Sequences.of(seen.purchases, 6).gather(chosen), seen.purchases.gold.gather(chosen)
    losses = []
    for row in range(len(chosen)):
        items = part.items[row].tolist()
        states = model(Ragged.of([items]), labels, words)[0]
        following = []
        for at, after in enumerate(items[1:]):
            if len(labels[after]):
                right = (states[at] @ model.labels.weight.T).log_softmax(0)[labels[after].tolist()]
                following.append(-right.mean())
        last = states[-1] @ model.labels.weight.T
        if part.trends is not None:
            last = last + 0.7 * torch.from_numpy(part.trends.table[part.trends.weeks[row]].astype(np.float32))
        losses.append(-last.log_softmax(0)[gold[row].tolist()].mean())
        losses[-1] += sum(following) / max(1, len(following))
    slow = torch.stack(losses).mean().item()
    assert _loss(model, part, gold, labels, words).item() == pytest.approx(slow, abs=1e-4)


def test_an_event_is_the_mean_of_its_labels_and_that_of_its_title_words() -> None:
    model = Sasrec(4, 5, SasrecConfig(width=8, events=5)).eval()
    model.blocks = torch.nn.Identity()  # type: ignore[assignment]
    model.blocks.forward = lambda hidden, **_: hidden  # type: ignore[method-assign, misc]
    with torch.inference_mode():
        hidden = model(Ragged.of([[0, 1, 2]]), BAGS, WORDS)[0] - model.place[:3]
        for at, (labels, words) in enumerate([([0, 1], [4]), ([2], [0, 1]), ([], [2])]):
            mean = model.words.weight[words].mean(0) + (model.labels.weight[labels].mean(0) if labels else 0)
            assert torch.allclose(hidden[at], mean * 8**0.5, atol=1e-5)
