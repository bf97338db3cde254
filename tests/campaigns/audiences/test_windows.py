"""Audiences within a window: from a request to members, who is new, and what is refused."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import merit
from merit.campaigns.audiences import build, products
from merit.campaigns.audiences.report import audience_page, public_summary
from merit.campaigns.audiences.request import AudienceRequest
from merit.core import config
from merit.core.errors import MeritError
from merit.core.ragged import Ragged
from merit.report import page
from merit.retrieval.model import Model

TOP = {"name": "t", "size": {"by": "count", "users": 110}}


@pytest.fixture(scope="module")
def shop(quick: Path) -> Model:
    return merit.load(quick)


@pytest.fixture(scope="module")
def label(shop: Model) -> str:
    """The label that most products carry."""
    return shop.labels.texts[int(np.bincount(shop.windows.item_labels.values).argmax())]


def wanted(values: dict[str, Any]) -> AudienceRequest:
    return config.build(AudienceRequest, TOP | values, (), "the request")


def test_a_window_and_a_list_from_request_to_members(shop: Model, label: str, tmp_path: Path) -> None:
    pl.DataFrame({"item_id": [*shop.items["item_id"].head(40), "gone"]}).write_csv(tmp_path / "list.csv")
    start = shop.windows.end + timedelta(days=7)
    request = wanted(
        {
            "interests": [label],
            "products": str(tmp_path / "list.csv"),
            "within": {"days": 14, "from": f"{start}"},
            "control": {"share": 0.1, "salt": "spring-2027"},
        }
    )
    one, two = (build.build(shop, request, tmp_path / name) for name in ("a", "b"))
    assert one.manifest.files == two.manifest.files
    again = config.load(AudienceRequest, tmp_path / "a/request.json")
    assert again == request and '"from"' in (tmp_path / "a/request.json").read_text()
    figures = build.choose(shop, request).figures
    assert figures.window and (figures.window.start, figures.window.days) == (start, 14)
    assert figures.window.products[0].products == 40 and figures.window.products[0].unknown == 1
    assert figures.forecast and 0 < figures.forecast.low <= figures.forecast.conversions <= figures.forecast.high
    members = pl.read_parquet(tmp_path / "a/members.parquet")
    bought = shop.windows.bought(_together(shop, label, 40))
    share = bought[[shop.users["user_id"].to_list().index(user) for user in members["user_id"]]].mean()
    assert figures.diagnosis and figures.diagnosis.bought_before == pytest.approx(share)
    shown = page.render(audience_page(figures))
    assert "at least one purchase" in shown and "Bought before" in shown and figures.diagnosis.question in shown
    told = public_summary(build.preview(shop, request))
    assert told["window"]["days"] == 14 and told["diagnosis"]["bought_before"] <= 1


def _together(shop: Model, label: str, first: int) -> Any:
    mask = products.products_of_interest(shop, shop.interest(label))
    mask[:first] = True
    return mask


def test_without_a_window_a_request_is_what_it_was(shop: Model, label: str) -> None:
    request = wanted({"interests": [label]})
    new = {"within", "products", "new_to", "uplift"}
    assert not new & set(json.loads(request.model_dump_json()))
    figures = json.loads(build.choose(shop, request).figures.model_dump_json())
    assert not {"window", "diagnosis"} & set(figures)
    assert not {"window", "diagnosis"} & set(public_summary(build.preview(shop, request)))


def test_any_is_one_set_of_products_and_all_is_not_more(shop: Model, label: str) -> None:
    title, within = shop.items["title"][int(shop.windows.sold.argmax())], {"within": {"days": 28}}
    parts = [{"interests": [label]}, {"interests": [label], "products": {"title": title}}]
    one, both = (build.choose(shop, wanted(part | within)).figures for part in parts)
    every = build.choose(shop, wanted(parts[1] | within | {"combine": "all"})).figures
    assert one.forecast and both.forecast and every.forecast
    assert every.forecast.conversions < one.forecast.conversions < both.forecast.conversions * 1.05


def test_only_users_who_are_new(shop: Model, label: str, quick: Path) -> None:
    request = wanted({"interests": [label], "within": {"days": 28}, "new_to": "category"})
    bought = shop.windows.bought(products.products_of_interest(shop, shop.interest(label)))
    left = int((~bought).sum())
    if left >= 120:
        figures = build.choose(shop, request).figures
        assert figures.waterfall[-1].rule == "new to the category" and figures.eligible == left
        assert figures.diagnosis and figures.diagnosis.bought_before == 0 and figures.diagnosis.new_to_category == 1
    else:
        with pytest.raises(MeritError, match="Fewer than"):
            build.choose(shop, request)


def test_the_category_is_the_finest_label_of_each_product() -> None:
    labels = Ragged.of([[0, 1], [0, 1], [0, 2], [0], []])
    assert products.category_of(labels, np.array([True, False, False, False, False])).tolist() == [
        *(True, True, False, False, False)
    ]
    assert products.category_of(labels, np.array([False, False, False, False, True])).tolist() == 4 * [False] + [True]


def test_rules_find_products(shop: Model) -> None:
    items = shop.items
    title, vertical = items["title"][3], items["vertical"][3]
    mask, resolved = products.resolve(shop, wanted({"products": {"title": title}, "within": {"days": 7}}).products[0])
    assert mask[3] and resolved.products == mask.sum()
    both = {"products": {"title": title, "vertical": [vertical.upper()]}, "within": {"days": 7}}
    assert products.resolve(shop, wanted(both).products[0])[0].sum() <= mask.sum()
    tag = items["tags"][3][0]
    tagged, _ = products.resolve(shop, wanted({"products": {"tag": [tag]}, "within": {"days": 7}}).products[0])
    assert tagged.tolist() == [tag in tags for tags in items["tags"].to_list()]


REFUSED = {
    "no days": ({"within": {"days": 0}}, "greater than or equal to 1"),
    "ten thousand days": ({"within": {"days": 10_000}}, "less than or equal to 365"),
    "before the data ends": ({"within": {"days": 7, "from": "2001-01-01"}}, "data ends"),
    "years later": ({"within": {"days": 7, "from": "2099-01-01"}}, "days after the model's data ends"),
    "another form of date": ({"within": {"days": 7, "from": "01.03.2027"}}, "write it as 2027-03-01"),
    "an empty list": ({"within": {"days": 7}, "products": "empty.csv"}, "lists no product"),
    "unknown ids": ({"within": {"days": 7}, "products": "unknown.csv"}, "none of its 2 products"),
    "no such column": ({"within": {"days": 7}, "products": "column.csv"}, "no column 'item_id'"),
    "no such vertical": ({"within": {"days": 7}, "products": {"vertical": ["moon"]}}, "has the vertical 'moon'"),
    "an empty rule": ({"within": {"days": 7}, "products": [{"title": " "}]}, "names a vertical"),
    "nothing in the titles": ({"within": {"days": 7}, "products": {"title": "xyzzy"}}, "meets the rule"),
    "sensitive words": ({"within": {"days": 7}, "products": {"title": "pregnancy test"}}, "blocked"),
    "products without a window": ({"products": "empty.csv"}, "within = "),
    "new without a window": ({"new_to": "category"}, "within = "),
    "a phrase that no product has": ({"within": {"days": 7}, "interests": ["zzyzx quux"]}, "nobody can buy it"),
    "uplift of a value": (
        {"within": {"days": 7}, "uplift": {"table": "t.csv", "start": "2027-01-01"}, "size": {"by": "value"}},
        "size by count",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_windows_and_lists_are_told(
    shop: Model, label: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty.csv").write_text("item_id\n")
    Path("unknown.csv").write_text("item_id\nx1\nx2\n")
    Path("column.csv").write_text("sku\nx1\n")
    values, words = REFUSED[name]
    with pytest.raises(MeritError, match=words):
        build.choose(shop, wanted({"interests": [label]} | values))


def test_half_unknown_lists_are_noted(shop: Model, tmp_path: Path) -> None:
    ids = [*shop.items["item_id"].head(30), *(f"gone-{number}" for number in range(30))]
    pl.DataFrame({"sku": ids}).write_csv(tmp_path / "half.csv")
    request = wanted({"products": {"table": str(tmp_path / "half.csv"), "item": "sku"}, "within": {"days": 28}})
    notes = build.preview(shop, request).notes
    assert any("30 of 60 products are unknown" in note and "gone-0" in note for note in notes)
