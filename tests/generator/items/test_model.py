"""Lists, likelihoods and likely labels of a generator that reads items, against slow twins."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from merit.core.ragged import Ragged
from merit.generator.decoding import DecodeConfig
from merit.generator.items import model as items_model
from merit.generator.items.model import LIKELY, ItemGenerator
from merit.propensity.calibration import CalibrationCurve
from tests.generator.items import worlds
from tests.generator.items.worlds import ITEMS, LIVE


@torch.inference_mode()
def next_chances(generator: ItemGenerator, row: int, users: worlds.ItemHistories, said: list[int]) -> np.ndarray:
    """The slow twin: the whole list is read again, item by item and label by label; of live labels."""
    user = users.gather(np.array([row]))
    network, catalogue = generator.network, generator.catalogue
    states, _ = network.write(torch.tensor([[-1, *said]]), *network.read(user.positions(), catalogue))
    values, biases = network.vectors(catalogue, np.arange(ITEMS))
    offsets = network.offsets(user.positions(), user.weeks, catalogue, np.arange(ITEMS))[0]
    items = (values @ network.choose(states[0, -1]) + biases + offsets).softmax(0).numpy()
    by_label = [sum(items[item] for item in range(ITEMS) if label in catalogue.labels[item]) for label in LIVE]
    prior = generator.prior.of(user, np.array([0]), LIVE)[0].numpy()
    logits = network.trust.item() * prior + network.share.item() * np.log(np.array(by_label) + 1e-7)
    logits[np.isin(LIVE, said)] = -np.inf
    return logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()


def test_lists_are_greedy_and_never_repeat() -> None:
    generator, users = worlds.generator(), worlds.histories()
    lists = generator.decode(users, DecodeConfig(max_labels=4, fixed_budget=True), seed=1)
    for row in range(len(users)):
        said: list[int] = []
        for label in lists[row].tolist():
            chances = next_chances(generator, row, users, said)
            assert chances[list(LIVE).index(label)] >= chances.max() - 1e-4
            said.append(label)
        assert len(set(said)) == 4


def test_a_list_goes_on_behind_what_is_written() -> None:
    generator, users = worlds.generator(), worlds.histories()
    written = Ragged.of([[], [2], [5, 0], [1], [6]])
    lists = generator.decode(users, DecodeConfig(max_labels=2, fixed_budget=True), 1, written=written)
    for row in range(len(users)):
        said = written[row].tolist()
        chances = next_chances(generator, row, users, [*said, *([-1] * (2 - len(said)))] if len(said) < 2 else said)
        first = lists[row].tolist()[0]
        assert first not in said and chances[list(LIVE).index(first)] >= chances.max() - 1e-4


def test_without_prefixes_a_list_is_the_ranking_of_the_first_position_whatever_is_written() -> None:
    generator, users = worlds.generator(prefixes="none"), worlds.histories()
    written = Ragged.of([[], [2], [5, 0], [1], [6]])
    lists = generator.decode(users, DecodeConfig(max_labels=3, fixed_budget=True), 1, written=written)
    for row in range(len(users)):
        before = written[row].tolist()
        chances = next_chances(generator, row, users, [])
        ranked = [int(LIVE[place]) for place in np.argsort(-chances) if LIVE[place] not in before]
        assert lists[row].tolist() == ranked[:3]
    sampling = DecodeConfig(mode="sample", samples=400, max_labels=2, fixed_budget=True)
    drawn = generator.decode(users.gather(np.array([3])), sampling, seed=1)[0].reshape(-1, 2)
    chances = np.exp(next_chances(generator, 3, users, []))
    for place, label in enumerate(LIVE):  # without replacement: P(second = b) = Σ_a P(a) P(b) / (1 - P(a))
        second = sum(chances[a] * chances[place] / (1 - chances[a]) for a in range(len(LIVE)) if a != place)
        assert abs((drawn[:, 1] == label).mean() - second) < 0.08
        assert abs((drawn[:, 0] == label).mean() - chances[place]) < 0.08
    assert (drawn[:, 0] != drawn[:, 1]).all()


def test_samples_are_drawn_by_key_and_as_often_as_they_are_likely() -> None:
    generator, users = worlds.generator(), worlds.histories(3)
    config = DecodeConfig(mode="sample", samples=3000, max_labels=1, fixed_budget=True)
    keys = np.array([7, 8, 9], np.uint64)
    lists = generator.decode(users, config, 1, keys=keys)
    assert all(len(lists[row]) == 3000 for row in range(3))
    for row in range(3):
        shares = np.array([(lists[row] == label).mean() for label in LIVE])
        assert np.abs(shares - np.exp(next_chances(generator, row, users, []))).max() < 0.04
    alone = generator.decode(users.gather(np.array([2])), config, 1, keys=keys[2:])
    assert np.array_equal(alone[0], lists[2])


def test_likelihood_is_that_of_the_first_label_and_zero_of_blocked_ones() -> None:
    generator, users = worlds.generator(), worlds.histories()
    asked = np.array([1, 3, 4, 6])
    found = generator.likelihood(users)(asked)
    for row in range(len(users)):
        chances = np.exp(next_chances(generator, row, users, []))
        wanted = [chances[list(LIVE).index(label)] if label in LIVE else 0.0 for label in asked]
        np.testing.assert_allclose(found[row], wanted, rtol=2e-3, atol=1e-6)


def test_beams_are_the_most_likely_first_labels() -> None:
    generator, users = worlds.generator(), worlds.histories()
    lists = generator.decode(users, DecodeConfig(mode="beam", beams=3, max_labels=1, fixed_budget=True), 1)
    for row in range(len(users)):
        best = LIVE[np.argsort(-next_chances(generator, row, users, []), kind="stable")[:3]]
        assert lists[row].tolist() == best.tolist()


@torch.inference_mode()
def test_likely_labels_are_those_of_likely_items() -> None:
    generator, users = worlds.generator(), worlds.histories()
    labels, values = generator.likely(users, 4)
    for row in range(len(users)):
        items = generator._first_items(users.gather(np.array([row])))[0].softmax(-1)[0, 0].numpy()
        carried = generator.catalogue.labels
        chances = {int(c): float(sum(items[i] for i in range(ITEMS) if c in carried[i])) for c in LIVE}
        best = sorted((c for c in chances if chances[c] > LIKELY), key=lambda c: -chances[c])[:4]
        assert labels[row].tolist() == best
        wanted = [np.log(chances[c] / LIKELY) for c in best]
        np.testing.assert_allclose(values[labels.offsets[row] : labels.offsets[row + 1]], wanted, rtol=1e-3)


def test_states_are_those_that_chose_the_labels() -> None:
    generator, users = worlds.generator(), worlds.histories()
    values, counts = generator.states(users, 3)
    found = generator.lists(users, 3)
    assert np.array_equal(values, found.states) and counts.tolist() == [3] * len(users)


def test_blocks_change_no_list(monkeypatch: pytest.MonkeyPatch) -> None:
    generator, users = worlds.generator(), worlds.histories()
    config = DecodeConfig(max_labels=4, fixed_budget=True)
    whole, likely = generator.decode(users, config, 1), generator.likely(users, 3)
    monkeypatch.setattr(items_model, "GRID", 1)  # a user at a time
    again, again_likely = generator.decode(users, config, 1), generator.likely(users, 3)
    assert np.array_equal(again.values, whole.values) and np.array_equal(again_likely[0].values, likely[0].values)


def test_free_lists_are_as_long_as_their_probabilities_are_worth() -> None:
    base, users = worlds.generator(), worlds.histories()
    sure, unsure = (CalibrationCurve((-20.0, 20.0), ends) for ends in ((3.0, 4.0), (-9.0, -8.0)))
    lengths = []
    for curve in (sure, unsure):
        generator = ItemGenerator(
            base.network, base.catalogue, base.prior, base.live, base.config, curve=curve, expected=4.0
        )
        lengths.append(generator.decode(users, DecodeConfig(max_labels=4), 1).lengths().mean())
    assert lengths[0] == 4 and lengths[1] <= lengths[0]
