"""Windows are learnt from windows of the past, for sets of products of any kind."""

from __future__ import annotations

import numpy as np
import polars as pl

from merit.core.ragged import Ragged
from merit.propensity import windows
from merit.propensity.hazard import NAMES
from merit.propensity.purchases import PurchaseHistories
from merit.propensity.windows import WindowConfig, WindowData, WindowModel

ITEMS, LABELS = 60, 12
ITEM_LABELS = Ragged.of([[item % LABELS] for item in range(ITEMS)])
SMALL = WindowConfig(sets=4, users=600, pairs=60)


def data(users: int = 600, days: int = 240, seed: int = 1) -> WindowData:
    """Each user buys at a rate of its own, of three labels mostly."""
    rng = np.random.default_rng(seed)
    items, ages = [], []
    for _ in range(users):
        at = np.sort(rng.integers(0, days, 3 + rng.poisson(rng.gamma(1.5, 12))))[::-1]
        liked = rng.choice(LABELS, 3)
        labels = np.where(rng.random(len(at)) < 0.8, rng.choice(liked, len(at)), rng.integers(0, LABELS, len(at)))
        items.append((labels + LABELS * rng.integers(0, ITEMS // LABELS, len(at))).tolist())
        ages.append(at)
    bought = PurchaseHistories(Ragged.of(items), np.concatenate(ages).astype(np.int32))
    role, none = rng.choice(3, users, p=[0.6, 0.2, 0.2]), np.zeros((users, 2), np.float32)
    return WindowData(bought, bought, role, ITEM_LABELS, none[:LABELS], lambda rows: none[: len(rows)])


def test_probabilities_of_test_users_are_calibrated() -> None:
    learnt = windows.learn(data(), SMALL, 7)
    assert learnt and learnt == windows.learn(data(), SMALL, 7)
    assert list(learnt.beta) == list(NAMES) and learnt.beta["again 224"] > 0.2 and learnt.longest == 90
    assert learnt.span == 240 and 0 <= learnt.spread < 0.5
    assert set(learnt.ece) == {"7", "28", "90"} and max(learnt.ece.values()) < 0.08
    assert WindowModel.model_validate_json(learnt.model_dump_json()) == learnt


def test_nothing_is_learnt_from_a_few_days() -> None:
    assert windows.learn(data(users=100, days=9), SMALL, 7) is None


def test_sets_are_parts_of_labels_and_sold() -> None:
    sold = np.full(ITEMS, 10)
    made = list(windows.sets_of(ITEM_LABELS, sold, 200, np.random.default_rng(1)))
    assert len(made) > 150 and all(sold[wanted].sum() >= windows.SOLD for wanted in made)
    numbers = {len(np.unique(ITEM_LABELS.values[wanted])) for wanted in made}
    assert 1 in numbers and LABELS in numbers
    assert not list(windows.sets_of(ITEM_LABELS, np.zeros(ITEMS, int), 5, np.random.default_rng(1)))


def test_the_direction_of_products_is_the_mean_of_their_labels() -> None:
    factors, wanted = np.arange(2.0 * LABELS).reshape(LABELS, 2), np.zeros(ITEMS, dtype=bool)
    wanted[[0, 1]] = True
    sold = np.ones(ITEMS, int)
    sold[0] = 3
    found = windows.direction(wanted, sold, ITEM_LABELS, factors.astype(np.float32))
    assert np.allclose(found, (3 * factors[0] + factors[1]) / 4)


def test_events_of_stored_users() -> None:
    users = pl.DataFrame({"items": [[4, 5], [6]], "days": [[9, 7], [8]], "bought": [[True, False], [True]]})
    assert windows.events_of(users, 7).items.values.tolist() == [4, 6]
    assert windows.events_of(users, 7).ages.tolist() == [2, 1]
    assert windows.events_of(users, 7, purchases=False).items.values.tolist() == [4, 5, 6]
    assert windows.events_of(users.drop("bought"), 7).items.values.tolist() == [4, 5, 6]
