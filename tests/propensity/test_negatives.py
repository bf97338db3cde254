import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from merit.data.ragged import Ragged
from merit.propensity.negatives import NegativesConfig, look_alikes, make_sampler

LABELS = 12


def _unit(rows):
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


VECTORS = _unit(np.random.default_rng(1).normal(size=(LABELS, 5)))


def _sampler(config=None, live=None, gold=None, mined=None):
    gold = gold or [[0, 1], [2], [3]]
    mined = mined if mined is not None else [[4, 5], [6], []]
    return make_sampler(
        Ragged.of(gold),
        np.array([1, 0, 2, 0], np.int32),
        Ragged.of(mined),
        np.array([3, 1, 2], np.int32)[: sum(map(len, mined))],
        np.ones(LABELS, bool) if live is None else live,
        VECTORS,
        config or NegativesConfig(mined=2, popular=3, random=4, max_similarity=1.0),
    )


def test_rates_are_how_often_a_pair_is_drawn():
    """Forty thousand draws: the mean number of times a pair comes up is the rate it carries."""
    rows = np.repeat([0, 1, 2], 40_000)
    drawn = _sampler().negatives(rows, np.random.default_rng(0))
    for row in range(3):
        labels, rates = drawn.labels[rows == row], drawn.rates[rows == row]
        for label in range(LABELS):
            met = labels == label
            if met.any():
                assert len(np.unique(rates[met])) == 1
                np.testing.assert_allclose(met.sum() / 40_000, rates[met][0], rtol=0.05)


def test_a_gold_label_carries_the_rate_it_would_have_were_it_wrong():
    config = NegativesConfig(mined=2, popular=3, random=4, max_similarity=1.0)
    right = _sampler(config).positives(np.array([0]))
    base = _sampler(config).base
    said_once_of_five = base[0] + 2 * 1 / (4 + 1)
    np.testing.assert_allclose(right.rates[0], [said_once_of_five, base[1]], rtol=1e-6)


def test_gold_labels_are_never_negatives():
    sampler = _sampler()
    for seed in range(50):
        drawn = sampler.negatives(np.array([0, 1, 2]), np.random.default_rng(seed)).labels
        assert not np.isin(drawn[0], [0, 1]).any()
        assert not (drawn[1] == 2).any()
        assert not (drawn[2] == 3).any()


def test_only_live_labels_are_drawn_at_random():
    live = np.zeros(LABELS, bool)
    live[[7, 9]] = True
    drawn = _sampler(live=live).negatives(np.array([2]), np.random.default_rng(0)).labels
    assert set(drawn[drawn >= 0].tolist()) == {7, 9}


def test_without_any_mined_label_there_are_still_negatives():
    drawn = _sampler(mined=[[], [], []]).negatives(np.array([0, 1, 2]), np.random.default_rng(0))
    assert (drawn.labels[:, :2] == -1).all()
    assert (drawn.labels[:, 2:] >= 0).any()


def _look_alikes_one_by_one(labels, gold, vectors, limit):
    alike = np.zeros(labels.shape, bool)
    for row in range(len(labels)):
        for column, label in enumerate(labels[row]):
            for right in gold[row]:
                if right >= 0 and (label == right or vectors[label] @ vectors[right] > limit):
                    alike[row, column] = True
    return alike


@settings(max_examples=60, deadline=None)
@given(data=st.data(), limit=st.floats(-0.5, 0.99))
def test_look_alikes_equal_their_slow_twin(data, limit):
    label = st.integers(0, LABELS - 1)
    rows = data.draw(st.integers(1, 4))
    labels = np.array(data.draw(st.lists(st.lists(label, min_size=3, max_size=3), min_size=rows, max_size=rows)))
    padded = st.integers(-1, LABELS - 1)
    gold = np.array(data.draw(st.lists(st.lists(padded, min_size=2, max_size=2), min_size=rows, max_size=rows)))
    found = look_alikes(labels, gold, VECTORS, limit)
    slow = _look_alikes_one_by_one(labels, gold, VECTORS, limit)
    cosines = VECTORS @ VECTORS.T
    if np.abs(cosines - limit).min() > 1e-6:  # rounding decides nothing here
        assert np.array_equal(found, slow)
