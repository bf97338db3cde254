"""The labels stage: from items to a space with vectors and clusters, and to its next versions."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from merit.core import artifacts, config
from merit.core.artifacts import Artifact
from merit.core.errors import ConfigError, DataError
from merit.labels import encoders, policy, space
from merit.labels.build import LabelsConfig, build_labels, change_labels, label_tags, load_vectors

TAGS = [
    *(["Trail running", "shoes"], ["trail  running", "TRAIL RUNNING"], ["road running", "Shoes"], ["shoes"]),
    *(["red wine"], ["wine glasses", "glasses"], ["tents", "camping"], ["camping tents"], None, ["!!"], ["kettles"]),
]
HASHED = LabelsConfig(encoder="hashed", clusters=3)


@pytest.fixture
def examples(tmp_path: Path) -> Artifact:
    items = pl.DataFrame(
        {
            "item": range(len(TAGS)),
            "item_id": [f"i{at}" for at in range(len(TAGS))],
            "title": "thing",
            "tags": TAGS,
            "vertical": ["Sports"] * 4 + ["Food"] * 2 + ["Camping"] * 5,
        },
        schema={
            "item": pl.UInt32,
            "item_id": pl.String,
            "title": pl.String,
            "tags": pl.List(pl.String),
            "vertical": pl.String,
        },
    )
    counts = items.select("item", count=pl.col("item").cast(pl.UInt64) + 1).head(10)  # kettles were never met
    with artifacts.writing(tmp_path / "examples", "examples") as draft:
        items.write_parquet(draft.path / "items.parquet")
        counts.write_parquet(draft.path / "item_counts.parquet")
    return artifacts.load(tmp_path / "examples")


@pytest.fixture
def labels(examples: Artifact, tmp_path: Path) -> Artifact:
    return build_labels(examples, tmp_path / "labels", HASHED, 7, tmp_path / "cache")


def table(labels: Artifact, name: str) -> pl.DataFrame:
    return pl.read_parquet(labels.file(name))


def log(labels: Artifact) -> list[dict[str, object]]:
    return list(json.loads(labels.file("changes.json").read_text())["changes"])


def test_counts_are_training_interactions_per_item(labels: Artifact) -> None:
    counts = dict(table(labels, "labels.parquet").select("text", "count").iter_rows())
    assert counts["shoes"] == 1 + 3 + 4
    assert {counts[name] for name in counts if name.casefold() == "trail running"} == {1 + 2}  # two spellings, one item
    assert counts["kettles"] == 0


def test_two_spellings_in_one_item_are_both_reported(labels: Artifact) -> None:
    merged = dict(table(labels, "merged.parquet").select("text", "reason").iter_rows())
    assert merged["TRAIL RUNNING"] == "equal after normalisation"
    assert merged["!!"] == "nothing left after normalisation"


def test_the_policy_keeps_wine_and_lets_glasses_pass(labels: Artifact) -> None:
    assert table(labels, "blocked.parquet").select("text", "category").rows() == [("red wine", "alcohol")]
    found = space.load(labels.path)
    assert found.live_mask().sum() == len(found) - 1
    assert labels.manifest.summary["blocked_by_category"] == {"alcohol": 1}
    assert log(labels)[-1]["action"] == "block"
    offsets, _ = space.item_labels(found, pl.read_parquet(labels.path.parent / "examples" / "items.parquet"))
    assert np.flatnonzero(np.diff(offsets) == 0).tolist() == [4, 8, 9]
    assert labels.manifest.summary["items_without_labels"] == 3


def test_labels_near_the_policy_are_listed_for_a_person(labels: Artifact) -> None:
    review, live = table(labels, "review.parquet"), space.load(labels.path)
    assert set(review["text"]) <= set(live.table.filter(pl.col("status") == "live")["text"])
    assert review.height == labels.manifest.summary["to_review"]
    law = policy.load(labels.file("policy.toml"))
    encoder = encoders.make("hashed")
    near = policy.borderline(live.texts, encoder.encode(live.texts), policy.anchor(law, encoder))
    wanted = [text for text, why in zip(live.texts, near, strict=True) if why]
    assert review["text"].to_list() == [text for text in wanted if text != "red wine"]


def test_clusters_hold_live_labels_only(labels: Artifact) -> None:
    rows, groups = table(labels, "labels.parquet"), table(labels, "clusters.parquet")
    assert rows.filter(pl.col("cluster") < 0)["text"].to_list() == ["red wine"]
    sizes = dict(rows.filter(pl.col("cluster") >= 0).group_by("cluster").len().iter_rows())
    assert dict(groups.select("cluster", "size").iter_rows()) == sizes
    for cluster, medoid, name in groups.select("cluster", "medoid", "name").iter_rows():
        assert rows.row(medoid, named=True)["cluster"] == cluster
        assert rows.row(medoid, named=True)["text"] == name


def test_vectors_are_rows_by_id_and_unit_long(labels: Artifact) -> None:
    vectors = load_vectors(labels)
    assert vectors.dtype == np.float32 and len(vectors) == len(space.load(labels.path))
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


def test_the_same_run_gives_the_same_hash(labels: Artifact, examples: Artifact, tmp_path: Path) -> None:
    again = build_labels(examples, tmp_path / "again", HASHED, 7, tmp_path / "other-cache")
    assert again.manifest.hash == labels.manifest.hash


def test_adding_moves_nothing_else(labels: Artifact, tmp_path: Path) -> None:
    names = ["fell running", "sparkling wine", "Tents"]
    newer = change_labels(
        labels,
        tmp_path / "v2",
        "add",
        names,
        verticals=["Sports", "Food", "x"],
        reason="new shelf",
        cache=tmp_path / "cache",
    )
    old, new = space.load(labels.path), space.load(newer.path)
    assert new.table[: len(old)].equals(old.table)
    assert load_vectors(newer)[: len(old)].tobytes() == load_vectors(labels).tobytes()
    assert new.table[len(old) :].select("text", "vertical").rows() == [
        ("fell running", "Sports"),
        ("sparkling wine", "Food"),
    ]
    assert new.table["status"][-1] == "blocked" and new.table["cluster"][-1] == -1
    running = new.table.row(int(new.find(["trail running"])[0]), named=True)["cluster"]
    assert new.table["cluster"][len(old)] == running
    assert newer.manifest.parents["labels"].hash == labels.manifest.hash
    assert table(newer, "merged.parquet").row(-1) == ("Tents", "tents", "already in the space")
    assert newer.manifest.summary["encoded"] >= 2
    before, after = table(labels, "clusters.parquet"), table(newer, "clusters.parquet")
    assert before.drop("size").equals(after.drop("size")) and after["size"].sum() == before["size"].sum() + 1


def test_only_new_texts_are_encoded(labels: Artifact, tmp_path: Path) -> None:
    newer = change_labels(labels, tmp_path / "v2", "add", ["hats"], reason="new", cache=tmp_path / "cache")
    assert newer.manifest.summary["encoded"] == 1  # the policy's phrases were in the cache already
    gone = change_labels(newer, tmp_path / "v3", "retire", ["hats"], reason="old", cache=tmp_path / "cache")
    assert gone.manifest.summary["encoded"] == 0
    assert space.load(gone.path).live_mask().sum() == space.load(labels.path).live_mask().sum()


def test_renaming_encodes_and_judges_again(labels: Artifact, tmp_path: Path) -> None:
    at = int(space.load(labels.path).find(["kettles"])[0])
    newer = change_labels(
        labels, tmp_path / "v2", "rename", ["kettles"], to="teapots", reason="as said", cache=tmp_path / "c"
    )
    same = np.arange(len(load_vectors(labels))) != at
    assert np.array_equal(load_vectors(newer)[same], load_vectors(labels)[same])
    assert not np.array_equal(load_vectors(newer)[at], load_vectors(labels)[at])
    assert space.load(newer.path).find(["kettles", "teapots"]).tolist() == [at, at]
    shut = change_labels(
        newer, tmp_path / "v3", "rename", ["teapots"], to="whisky", reason="as said", cache=tmp_path / "c"
    )
    assert table(shut, "labels.parquet").row(at, named=True)["status"] == "blocked"


def test_a_renamed_medoid_leaves_the_name_of_its_cluster(labels: Artifact, tmp_path: Path) -> None:
    before = table(labels, "clusters.parquet")
    newer = change_labels(
        labels, tmp_path / "v2", "rename", [before["name"][0]], to="lamps", reason="as said", cache=tmp_path / "cache"
    )
    assert table(newer, "clusters.parquet").equals(before)  # the paths of the other members begin with it


def test_a_blocked_medoid_gives_up_the_name(labels: Artifact, tmp_path: Path) -> None:
    groups = table(labels, "clusters.parquet").sort("size")
    name, other = groups["name"][-1], groups["name"][0]
    assert groups["size"][-1] > 1
    shut = change_labels(labels, tmp_path / "v2", "block", [name], reason="by request", cache=tmp_path / "cache")
    after = table(shut, "clusters.parquet")
    assert name not in after["name"].to_list() and other in after["name"].to_list()
    assert table(shut, "blocked.parquet").filter(pl.col("text") == name)["category"].to_list() == ["by hand"]


def test_a_change_never_overwrites_its_parent(labels: Artifact, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="Choose another folder"):
        change_labels(labels, labels.path, "retire", ["kettles"], reason="x", cache=tmp_path)
    with pytest.raises(DataError, match=r"no label 'ketles'.*'kettles'"):
        change_labels(labels, tmp_path / "v2", "retire", ["ketles"], reason="x", cache=tmp_path)
    with pytest.raises(DataError, match="takes one label"):
        change_labels(labels, tmp_path / "v2", "rename", ["kettles"], reason="x", cache=tmp_path)
    assert not (tmp_path / "v2").exists()


def test_no_policy_needs_a_reason_and_logs_it(examples: Artifact, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="policy_reason"):
        config.build(LabelsConfig, {"policy": "none"})
    free = LabelsConfig(encoder="hashed", policy="none", policy_reason="a wine merchant, adults only")
    made = build_labels(examples, tmp_path / "free", free, 7, tmp_path / "cache")
    assert table(made, "blocked.parquet").is_empty()
    assert log(made)[-1]["reason"] == "a wine merchant, adults only"
    assert made.manifest.summary["clusters"] == 1  # one for every ten labels


def test_an_override_is_logged(examples: Artifact, tmp_path: Path) -> None:
    rules = tmp_path / "policy.toml"
    category = "[category.x]\ndescription = 'x'\nthreshold = 0.99\nterms = ['wine', 'tents']\nphrases = ['a']\n"
    excuse = "[[override]]\nlabel = '{}'\nreason = 'reviewed by legal in May'\n"
    rules.write_text(category + excuse.format("Red Wine") + excuse.format("no such label"))
    made = build_labels(
        examples, tmp_path / "out", LabelsConfig(encoder="hashed", policy=str(rules)), 7, tmp_path / "cache"
    )
    assert set(table(made, "blocked.parquet")["text"]) == {"wine glasses", "tents", "camping tents"}
    (override,) = [each for each in log(made) if each["action"] == "override"]
    assert override["reason"] == "reviewed by legal in May"
    assert made.file("policy.toml").read_text() == rules.read_text()
    assert made.manifest.inputs["policy"]


@pytest.mark.parametrize("extra", [{"min_count": 99}, {"policy": "all"}])
def test_nothing_left_is_an_error(examples: Artifact, tmp_path: Path, extra: dict[str, object]) -> None:
    if "policy" in extra:
        rules = tmp_path / "all.toml"
        names = [tag for tags in TAGS for tag in tags or []]
        rules.write_text(f"[category.x]\ndescription = 'x'\nthreshold = 0.9\nterms = {json.dumps(names)}\n")
        extra = {"policy": str(rules)}
    with pytest.raises(DataError, match="min_count"):
        build_labels(examples, tmp_path / "out", config.build(LabelsConfig, {"encoder": "hashed"} | extra), 7, tmp_path)
    assert not (tmp_path / "out").exists()


def test_a_missing_policy_file_is_told_by_name(examples: Artifact, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.toml does not exist"):
        build_labels(examples, tmp_path / "out", LabelsConfig(policy="nowhere.toml"), 7, tmp_path)


def test_label_tags_keeps_every_text() -> None:
    items = pl.DataFrame({"item": [0, 1], "tags": [["A", "a", "b"], ["a"]], "vertical": ["V", "W"]})
    rows = label_tags(items, pl.DataFrame({"item": [0], "count": [5]}))
    assert rows.select("text", "count").rows() == [("A", 5), ("a", 0), ("b", 5), ("a", 0)]
