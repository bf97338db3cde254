from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from merit.core.ragged import Ragged
from merit.generator.mining import MiningConfig, keep_mistakes

RNG = np.random.default_rng(0)
VECTORS = RNG.normal(size=(12, 3)).astype(np.float32)
VECTORS /= np.linalg.norm(VECTORS, axis=1, keepdims=True)
lists = st.lists(st.integers(0, 11), max_size=8)


@given(st.lists(st.tuples(lists, lists.map(set).map(sorted), lists), min_size=1, max_size=6))
@settings(max_examples=100, deadline=None)
def test_equals_one_label_at_a_time(rows: list[tuple[list[int], list[int], list[int]]]) -> None:
    sampled, gold, later = (Ragged.of([list(row[place]) for row in rows]) for place in range(3))
    config = MiningConfig(max_similarity=0.6)
    mined = keep_mistakes(sampled, gold, later, VECTORS, config)
    early = 0
    for place, (said, right, after) in enumerate(rows):
        expected = {}
        for label in said:
            alike = any(float(VECTORS[label] @ VECTORS[each]) > 0.6 for each in right)
            if label not in right and not alike:
                expected[label] = expected.get(label, 0) + 1
        start, stop = mined.labels.offsets[place : place + 2]
        found = dict(zip(mined.labels[place].tolist(), mined.counts[start:stop].tolist(), strict=True))
        assert found == expected
        early += len(set(expected) & set(after))
    assert mined.report["later_bought"] == early
    assert mined.report["mined"] == len(mined.labels.values)


def test_the_report_adds_up() -> None:
    sampled, gold, none = Ragged.of([[0, 0, 1, 2]]), Ragged.of([[0]]), Ragged.of([[]])
    told = keep_mistakes(sampled, gold, none, np.eye(3, dtype=np.float32), MiningConfig()).report
    assert (told["sampled"], told["distinct"], told["gold"], told["look_alikes"], told["mined"]) == (4, 3, 1, 0, 2)
