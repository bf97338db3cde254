import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from merit.evaluation import calibration
from merit.evaluation.calibration import EDGES, Bins


def _filled(probability, truth, group, groups=2):
    bins = Bins.empty(groups)
    half = len(probability) // 2
    for part in (slice(0, half), slice(half, None)):
        bins.add(probability[part], truth[part], group[part])
    return bins.table(["food", "garden"])


def _slow(probability, truth):
    """Pair by pair."""
    cells = {}
    for chance, happened in zip(probability, truth, strict=True):
        place = max(at for at in range(len(EDGES) - 1) if EDGES[at] <= chance)
        cells.setdefault(place, []).append((chance, happened))
    gap = sum(abs(sum(c for c, _ in pairs) - sum(h for _, h in pairs)) for pairs in cells.values())
    return gap / len(probability), sum((c - h) ** 2 for c, h in zip(probability, truth, strict=True)) / len(truth)


@settings(max_examples=50, deadline=None)
@given(pairs=st.lists(st.tuples(st.floats(0, 0.999), st.booleans(), st.integers(0, 1)), min_size=1, max_size=60))
def test_errors_equal_their_slow_twin(pairs):
    probability, truth, group = (np.array(each) for each in zip(*pairs, strict=True))
    table = _filled(probability, truth, group)
    ece, brier = _slow(probability.tolist(), truth.tolist())
    found = calibration.summary(table)
    np.testing.assert_allclose([found.ece, found.brier], [ece, brier], atol=1e-9)
    assert found.pairs == len(pairs)
    assert found.prevalence == truth.mean()
    verticals = calibration.by_vertical(table)
    assert verticals["vertical"].to_list() == [
        name for at, name in enumerate(["food", "garden"]) if (group == at).any()
    ]
    for row in verticals.iter_rows(named=True):
        chosen = group == ["food", "garden"].index(row["vertical"])
        ece, _ = _slow(probability[chosen].tolist(), truth[chosen].tolist())
        np.testing.assert_allclose(row["ece"], ece, atol=1e-9)


def test_a_pair_is_in_the_bin_that_its_promise_is_in():
    promised = np.array([0.0, 1e-7, 0.02, 0.3, EDGES[9], 0.999, 1.0])
    table = _filled(promised, np.zeros(7, bool), np.zeros(7, int))
    bins = calibration.by_bin(table)
    assert bins.columns[:2] == ["low", "high"] and bins["pairs"].to_list() == [2, 1, 1, 1, 2]
    for low, high, pairs, mean in bins.select("low", "high", "pairs", mean=bins["promised"] / bins["pairs"]).rows():
        inside = [each for each in promised if low <= each < high or each == high == 1]
        assert len(inside) == pairs and np.isclose(np.mean(inside), mean)


def test_promises_of_one_percent_and_more_are_told_on_their_own():
    chance = np.repeat([0.0001, 0.3], [990, 10])
    table = _filled(chance, np.zeros(1_000, bool), np.zeros(1_000, int))
    found = calibration.summary(table)
    assert np.isclose(found.ece_likely, 0.3) and np.isclose(found.ece, (0.099 + 3) / 1_000)
    rare = _filled(chance[:990], np.zeros(990, bool), np.zeros(990, int))
    assert calibration.summary(rare).ece_likely == 0


def test_a_promise_kept_has_no_error_and_one_broken_has_all_of_it():
    kept = _filled(np.full(10, 0.3), np.arange(10) < 3, np.zeros(10, int))
    broken = _filled(np.full(10, 0.3), np.zeros(10, bool), np.zeros(10, int))
    assert calibration.summary(kept).ece < 1e-12
    assert abs(calibration.summary(broken).ece - 0.3) < 1e-12
