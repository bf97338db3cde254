"""What a benchmark compares: names that are known, seeds by group, and settings from the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from merit.baselines.methods import METHODS
from merit.bench.config import BenchCell, BenchConfig, cells, chosen, chosen_datasets, objective_of, slug
from merit.core import config
from merit.core.errors import ConfigError
from merit.objective.collate import OBJECTIVES

ROOT = Path(__file__).parents[2]
GROUPS = [
    {"methods": ["MERIT", "self-correction (β = 0.5)", "trivial"], "seeds": [1, 2]},
    {"methods": ["linear", "trivial"], "seeds": [1]},
]


def small(*overrides: str, **changes: Any) -> BenchConfig:
    values = {"datasets": {"groceries": {"source": {"kind": "complete-journey"}}}, "groups": GROUPS}
    return config.build(BenchConfig, values | changes, overrides)


def test_cells_are_methods_by_seed_and_the_reference_is_always_there() -> None:
    every = list(cells(small(), "groceries"))
    assert len(every) == 3 * 2 + 1
    assert set(cells(small(), "groceries", ["linear"])) == {
        BenchCell("groceries", "linear", 1),
        BenchCell("groceries", "trivial", 1),
        BenchCell("groceries", "trivial", 2),
    }


def test_a_group_may_be_for_some_data_sets() -> None:
    source = {"source": {"kind": "complete-journey"}}
    both = {"datasets": {"groceries": source, "more": source}}
    groups = [*GROUPS, {"methods": ["ALS"], "datasets": ["more"]}]
    made = small(**both, groups=groups)
    assert BenchCell("more", "ALS", 1) in set(cells(made, "more"))
    assert not [cell for cell in cells(made, "groceries") if cell.method == "ALS"]
    with pytest.raises(ConfigError, match="names the data set 'mroe'"):
        small(**both, groups=[*GROUPS, {"methods": ["ALS"], "datasets": ["mroe"]}])


def test_a_method_is_an_objective_with_its_temper() -> None:
    assert objective_of("self-correction (β = 0.5)") == ("self-correction", 0.5)
    assert objective_of("teacher-forcing") == ("teacher-forcing", None)
    assert objective_of("teaching (β = 1)") is None and objective_of("linear") is None


def test_unknown_names_are_told_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="no method 'linaer'; did you mean 'linear'"):
        small(groups=[{"methods": ["linaer", "trivial"]}])
    with pytest.raises(ConfigError, match="reference 'trivial' is in no group"):
        small(groups=[{"methods": ["linear"]}])
    with pytest.raises(ConfigError, match="No method begins with 'als'"):
        chosen(small(), ["als"])
    with pytest.raises(ConfigError, match="no data set 'beauty'"):
        chosen_datasets(small(), ["beauty"])


def test_methods_are_chosen_by_how_they_begin() -> None:
    assert chosen(small(), ["merit", "SELF"]) == ["MERIT", "self-correction (β = 0.5)"]


def test_a_data_set_can_be_named_on_the_command_line() -> None:
    source = "datasets.shop.source"
    made = small(f"{source}.kind=tables", f"{source}.interactions=a.parquet", f"{source}.items=b.parquet")
    assert made.run_config("shop").source.interactions == Path("a.parquet")  # type: ignore[union-attr]


def test_tables_are_found_from_one_folder() -> None:
    tables = {"source": {"kind": "tables", "interactions": "shop/events.parquet", "items": "/else/items.parquet"}}
    source = small(data="data", datasets={"shop": tables}).run_config("shop").source
    assert (source.interactions, source.items) == (Path("data/shop/events.parquet"), Path("/else/items.parquet"))  # type: ignore[union-attr]


def test_a_variant_is_the_grid_with_other_settings() -> None:
    given = {"variants": {"MERIT, forced": ["stage_2.objective=teacher-forcing", "states.labels=7"]}}
    for changes in ({}, {"stage_2": {"beta": 0.5}}):  # a temper means nothing where one token is right
        made = small(**given, **changes).variant("MERIT, forced")
        assert made.stage_2.model_dump() == made.stage_1.model_dump() and made.states.labels == 7
    with pytest.raises(ConfigError, match=r"variant 'MERIT, wide'.*\n.*propensity.modle: unknown"):
        small(variants={"MERIT, wide": ["propensity.modle.width=9"]}).variant("MERIT, wide")


def test_names_of_folders_keep_tempers_apart() -> None:
    names = ["self-correction", *(f"self-correction (β = {beta:g})" for beta in (0, 0.5, 1)), "GROOV, open vocabulary"]
    assert len({slug(name) for name in names}) == len(names)
    assert all("/" not in slug(name) and " " not in slug(name) for name in names)


def test_the_grid_of_the_project_has_every_method_and_objective() -> None:
    made = config.load(BenchConfig, ROOT / "configs/bench.toml")
    methods = made.seeds_of()
    assert not set(METHODS) - set(methods)
    assert {objective[0] for name in methods if (objective := objective_of(name))} == set(OBJECTIVES)
    assert {"complete-journey", "amazon_beauty", "online_retail_ii"} < set(made.datasets)
    baselines = {"DEXML-DS", "DEXML-STk", "GROOV", "XLGen-MCG", "XLGen-BCL", "PatchRec"}
    assert all(len(methods[name]) == 3 for name in {"MERIT", "linear", *baselines})
