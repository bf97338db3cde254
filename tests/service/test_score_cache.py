"""The last scores are not computed again, and the cache is bounded."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merit.retrieval.exact import Doubles
from merit.retrieval.query import Interest
from merit.service.score_cache import ScoreCache


def interest(text: str) -> Interest:
    return Interest(text, 0, np.zeros(1, np.float32), text, 1.0, far=False)


class Scorer:
    def __init__(self, seconds: float = 0.0) -> None:
        self.asked: list[str] = []
        self.seconds = seconds

    def __call__(self, asked: Interest) -> Doubles:
        self.asked.append(asked.text)
        time.sleep(self.seconds)
        return np.full(10, float(len(asked.text)))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 5), max_size=30), st.integers(0, 4))
def test_the_last_few_are_kept(asked: list[int], room: int) -> None:
    scorer = Scorer()
    cache = ScoreCache(scorer, most=room * 80)
    kept: list[int] = []
    computed: list[str] = []
    for number in asked:
        assert (cache(interest("x" * number)) == number).all()
        if number not in kept:
            computed.append("x" * number)
        kept = [*(each for each in kept if each != number), number][-room:] if room else []
    assert scorer.asked == computed


def test_many_who_ask_for_the_same_wait_for_one() -> None:
    scorer = Scorer(0.05)
    cache = ScoreCache(scorer)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(cache, [interest("same")] * 8))
    assert scorer.asked == ["same"] and all(each is found[0] for each in found)
    with pytest.raises(ValueError, match="read-only"):
        found[0][0] = 1


def test_who_knows_the_answer_does_not_wait_for_another() -> None:
    scorer = Scorer()
    cache = ScoreCache(scorer)
    cache(interest("known"))
    scorer.seconds = 5
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(cache, interest("new"))
        begin = time.perf_counter()
        while "new" not in scorer.asked:
            time.sleep(0.01)
        cache(interest("known"))
        assert time.perf_counter() - begin < 4 and not slow.done()


def test_another_size_of_an_audience_is_no_other_pass(
    ask: Any, wanted: dict[str, Any], service: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = service.store.current.model
    passes = []
    plain = type(model).audience_scores
    monkeypatch.setattr(type(model), "audience_scores", lambda *given: passes.append(given) or plain(*given))
    monkeypatch.setattr(service.store.current.scores, "_score", model.audience_scores)
    text = model.labels.texts[9]
    for users in (110, 120, 130):
        asked = wanted | {"interests": [text], "size": {"by": "count", "users": users}}
        assert ask("audience").post("/v1/audience/preview", json=asked).json()["members"] == users
    assert len(passes) == 1
