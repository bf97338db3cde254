"""The stage, from a table to a model that was trained on the tags it made; and the way through a person's hands."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from merit.core import config, tagging
from merit.core.errors import ConfigError, DataError
from merit.core.presets import run
from merit.core.quick import QUICK_STAGES, TAGS, with_tags
from merit.core.shared import SharedRun
from merit.core.stage import make_all
from merit.data.prepare import ITEM_TAGS
from merit.labels.tagging.review import read_review, write_review
from tests.conftest import Command
from tests.labels.tagging.shop import items, settings


def bare(share: int = 3) -> pl.DataFrame:
    """The catalogue with the tags of every third item taken away, or of all."""
    empty = pl.int_range(pl.len()) % share == 0
    return items().with_columns(tags=pl.when(empty).then(pl.lit([], pl.List(pl.String))).otherwise("tags"))


def made(run_settings: SharedRun) -> tuple[pl.DataFrame, dict[str, int]]:
    artifact = make_all({"tags": TAGS}, run_settings)["tags"]
    return pl.read_parquet(artifact.file(ITEM_TAGS)), artifact.manifest.summary


def test_a_table_that_has_all_tags_runs_as_before(tmp_path: Path) -> None:
    assert with_tags(QUICK_STAGES, settings(tmp_path, items())) is QUICK_STAGES
    dumped = settings(tmp_path, items()).examples.model_dump(mode="json")
    assert not {"text_columns", "brand_column", "tags"} & dumped["source"].keys()


def test_a_table_without_tags_is_mined_and_trained_on(tmp_path: Path) -> None:
    done = run(settings(tmp_path, items().drop("tags"), mine={"most": 1.0}))
    summary = done["tags"].manifest.summary
    assert summary["items_with_tags_before"] == 0 and summary["items_with_tags"] == summary["mined_items"] == len(
        items()
    )
    named = set(pl.read_parquet(done["examples"].file("items.parquet"))["tags"].explode())
    assert {"yoga mat", "tea kettle"} <= {
        label.lower() for label in pl.read_parquet(done["labels"].file("labels.parquet"))["text"]
    }
    assert "yoga mat" in named and done["examples"].manifest.summary["train"] > 0
    page = done["data-report"].file("index.html").read_text(encoding="utf-8")
    assert "Tags from titles" in page and "mined" in page
    assert "model" in done


def test_untagged_items_are_completed_and_given_tags_stay(tmp_path: Path) -> None:
    tags, summary = made(settings(tmp_path, bare(), sources=["complete"]))
    assert (
        summary["items_with_tags"] == len(items())
        and summary["completed_items"] == summary["items"] - summary["given_items"]
    )
    given = tags.filter(pl.col("reason") == "given").group_by("item_id").agg(pl.col("tag").sort())
    truth = items().select("item_id", pl.col("tags").list.sort())
    assert given.join(truth, on="item_id").select((pl.col("tag") == pl.col("tags")).all()).item()
    completed = tags.filter(pl.col("reason") == "completed").join(truth, on="item_id")
    assert completed.select(pl.col("tags").list.contains(pl.col("tag")).mean()).item() > 0.9


def test_sources_are_united_and_the_first_gives_the_reason(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("Yoga Mat\nyoga mats\n\nSofa\n", encoding="utf-8")
    chosen = {"sources": ["vocabulary", "mine"], "vocabulary": {"file": str(tmp_path / "words.txt"), "meaning": False}}
    tags, _ = made(settings(tmp_path, items().drop("tags"), mine={"most": 1.0}, **chosen))
    mats = tags.filter(pl.col("tag").str.to_lowercase() == "yoga mat")
    assert mats["reason"].unique().to_list() == ["vocabulary"] and mats["item_id"].is_unique().all()
    assert "mined" in tags["reason"].cast(pl.String).unique().to_list()


def test_sensitive_tags_are_kept_back(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("Pregnancy test\nYoga mat\n", encoding="utf-8")
    table = items().drop("tags").with_columns(title=pl.concat_str("title", pl.lit(", pregnancy test")))
    tags, summary = made(
        settings(tmp_path, table, sources=["vocabulary"], vocabulary={"file": str(tmp_path / "words.txt")})
    )
    assert summary["blocked"] == 1 and "Pregnancy test" not in tags["tag"].to_list()


def test_the_same_tables_give_the_same_bytes(tmp_path: Path) -> None:
    one, two = (settings(tmp_path, bare(), sources=["complete", "mine"]) for _ in range(2))
    two = two.model_copy(update={"out": tmp_path / "again"})
    hashes = {make_all({"tags": TAGS}, chosen)["tags"].manifest.hash for chosen in (one, two)}
    assert len(hashes) == 1


def test_an_empty_catalogue_of_titles_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"None of 288 items"):
        made(settings(tmp_path, items().drop("tags").with_columns(title=pl.lit("")), sources=["mine"]))
    with pytest.raises(DataError, match=r"tags\.sources"):
        run(settings(tmp_path, items().with_columns(tags=pl.lit([], pl.List(pl.String)))), until="examples")


def test_sources_that_lack_what_they_need_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MERIT_TAGS_URL", raising=False)
    for source, setting in (("vocabulary", r"tags\.vocabulary\.file"), ("model", r"tags\.provider\.url")):
        with pytest.raises(ConfigError, match=setting):
            made(settings(tmp_path, items(), sources=[source]))


def test_further_columns_are_read(tmp_path: Path) -> None:
    table = items().drop("tags").with_columns(title=pl.lit("thing"), about=pl.col("title"))
    plain = settings(tmp_path, table, sources=["mine"], mine={"most": 1.0})
    source = plain.source.model_copy(update={"text_columns": ("about",)})
    tags, _ = made(plain.model_copy(update={"source": source}))
    assert "yoga mat" in tags["tag"].to_list()


def test_a_review_round_trip(tmp_path: Path, command: Command) -> None:
    chosen = settings(tmp_path, bare(), sources=["complete"])
    first, _ = made(chosen)
    file = tmp_path / "tags.csv"
    artifact = make_all({"tags": TAGS}, chosen)["tags"]
    assert tagging.write_for_review(artifact, file) == len(first)
    again, _ = made(reviewed(chosen, file))
    assert (
        again.sort("item_id", "tag")
        .select("item_id", "tag")
        .equals(first.sort("item_id", "tag").select("item_id", "tag"))
    )
    text = file.read_text(encoding="utf-8").splitlines()
    header, row = text[0], next(line for line in text[1:] if '"i0003"' in line)
    edited = [header, row.rsplit(",", 1)[0] + ",no", '"i0006","","picnic",,,""', '"i0006","","\'=cmd",,,""']
    file.write_text("\n".join(edited), encoding="utf-8")
    after, _ = made(reviewed(chosen, file))
    assert after.filter(pl.col("item_id") == "i0003").is_empty()
    assert "picnic" in after.filter(pl.col("item_id") == "i0006")["tag"].to_list()
    assert after.filter(pl.col("item_id") == "i0009").equals(first.filter(pl.col("item_id") == "i0009"))


def reviewed(run_settings: SharedRun, file: Path) -> SharedRun:
    return run_settings.model_copy(update={"tags": run_settings.tags.model_copy(update={"reviewed": file})})


def test_formulas_are_marked_and_come_back(tmp_path: Path) -> None:
    tags = pl.DataFrame({"item_id": ["a"], "tag": ["=1+1"], "score": [1.0], "reason": ["given"]})
    write_review(tags, pl.DataFrame({"item_id": ["a"], "title": ["-x"]}), tmp_path / "r.csv")
    assert '"\'=1+1"' in (tmp_path / "r.csv").read_text() and read_review(tmp_path / "r.csv")["tag"].to_list() == [
        "=1+1"
    ]


def test_a_review_without_its_columns_is_refused(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("id,label\n1,x\n")
    with pytest.raises(DataError, match="item_id"):
        read_review(tmp_path / "r.csv")


def test_the_command(tmp_path: Path, command: Command) -> None:
    items().drop("tags").write_csv(tmp_path / "catalogue.csv")
    words = (
        "tag",
        "--items",
        "catalogue.csv",
        "--out",
        "run",
        "--review",
        "tags.csv",
        "--set",
        "labels.encoder=hashed",
    )
    code, out, err = command(*words, "--set", "tags.mine.most=1.0")
    assert code == 0 and "items_with_tags" in out and "tags.reviewed=tags.csv" in err.replace(" ", "")
    assert "mined" in (tmp_path / "tags.csv").read_text()
    assert command("tag")[0] == 2


def test_settings_are_those_of_any_run() -> None:
    source = {"kind": "tables", "interactions": "a", "items": "b"}
    assert config.build(SharedRun, {"source": source, "tags": {"sources": ["mine"]}}).tagging.tags.sources == ("mine",)
