"""A shop of a few items, a network over it, and users: small enough to compute everything by hand."""

from __future__ import annotations

import numpy as np
import torch

from merit.core.ragged import Ragged
from merit.data.title_words import WordCounts
from merit.data.trends import WINDOWS, ItemTrends, Trends
from merit.generator.items.histories import ItemHistories
from merit.generator.items.model import ItemGenerator, ItemsConfig
from merit.generator.items.network import ItemContents, ItemNetwork, NetworkConfig
from merit.generator.items.prefixes import Prefixes
from merit.generator.items.training import FactorPrior, ItemTrainConfig
from merit.propensity.factor_model import FactorModel
from merit.propensity.features import UserFeatures, no_states

ITEMS, LABELS, WORDS, TEXT, WEEKS = 12, 7, 5, 4, 6
LIVE = np.array([0, 1, 2, 4, 5, 6])
CONFIG = NetworkConfig(positions=6, written=4, width=16, layers=2, heads=2, dropout=0.0)


def contents(seed: int = 0, items: int = ITEMS) -> ItemContents:
    rng = np.random.default_rng(seed)
    labels = Ragged.of([sorted(rng.choice(LABELS, rng.integers(1, 4), replace=False).tolist()) for _ in range(items)])
    words = Ragged.of([sorted(rng.choice(WORDS, rng.integers(0, 3), replace=False).tolist()) for _ in range(items)])
    trends = rng.random((WEEKS, items, len(WINDOWS))).astype(np.float16)
    return ItemContents(labels, labels, words, ItemTrends(trends), (LABELS, WORDS))


def network(seed: int = 0, labels: int = LABELS, items: int = ITEMS) -> ItemNetwork:
    torch.manual_seed(seed)
    made = ItemNetwork(CONFIG, labels, WORDS, items)
    with torch.no_grad():
        for value in made.parameters():
            value.add_(0.3 * torch.randn_like(value))
        made.share.fill_(0.6)
        made.trust.fill_(0.8)
    return made.eval()


def histories(users: int = 5, seed: int = 0) -> ItemHistories:
    """Users with up to nine items; the first has none."""
    rng = np.random.default_rng(seed)
    items = [rng.integers(0, ITEMS, 0 if user == 0 else rng.integers(1, 10)).tolist() for user in range(users)]
    days = [sorted(rng.integers(8, 300, len(row)).tolist(), reverse=True) for row in items]
    carried = contents(seed).labels
    counted = [np.unique(carried.take(np.array(row, int))[0], return_counts=True) for row in items]
    times = np.concatenate([counts for _, counts in counted]).astype(np.int32)
    trends = Trends(rng.integers(0, WEEKS, users), rng.standard_normal((WEEKS, LABELS)).astype(np.float16))
    words = WordCounts(Ragged.of([[user % WORDS] for user in range(users)]), np.ones(users, np.int32))
    features = UserFeatures(
        no_states(users), Ragged.of([labels.tolist() for labels, _ in counted]), times, words, trends
    )
    return ItemHistories(Ragged.of(items).tail(CONFIG.positions), Ragged.of(days).tail(CONFIG.positions), features)


def prior(seed: int = 0) -> FactorPrior:
    torch.manual_seed(seed)
    vectors = np.random.default_rng(seed).standard_normal((LABELS, TEXT)).astype(np.float32)
    return FactorPrior([FactorModel(3, TEXT, torch.ones(LABELS, dtype=torch.bool), WORDS).eval()], vectors)


def generator(seed: int = 0, prefixes: Prefixes = "own") -> ItemGenerator:
    config = ItemsConfig(network=CONFIG, train=ItemTrainConfig(prefixes=prefixes))
    return ItemGenerator(network(seed), contents(seed), prior(seed), LIVE, config)
