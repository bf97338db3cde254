"""A table of users: what it says row by row, and what happens to a bad one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from merit.campaigns.experiments.outcomes import tabulate
from merit.campaigns.experiments.statistics import Moments, Outcomes, merge
from merit.core.errors import DataError
from tests.campaigns.worlds import design, moments, outcomes

COVARIATES = ("orders_before", "visits_before")


def read(frame: pl.DataFrame, folder: Path, **changes: object) -> Outcomes:
    frame.write_parquet(folder / "outcomes.parquet")
    return tabulate(design(**changes), folder / "outcomes.parquet")


def arm(found: Outcomes, name: str) -> Moments:
    return merge(cell.moments for cell in found.cells if cell.arm == name)


def assert_same(one: Moments, two: Moments) -> None:
    assert one.users == two.users
    np.testing.assert_allclose(one.mean, two.mean, rtol=1e-9)
    np.testing.assert_allclose(one.scatter, two.scatter, rtol=1e-7, atol=1e-6)


def test_cells_hold_what_their_users_hold(tmp_path: Path) -> None:
    frame = outcomes(1_500)
    found = read(frame, tmp_path, covariates=COVARIATES, segment="vertical")
    assert found.names == ("bought", *COVARIATES) and len(found.cells) == 6
    for cell in found.cells:
        users = frame.filter(arm=cell.arm, vertical=cell.segment)
        assert_same(cell.moments, moments(users.select("bought", *COVARIATES).to_numpy().astype(np.float64)))
    assert found.flow and found.flow.rows == 1_500 and found.flow.checked == 1_500 and found.flow.misplaced == 0


@pytest.mark.parametrize("kind", ["csv", "jsonl", "folder"])
def test_every_format_says_the_same(kind: str, tmp_path: Path) -> None:
    frame = outcomes(400)
    place = tmp_path / f"outcomes.{kind}"
    if kind == "csv":
        frame.write_csv(place)
    elif kind == "jsonl":
        frame.write_ndjson(place)
    else:
        place.mkdir()
        frame[:150].write_parquet(place / "1.parquet")
        frame[150:].with_columns(pl.col("bought").cast(pl.Boolean)).write_parquet(place / "2.parquet")
    found = tabulate(design(covariates=COVARIATES), place)
    for name in ("expert", "merit"):
        assert_same(arm(found, name), arm(read(frame, tmp_path, covariates=COVARIATES), name))


def test_users_without_a_covariate_stay_and_say_so(tmp_path: Path) -> None:
    frame = outcomes(600).with_columns(
        visits_before=pl.when(pl.int_range(pl.len()) % 5 == 0).then(None).otherwise("visits_before")
    )
    found = read(frame, tmp_path, covariates=COVARIATES)
    assert found.names == ("bought", *COVARIATES, "visits_before is missing")
    assert found.flow and found.flow.missing == {"visits_before": 120}
    whole = merge(cell.moments for cell in found.cells)
    assert whole.users == 600 and whole.mean[3] == pytest.approx(0.2)
    nan = frame.with_columns(pl.col("visits_before").fill_null(float("nan")))
    assert_same(merge(cell.moments for cell in read(nan, tmp_path, covariates=COVARIATES).cells), whole)


def test_users_in_both_arms_are_left_out_and_counted(tmp_path: Path) -> None:
    frame = outcomes(600)
    other = pl.when(pl.col("arm") == "merit").then(pl.lit("expert")).otherwise(pl.lit("merit"))
    found = read(pl.concat([frame, frame[:7].with_columns(arm=other)]), tmp_path)
    assert found.flow and found.flow.crossovers == 7 and found.flow.rows == 607
    for name in ("expert", "merit"):
        others = frame[7:].filter(arm=name).select("bought")
        assert_same(arm(found, name), moments(others.to_numpy().astype(np.float64)))


def test_arms_that_are_not_the_agreed_ones_are_seen(tmp_path: Path) -> None:
    found = read(outcomes(1_000), tmp_path, salt="another-salt-2026")
    assert found.flow and 400 < found.flow.misplaced < 600
    elsewhere = read(outcomes(1_000), tmp_path, salt=None)
    assert elsewhere.flow and elsewhere.flow.checked == 0


WINSORISED = {"outcome": {"column": "spent", "kind": "amount", "winsorise": 0.95}, "outlook": {"mean": 2, "sd": 9}}


def test_amounts_are_winsorised_at_a_quantile_of_both_arms(tmp_path: Path) -> None:
    frame = outcomes(800)
    found = read(frame, tmp_path, **WINSORISED)
    amounts = np.sort(frame["spent"].to_numpy())
    cap = amounts[round(0.95 * (len(amounts) - 1))]  # the nearest amount, as polars takes it
    assert found.flow and found.flow.cap == cap and found.flow.capped == (amounts > cap).sum() > 30
    for name in ("expert", "merit"):
        assert_same(
            arm(found, name), moments(frame.filter(arm=name)["spent"].clip(upper_bound=cap).to_numpy()[:, None])
        )


def test_a_quantile_that_leaves_nothing_is_refused(tmp_path: Path) -> None:
    rare = outcomes(800).with_columns(spent=pl.when(pl.int_range(pl.len()) < 20).then(5.0).otherwise(0.0))
    with pytest.raises(DataError, match=r"0\.95 quantile of 'spent' is 0:.*outcome\.winsorise"):
        read(rare, tmp_path, **WINSORISED)


def test_amounts_are_capped_and_counted(tmp_path: Path) -> None:
    frame = outcomes(800)
    found = read(
        frame, tmp_path, outcome={"column": "spent", "kind": "amount", "cap": 20}, outlook={"mean": 2, "sd": 9}
    )
    assert found.flow and found.flow.capped == frame.filter(pl.col("spent") > 20).height > 0
    rows = frame.filter(arm="merit")["spent"].clip(upper_bound=20).to_numpy()[:, None]
    assert_same(arm(found, "merit"), moments(rows))


def test_rules_sort_users_into_four_groups(tmp_path: Path) -> None:
    frame = outcomes(400).with_columns(
        model=pl.int_range(pl.len()) % 2 == 0, expert=(pl.int_range(pl.len()) % 4 < 2).cast(pl.Int8)
    )
    found = read(frame, tmp_path, policies={"treatment": "model", "control": "expert"})
    counts = {kind: sum(c.moments.users for c in found.cells if c.chosen == kind) for kind in ("both", "neither")}
    assert counts == {"both": 100, "neither": 100} and {c.chosen for c in found.cells} > {"treatment only"}


def test_exposure_before_assignment_is_counted(tmp_path: Path) -> None:
    frame = outcomes(100).with_columns(
        assigned=pl.lit("2026-03-02T08:00:00Z"),
        exposed=pl.when(pl.int_range(pl.len()) < 4).then(pl.lit("2026-03-02 07:00")).otherwise(None),
    )
    found = read(frame, tmp_path, assigned_at="assigned", exposed_at="exposed")
    assert found.flow and found.flow.early == 4


def change(column: str, value: object, row: int = 2) -> Callable[[pl.DataFrame], pl.DataFrame]:
    at = pl.int_range(pl.len()) == row
    return lambda frame: frame.with_columns(pl.when(at).then(pl.lit(value)).otherwise(pl.col(column)).alias(column))


BAD: dict[str, tuple[Callable[[pl.DataFrame], pl.DataFrame], tuple[str, ...]]] = {
    "no rows": (lambda f: f.clear(), ("no rows", "buyers or not")),
    "no outcome column": (lambda f: f.rename({"bought": "bought_7d"}), ("no column 'bought'", "Rename 'bought_7d'")),
    "no covariate column": (lambda f: f.drop("visits_before"), ("no column 'visits_before'",)),
    "an empty outcome": (change("bought", None), ("row 3", "0 or 1", "fill 0 in")),
    "an outcome of two": (change("bought", 2), ("row 3", "'bought'", "'2'")),
    "an outcome that is no number": (
        lambda f: f.with_columns(bought=pl.lit(float("nan"))),
        ("row 1", "'bought'", "999 more"),
    ),
    "an endless covariate": (change("visits_before", float("inf")), ("row 3", "'visits_before'", "inf")),
    "a covariate in words": (change("visits_before", "many"), ("row 3", "'visits_before'", "'many'")),
    "a covariate of dates": (
        lambda f: f.with_columns(visits_before=pl.date(2026, 1, 1)),
        ("'visits_before' holds Date", "numbers"),
    ),
    "an unknown arm": (change("arm", "B"), ("row 3", "expert, merit", "'B'")),
    "no arm": (change("arm", None), ("row 3", "nothing")),
    "no user id": (change("user_id", None), ("row 3", "user id")),
    "a user twice in one arm": (lambda f: pl.concat([f, f[5:6]]), ("several rows in one arm", "'u5'", "row 6", "add")),
    "too many segments": (
        lambda f: f.with_columns(vertical=pl.col("user_id")),
        ("'vertical' has about", "Group them"),
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_table_is_explained(name: str, tmp_path: Path) -> None:
    mangle, words = BAD[name]
    users = 2_000 if name == "too many segments" else 1_000
    with pytest.raises(DataError) as told:
        read(mangle(outcomes(users)), tmp_path, covariates=COVARIATES, segment="vertical")
    for word in words:
        assert word in str(told.value), str(told.value)


def test_places_that_hold_no_table(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="--table PATH"):
        tabulate(design(), tmp_path / "nowhere.parquet")
    with pytest.raises(DataError, match="--table PATH"):
        tabulate(design(), tmp_path)


def test_a_rule_that_was_not_logged(tmp_path: Path) -> None:
    frame = outcomes(100).with_columns(model=pl.lit(True), expert=pl.Series([None, *[False] * 99]))
    with pytest.raises(DataError, match="row 1 has a targeting rule"):
        read(frame, tmp_path, policies={"treatment": "model", "control": "expert"})
