import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merit.core.errors import DataError
from merit.propensity.calibration import CENTRES, ScoreTally, calibrate


def _world(shift, pairs=400_000, seed=0):
    """Scores that promise too much by `shift`, and what comes true."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(-3, 1.5, size=pairs)
    happened = rng.random(pairs) < 1 / (1 + np.exp(-truth))
    return (truth + shift).astype(np.float32), happened, truth


def test_a_shifted_score_is_put_right():
    scores, happened, truth = _world(shift=2.0)
    tally = ScoreTally()
    tally.add(scores, happened)
    found = calibrate(tally).probability(scores)
    np.testing.assert_allclose(found.mean(), happened.mean(), rtol=0.01)
    likely = np.abs(truth + 3) < 2  # where there are many pairs
    error = np.abs(np.log(found[likely] * (1 + np.exp(-truth[likely]))))
    assert np.median(error) < 0.05
    assert error.max() < 0.5  # the raw score is off by a factor of up to seven


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_probability_ranks_as_its_score_does(data):
    filled = data.draw(st.lists(st.integers(0, len(CENTRES) - 1), min_size=1, max_size=6))
    tally = ScoreTally()
    for place in filled:
        tally.pairs[place] += data.draw(st.integers(1, 1000))
        tally.hits[place] = data.draw(st.integers(0, int(tally.pairs[place])))
    tally.hits[filled[0]] = max(1, tally.hits[filled[0]])
    scores = np.linspace(-19, 19, 400)
    found = calibrate(tally).probability(scores)
    assert (np.diff(found) > 0).all() or (found[np.append(True, np.diff(found) <= 0)] > 1 - 1e-9).any()
    assert ((found > 0) & (found <= 1)).all()


def test_tallies_add_up_in_any_order():
    scores, happened, _ = _world(shift=0.0, pairs=1000)
    whole, parts = ScoreTally(), ScoreTally()
    whole.add(scores, happened)
    for part in (slice(500, None), slice(0, 500)):
        parts.add(scores[part], happened[part])
    assert np.array_equal(whole.pairs, parts.pairs)
    assert np.array_equal(whole.hits, parts.hits)


def test_scores_that_are_not_numbers_are_refused():
    with pytest.raises(DataError, match="not numbers"):
        ScoreTally().add(np.array([0.0, np.nan], np.float32), np.array([True, False]))


def test_without_a_single_hit_there_is_nothing_to_calibrate_on():
    tally = ScoreTally()
    tally.add(np.zeros(5, np.float32), np.zeros(5, bool))
    with pytest.raises(DataError, match="hold out more"):
        calibrate(tally)
