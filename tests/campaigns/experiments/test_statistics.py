"""Statistics as a file: back and forth, and bad ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from merit.campaigns.experiments import statistics
from merit.campaigns.experiments.analysis import analyse
from merit.campaigns.experiments.outcomes import tabulate
from merit.core.errors import MeritError
from tests.campaigns.worlds import KNOWN, design, outcomes


def test_an_analysis_of_the_statistics_is_the_analysis_of_the_users(tmp_path: Path) -> None:
    agreed = design(covariates=("orders_before",), segment="vertical")
    outcomes(2_000, lift=0.2).write_parquet(tmp_path / "users.parquet")
    seen = tabulate(agreed, tmp_path / "users.parquet")
    statistics.write(tmp_path / "statistics.json", seen)
    one, two = (analyse(agreed, each, KNOWN) for each in (seen, statistics.read(tmp_path / "statistics.json", agreed)))
    assert one.posterior.lift == pytest.approx(two.posterior.lift)
    assert one.posterior.high == pytest.approx(two.posterior.high)
    assert [each.name for each in one.segments] == [each.name for each in two.segments]
    assert any("Only statistics" in finding.told for finding in two.findings)


def test_rates_alone_are_enough_for_a_yes_or_no_outcome(tmp_path: Path) -> None:
    cells = [{"arm": "expert", "users": 1000, "mean": [0.1]}, {"arm": "merit", "users": 1000, "mean": [0.12]}]
    (tmp_path / "s.json").write_text(json.dumps({"columns": ["bought"], "cells": cells}))
    found = statistics.read(tmp_path / "s.json", design())
    rows = np.repeat([1.0, 0.0], [120, 880])
    assert found.cells[1].moments.covariance[0, 0] == pytest.approx(rows.var(ddof=1))


GOOD = {"arm": "merit", "users": 1000, "mean": [0.1, 2.0], "covariance": [[0.09, 0.0], [0.0, 1.0]]}
BAD: dict[str, tuple[Any, str]] = {
    "no JSON": ("{", "is no JSON"),
    "a list": ([], "no JSON object"),
    "an unknown key": ({"columns": ["bought"], "cells": [GOOD | {"sd": 1}]}, "unknown setting"),
    "another column": ({"columns": ["sold", "orders_before"], "cells": [GOOD]}, "the design agreed on bought"),
    "an unknown arm": ({"columns": ["bought", "orders_before"], "cells": [GOOD | {"arm": "B"}]}, "arm 'B'"),
    "an arm twice": ({"columns": ["bought", "orders_before"], "cells": [GOOD, GOOD]}, "twice"),
    "a wrong choice": ({"columns": ["bought", "orders_before"], "cells": [GOOD | {"chosen": "x"}]}, "chosen is one of"),
    "a mean too few": ({"columns": ["bought", "orders_before"], "cells": [GOOD | {"mean": [0.1]}]}, "one per column"),
    "no covariance": ({"columns": ["bought", "orders_before"], "cells": [GOOD | {"covariance": None}]}, "left out"),
    "a crooked covariance": (
        {"columns": ["bought", "orders_before"], "cells": [GOOD | {"covariance": [[0.09, 1.0], [0.0, 1.0]]}]},
        "symmetric",
    ),
    "an impossible covariance": (
        {"columns": ["bought", "orders_before"], "cells": [GOOD | {"covariance": [[0.09, 2.0], [2.0, 1.0]]}]},
        "not positive",
    ),
    "a rate above one": ({"columns": ["bought", "orders_before"], "cells": [GOOD | {"mean": [1.5, 2.0]}]}, "between 0"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_statistics_are_explained(name: str, tmp_path: Path) -> None:
    value, words = BAD[name]
    (tmp_path / "s.json").write_text(value if isinstance(value, str) else json.dumps(value))
    with pytest.raises(MeritError) as told:
        statistics.read(tmp_path / "s.json", design(covariates=("orders_before",)))
    assert words in str(told.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(MeritError, match="--statistics PATH"):
        statistics.read(tmp_path / "s.json", design())
