"""A design that could be bent to please is refused at once."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from merit.core.errors import ConfigError
from tests.campaigns.worlds import design

BAD: dict[str, tuple[dict[str, Any], str]] = {
    "shares": ({"arms": {"expert": 0.5, "merit": 0.4}}, "add up to 0.9"),
    "an arm that is not there": ({"treatment": "model"}, "arms has no 'model'"),
    "one arm": ({"treatment": "expert"}, "the same arm"),
    "a short salt": ({"salt": "x"}, "at least 8"),
    "the outcome as a covariate": ({"covariates": ["bought"]}, "'bought' is named for two things"),
    "half of the times": ({"assigned_at": "t"}, "both, or neither"),
    "a prior that ships alone": ({"prior": {"mean": 0.05, "sd": 0.01}}, "would ship without a test"),
    "amounts without spread": ({"outcome": {"kind": "amount"}}, "outlook.sd is needed"),
    "a rate with spread": ({"outlook": {"mean": 0.1, "sd": 1}}, "follows from it"),
    "a winsorised yes": ({"outcome": {"winsorise": 0.99}}, "nothing to cap"),
    "two limits": ({"outcome": {"kind": "amount", "cap": 5, "winsorise": 0.99}}, "agree on one"),
    "a capped yes": ({"outcome": {"cap": 5}}, "nothing to cap"),
    "a threshold of one": ({"threshold": 1.0}, "threshold"),
    "a misspelt setting": ({"minimum_efect": 0.1}, "did you mean 'minimum_effect'"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_designs_are_explained(name: str) -> None:
    changes, words = BAD[name]
    with pytest.raises(ConfigError) as told:
        design(**changes)
    assert words in str(told.value)


def test_a_window_of_seven_days_ends_on_the_seventh() -> None:
    assert design().end == date(2026, 3, 8)
    assert design(arms={"holdout": 0.2, "expert": 0.4, "merit": 0.4}).rule.treatment == 0.4
