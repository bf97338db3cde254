import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from merit.core.ragged import Ragged
from merit.evaluation import audiences
from merit.evaluation.audiences import MEAN, SHARES, hit, measure
from merit.evaluation.predictions import Truth
from merit.evaluation.ranking import budget

LABELS, VERTICALS = 7, 3


def _truth(gold, vertical):
    users = len(gold)
    nothing = Ragged(np.zeros(users + 1, np.int64), np.zeros(0, np.int32))
    none = np.zeros(0, np.int32)
    return Truth(
        gold=Ragged.of(gold),
        history=nothing,
        counts=none,
        purchases=none,
        user=np.arange(users),
        vertical=np.asarray(vertical),
        verticals=["food", "garden", "toys"],
        vectors=np.zeros((LABELS, 2), np.float32),
        cluster=np.zeros(LABELS, np.int64),
    )


def _first(scores, k):
    """Users in order of score, the lower number first where scores are equal."""
    return set(sorted(range(len(scores)), key=lambda user: (-scores[user], user))[:k])


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_hits_equal_their_slow_twin(data):
    users = data.draw(st.integers(2, 25))
    label = st.integers(0, LABELS - 1)
    gold = data.draw(st.lists(st.lists(label, min_size=1, max_size=3, unique=True), min_size=users, max_size=users))
    vertical = data.draw(st.lists(st.integers(0, VERTICALS - 1), min_size=LABELS, max_size=LABELS))
    eighths = st.integers(0, 8).map(lambda n: n / 8)  # sums are exact, and ties are frequent
    row = st.lists(eighths, min_size=LABELS, max_size=LABELS)
    scores = np.array(data.draw(st.lists(row, min_size=users, max_size=users)), dtype=np.float32)
    shares = np.eye(VERTICALS, dtype=np.float32)[vertical]
    found = measure(lambda labels: scores[:, labels], _truth(gold, vertical), shares)
    for share in SHARES:
        k = budget(share, users)
        pairs = [(user, each) for user in range(users) for each in gold[user]]
        right = sum(user in _first(scores[:, each], k) for user, each in pairs)
        assert abs(found[hit(share)].value - right / len(pairs)) < 1e-12
        means = []
        for number, name in enumerate(["food", "garden", "toys"]):
            wanted = [user for user in range(users) if any(vertical[each] == number for each in gold[user])]
            total = sum((scores[:, each] for each in range(LABELS) if vertical[each] == number), np.zeros(users))
            if wanted:
                means.append(len(_first(total, k) & set(wanted)) / len(wanted))
                assert abs(found[hit(share, name)].value - means[-1]) < 1e-12
        assert abs(found[hit(share, MEAN)].value - np.mean(means)) < 1e-12


def test_blocks_of_labels_change_nothing(monkeypatch):
    scores = np.random.default_rng(0).random((20, LABELS)).astype(np.float32)
    truth = _truth([[user % LABELS] for user in range(20)], [0, 0, 1, 1, 2, 2, 2])
    shares = np.eye(VERTICALS, dtype=np.float32)[truth.vertical]
    whole = measure(lambda labels: scores[:, labels], truth, shares)
    monkeypatch.setattr(audiences, "BLOCK", 2)
    parts = measure(lambda labels: scores[:, labels], truth, shares)
    assert {key: metric.value for key, metric in whole.items()} == {key: each.value for key, each in parts.items()}
