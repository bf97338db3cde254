import numpy as np

from merit.core.ragged import Ragged
from merit.propensity.negatives import NegativesConfig, make_sampler

LABELS = 12


def _sampler(config=None, live=None, gold=None, mined=None):
    gold = gold or [[0, 1], [2], [3]]
    mined = mined if mined is not None else [[4, 5], [6], []]
    return make_sampler(
        Ragged.of(gold),
        np.array([1, 0, 2, 0], np.int32),
        Ragged.of(mined),
        np.array([3, 1, 2], np.int32)[: sum(map(len, mined))],
        np.ones(LABELS, bool) if live is None else live,
        config or NegativesConfig(mined=2, popular=3, random=4),
    )


def test_rates_are_how_often_a_pair_is_drawn():
    """Forty thousand draws: the mean number of times a pair comes up is the rate it carries."""
    rows = np.repeat([0, 1, 2], 40_000)
    drawn, drawn_rates = _sampler().negatives(rows, np.random.default_rng(0))
    for row in range(3):
        labels, rates = drawn[rows == row], drawn_rates[rows == row]
        for label in range(LABELS):
            met = labels == label
            if met.any():
                assert len(np.unique(rates[met])) == 1
                np.testing.assert_allclose(met.sum() / 40_000, rates[met][0], rtol=0.05)


def test_a_gold_label_carries_the_rate_it_would_have_were_it_wrong():
    config = NegativesConfig(mined=2, popular=3, random=4)
    _, rates = _sampler(config).positives(np.array([0]))
    base = _sampler(config).base
    said_once_of_five = base[0] + 2 * 1 / (4 + 1)
    np.testing.assert_allclose(rates[0], [said_once_of_five, base[1]], rtol=1e-6)


def test_gold_labels_are_never_negatives():
    sampler = _sampler()
    for seed in range(50):
        drawn = sampler.negatives(np.array([0, 1, 2]), np.random.default_rng(seed))[0]
        assert not np.isin(drawn[0], [0, 1]).any()
        assert not (drawn[1] == 2).any()
        assert not (drawn[2] == 3).any()


def test_only_live_labels_are_drawn_at_random():
    live = np.zeros(LABELS, bool)
    live[[7, 9]] = True
    drawn = _sampler(live=live).negatives(np.array([2]), np.random.default_rng(0))[0]
    assert set(drawn[drawn >= 0].tolist()) == {7, 9}


def test_without_any_mined_label_there_are_still_negatives():
    drawn, _ = _sampler(mined=[[], [], []]).negatives(np.array([0, 1, 2]), np.random.default_rng(0))
    assert (drawn[:, :2] == -1).all()
    assert (drawn[:, 2:] >= 0).any()
