import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merit.evaluation import discovery
from merit.evaluation.classification import MetricKey
from merit.evaluation.discovery import BUDGETS, found_new, measure
from tests.evaluation.worlds import world

LABELS = 36


@settings(max_examples=60, deadline=None)
@given(data=st.data(), block=st.sampled_from([1, 5, 36, 512]))
def test_recall_of_new_labels_equals_its_slow_twin(data, block):
    users = data.draw(st.integers(1, 6))
    lists = st.lists(st.integers(0, LABELS - 1), max_size=8, unique=True)
    gold = data.draw(st.lists(lists, min_size=users, max_size=users))
    history = data.draw(st.lists(lists, min_size=users, max_size=users))
    eighths = st.integers(0, 8).map(lambda n: n / 8)  # ties are frequent
    row = st.lists(eighths, min_size=LABELS, max_size=LABELS)
    scores = np.array(data.draw(st.lists(row, min_size=users, max_size=users)), dtype=np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(discovery, "BLOCK", block)
        found = measure(lambda labels: scores[:, labels], world(gold, history))
    wanted = [set(now) - set(before) for now, before in zip(gold, history, strict=True)]
    if not any(wanted):
        return
    for budget in BUDGETS:
        hits = 0
        for user, new in enumerate(wanted):
            may = [label for label in range(LABELS) if label not in history[user]]
            said = sorted(may, key=lambda label: (-scores[user, label], label))[:budget]
            hits += len({label for label in said if scores[user, label] > 0} & new)
        assert found[found_new(budget)].value == pytest.approx(hits / sum(map(len, wanted)))


def test_repeats_do_not_take_the_room():
    truth = world(gold=[[7]], history=[list(range(6))])
    scores = np.linspace(1, 0.1, LABELS, dtype=np.float32)[None]  # all of the history is before the gold
    assert measure(lambda labels: scores[:, labels], truth)[found_new(5)].value == 1
    assert found_new(5) == MetricKey("recall", "exact", budget=5, part="discovery")


def test_the_scores_are_left_as_they_are():
    truth = world(gold=[[7]], history=[[1, 2]])
    scores = np.ones((1, LABELS), np.float32)
    measure(lambda labels: scores[:, : len(labels)], truth)
    assert (scores == 1).all()
