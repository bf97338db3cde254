"""The map of clusters agrees with the label space and hides blocked labels; its layout keeps neighbours together."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

import merit
from merit.service.routes import labels


@pytest.fixture(scope="module")
def changed(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The model with a later label space: one label retired, one blocked."""
    place = tmp_path_factory.mktemp("labels")
    return merit.load(made, labels=_without(made / "model/labels", place), verify=False)


def _without(space: Path, place: Path) -> Path:
    from typer.testing import CliRunner

    from merit.cli import app

    cache = ["--cache", str(place / "cache"), "--reason", "a test"]
    for action, text, source, out in (
        ("retire", "raised beds", space, place / "2"),
        ("block", "midi keyboards", place / "2", place / "3"),
    ):
        done = CliRunner().invoke(app, ["labels", action, str(source), text, "--out", str(out), *cache])
        assert done.exit_code == 0, done.output
    return place / "3"


def test_clusters_have_their_labels_their_vertical_and_a_name(ask: Any, model: Any) -> None:
    told = ask("read").get("/v1/label-map").json()
    rows = model.labels.table.filter(pl.col("status") == "live").to_dicts()
    clusters = {row["cluster"] for row in rows}
    assert told["clusters"] == len(clusters) == len(told["items"]) and told["labels"] == len(rows)
    assert [item["labels"] for item in told["items"]] == sorted((i["labels"] for i in told["items"]), reverse=True)
    for item in told["items"]:
        own = [row for row in rows if row["cluster"] == item["cluster"]]
        assert item["labels"] == len(own)
        verticals = Counter(row["vertical"] for row in own)
        assert verticals[item["vertical"]] == max(verticals.values())
        of_it = [row for row in own if row["vertical"] == item["vertical"]]
        assert item["name"] == max(of_it, key=lambda row: (row["count"], -row["id"]))["text"]
        assert -1 <= item["x"] <= 1 and -1 <= item["y"] <= 1


def test_the_labels_of_a_cluster_are_those_of_the_space(ask: Any, model: Any) -> None:
    for cluster in model.labels.table["cluster"].unique():
        told = ask("read").get("/v1/labels", params={"cluster": cluster, "limit": 200}).json()
        own = model.labels.table.filter(pl.col("cluster") == cluster)
        assert sorted(row["text"] for row in told["items"]) == sorted(own["text"]) and told["total"] == len(own)
    assert ask("read").get("/v1/labels", params={"cluster": 10**6}).json()["total"] == 0


def test_a_cursor_keeps_to_its_cluster(ask: Any, model: Any) -> None:
    cluster = int(model.labels.table["cluster"].mode()[0])
    page = ask("read").get("/v1/labels", params={"cluster": cluster, "limit": 2}).json()
    again = {"limit": 2, "cursor": page["next"]}
    assert ask("read").get("/v1/labels", params=again).status_code == 422
    following = ask("read").get("/v1/labels", params=again | {"cluster": cluster}).json()["items"]
    assert {row["cluster"] for row in following} == {cluster}


def test_a_map_is_drawn_once_for_a_model(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    first = ask("read").get("/v1/label-map").json()
    monkeypatch.setattr(labels, "make_map", lambda *_: pytest.fail("made again"))
    assert ask("read").get("/v1/label-map").json() == first


def test_retired_and_blocked_labels_are_not_on_it(changed: Any, model: Any) -> None:
    before, after = labels.make_map(model, "1"), labels.make_map(changed, "3")
    assert after.labels == before.labels - 2
    assert not {"raised beds", "midi keyboards"} & {item.name for item in after.items}


def test_only_the_largest_clusters_are_shown(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labels, "MOST_CLUSTERS", 3)
    told = labels.make_map(model, "1")
    sizes = sorted(Counter(model.labels.table["cluster"]).values(), reverse=True)
    assert [item.labels for item in told.items] == sizes[:3] and told.clusters == len(sizes)


# --- layout ----------------------------------------------------------------------------------------------------------


def groups(number: int, each: int, seed: int = 0) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Points around a few centres in many dimensions, and the group of each."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(number), each)
    points = rng.normal(size=(number, 64))[group] + 0.7 * rng.normal(size=(len(group), 64))
    return (points / np.linalg.norm(points, axis=1, keepdims=True)).astype(np.float32), group


def same_group(points: NDArray[Any], group: NDArray[np.int64], nearest: int = 5) -> float:
    """The share of the nearest points that are of the same group."""
    distances = ((points[:, None] - points[None]) ** 2).sum(axis=2)
    np.fill_diagonal(distances, np.inf)
    return float((group[np.argsort(distances, axis=1)[:, :nearest]] == group[:, None]).mean())


def test_neighbours_stay_together_where_two_axes_would_mix_them() -> None:
    points, group = groups(12, 15)
    left, size, _ = np.linalg.svd(points - points.mean(axis=0), full_matrices=False)
    assert same_group(left[:, :2] * size[:2], group) < 0.7
    assert same_group(labels.layout(points), group) > 0.95


def test_a_map_is_always_the_same_and_fits_its_frame() -> None:
    points, _ = groups(5, 10)
    first, second = labels.layout(points), labels.layout(points)
    assert np.array_equal(first, second) and np.abs(first).max() == pytest.approx(1)


@pytest.mark.parametrize("number", [1, 2, 3, 15, 16, 17])
def test_few_points_and_equal_points_have_a_place_too(number: int) -> None:
    rng = np.random.default_rng(2)
    for points in (rng.normal(size=(number, 8)), np.ones((number, 8))):
        made = labels.layout(points.astype(np.float32))
        assert made.shape == (number, 2) and np.isfinite(made).all() and np.abs(made).max() <= 1 + 1e-9
