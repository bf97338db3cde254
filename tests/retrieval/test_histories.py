"""New histories on demand: those of stored users are answered as stored, all others by what is known of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import merit
from merit.core import artifacts
from merit.core.errors import DataError
from merit.data.prepare import shards
from merit.labels.build import change_labels
from merit.privacy import hidden
from merit.retrieval.histories import parse


@pytest.fixture(scope="module")
def model(quick: Path) -> Any:
    return merit.load(quick)


@pytest.fixture(scope="module")
def events(quick: Path) -> pl.DataFrame:
    return pl.read_parquet(quick / "tables/interactions.parquet").select("user_id", "item_id", "timestamp")


@pytest.fixture(scope="module")
def items(quick: Path) -> pl.DataFrame:
    return pl.read_parquet(quick / "model/items.parquet")


def test_a_stored_user_is_answered_as_stored(model: Any, events: pl.DataFrame) -> None:
    users = model.users["user_id"]
    shuffled = events.filter(pl.col("user_id").is_in(users.implode())).sample(fraction=1, shuffle=True, seed=1)
    new = model.with_histories(shuffled, users=users)
    stored, again = model.interests(users, 20), new.interests(users, 20)
    assert again["interest"].equals(stored["interest"])
    np.testing.assert_allclose(again["probability"], stored["probability"], atol=1e-6, rtol=0)
    assert new.users.select("user_id", "history", "counts").equals(model.users.select("user_id", "history", "counts"))
    texts = stored["interest"][:3].to_list()
    np.testing.assert_allclose(new.score(users, texts)["probability"], model.score(users, texts)["probability"])
    assert new.audience(texts[0], 110).equals(model.audience(texts[0], 110))
    assert set(new.rests_on["rests_on"]) == {"history"}


def test_over_a_later_version_of_the_label_space_too(quick: Path, events: pl.DataFrame, tmp_path: Path) -> None:
    """A label that was added later counts by the products that name it, stored or sent."""
    own = artifacts.load(quick / "model/labels")
    change_labels(own, tmp_path / "labels", "add", ["starter set"], reason="a test", cache=tmp_path / "cache")
    model = merit.load(quick, labels=tmp_path / "labels")
    users = model.users["user_id"][:40]
    new = model.with_histories(events.filter(pl.col("user_id").is_in(users.implode())), users=users)
    texts = ["starter set", model.labels.texts[0]]
    assert new.score(users, texts).equals(model.score(users, texts))
    assert new.interests(users, 10).equals(model.interests(users, 10))


def test_one_user_alone_is_answered_as_among_others(model: Any, events: pl.DataFrame) -> None:
    user = model.users["user_id"][7]
    alone = model.with_histories(events.filter(pl.col("user_id") == user))
    assert alone.interests(user, 10).equals(model.interests(user, 10))
    assert alone.explain(user, alone.interests(user, 1)["interest"][0], 3).height > 0
    assert len(model.with_histories(events.filter(pl.col("user_id") == user)).users) == 1


def test_the_answer_says_what_it_rests_on(model: Any, items: pl.DataFrame) -> None:
    known = items.filter(pl.col("tags").list.len() > 0)
    title, tags = known.select("title", "tags").row(0)
    told = pl.DataFrame(
        {
            "user_id": ["one", "title", "nothing", "nonsense"],
            "item_id": [known["item_id"][0], "unknown", None, "also unknown"],
            "title": [None, title, None, "qqqq zzzz"],
        }
    )
    new = model.with_histories(told, users=["one", "title", "nothing", "nonsense", "silent"])
    rests = dict(new.rests_on.select("user_id", "rests_on").iter_rows())
    assert rests == {
        "one": "history",
        "title": "titles",
        "nothing": "popularity",
        "nonsense": "popularity",
        "silent": "popularity",
    }
    lists = {name: new.interests(name, 10).drop("user_id") for name in rests}
    assert lists["nothing"].equals(lists["silent"]) and lists["nonsense"].equals(lists["silent"])
    assert lists["title"].equals(lists["one"])  # the title is that of the item
    assert not lists["one"].equals(lists["silent"])
    assert tags and new.rests_on.filter(pl.col("user_id") == "title").row(0)[2:] == (1, 0, 1)


def test_a_label_in_a_title_is_read(model: Any) -> None:
    text = next(text for text in model.interests(model.users["user_id"][0], 10)["interest"] if " " in text)
    told = pl.DataFrame({"user": ["a"], "title": [f"The best {text.upper()} of all, 500 g"]})
    new = model.with_histories(told)
    labels = model.labels.table["text"].gather(new.users["history"][0].to_list()).to_list()
    assert text in labels


def test_what_is_too_old_is_left_out_and_what_is_newer_moves_the_window(model: Any, items: pl.DataFrame) -> None:
    end = datetime.fromtimestamp(model.artifact.manifest.summary["last"] / 1000, UTC)
    first, second = items.filter(pl.col("tags").list.len() > 0)["item_id"][:2]
    old = pl.DataFrame({"user_id": ["a", "a"], "item_id": [first, second], "timestamp": [end - timedelta(400), end]})
    assert model.with_histories(old).rests_on["known"].to_list() == [1]
    newer = old.with_columns(timestamp=pl.Series([end - timedelta(300), end + timedelta(200)]))
    assert model.with_histories(newer).rests_on["known"].to_list() == [1]
    without = model.with_histories(old.drop("timestamp"))
    assert without.rests_on["known"].to_list() == [2]
    later = old.with_columns(timestamp=pl.Series([None, end + timedelta(500)]))  # one without a time is never too old
    assert model.with_histories(later).rests_on["known"].to_list() == [2]


def test_events_that_come_twice_count_twice_as_they_do_in_training(model: Any, items: pl.DataFrame) -> None:
    item = items.filter(pl.col("tags").list.len() > 0)["item_id"][0]
    new = model.with_histories(pl.DataFrame({"user_id": ["a", "a", "b"], "item_id": [item] * 3}))
    assert set(new.users["counts"][0]) == {2} and set(new.users["counts"][1]) == {1}


def test_pandas_in_pandas_out(model: Any, events: pl.DataFrame) -> None:
    new = model.with_histories(events.head(4).to_pandas())
    assert isinstance(new.rests_on, pd.DataFrame)
    assert isinstance(new.interests(new.rests_on["user_id"], 2), pd.DataFrame)
    assert isinstance(model.interests(model.users["user_id"][0], 2), pl.DataFrame)  # the model itself is as it was


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"who": ["a"], "item_id": ["1"]}, "no column for user_id"),
        ({"user_id": ["a"], "thing": ["1"]}, "no column for item_id, nor for title"),
        ({"user_id": ["a", None], "item_id": ["1", "2"]}, "Row 2 of the events has no user"),
        (
            {"user_id": ["a", "b"], "item_id": ["1", "2"], "time": ["2020-01-01", "soon"]},
            "Row 2 .*'soon' is not a time",
        ),
        ({"user_id": ["a"], "item_id": ["1"], "time": ["2190-01-01"]}, "lies in the future"),
        ({"user_id": ["a"], "item_id": ["1"], "time": [[1]]}, "times are needed"),
        ({"user_id": [], "item_id": []}, "no events"),
    ],
)
def test_bad_input_is_told(model: Any, table: dict[str, list[Any]], words: str) -> None:
    with pytest.raises(DataError, match=words):
        model.with_histories(pl.DataFrame(table))


def test_a_user_of_events_who_is_not_asked_about_is_a_mistake(model: Any) -> None:
    with pytest.raises(DataError, match="'b', who is not among"):
        model.with_histories(pl.DataFrame({"user_id": ["a", "b"], "item_id": ["1", "1"]}), users=["a"])


def test_ids_are_read_as_those_of_the_data() -> None:
    parsed = parse(pl.DataFrame({"Customer ID": [7.0, 8.0], "StockCode": [1, 2], "InvoiceDate": [1514779280, None]}))
    assert parsed["user_id"].to_list() == ["7", "8"] and parsed["item_id"].to_list() == ["1", "2"]
    assert parsed["timestamp"].to_list() == [1514779280000, None]


def test_an_id_in_erasure_hides_no_history_that_was_sent(quick: Path, tmp_path: Path, events: pl.DataFrame) -> None:
    """Answers about it rest on what was sent and on nothing that is stored."""
    import shutil

    shutil.copytree(quick / "model", tmp_path / "model")
    model = merit.load(tmp_path / "model")
    user = model.users["user_id"][0]
    theirs = events.filter(pl.col("user_id") == user)
    hidden.hide([tmp_path], "1", [user], tmp_path)
    assert not model.has_user(user)
    assert len(model.with_histories(theirs).interests(user, 3)) == 3


def test_the_standard_preset_reads_them_with_its_generator(made: Path) -> None:
    model = merit.load(made)
    corpus = artifacts.load(made / "corpus", verify=False)
    examples = artifacts.load(made / "examples", verify=False)
    titles = pl.read_parquet(corpus.file("items.parquet"))["item_id"]
    tables = [shard.events.join(shard.users.select("user", "user_id"), on="user") for shard in shards(examples)]
    told = pl.concat(tables).select("user_id", "timestamp", item_id=titles.gather(pl.concat(tables)["item"]))
    users = model.users["user_id"][:20]
    new = model.with_histories(told.filter(pl.col("user_id").is_in(users.implode())), users=users)
    stored, again = (each.interests(users, 5) for each in (model, new))
    np.testing.assert_allclose(again["probability"], stored["probability"], atol=1e-3)
    assert (again["interest"] == stored["interest"]).mean() > 0.9
    cold = model.with_histories(told.head(0), users=["nobody"])
    assert cold.rests_on["rests_on"].to_list() == ["popularity"] and len(cold.interests("nobody", 5)) == 5


def test_without_its_generator_the_standard_preset_says_so(made: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(made / "model", tmp_path / "model")
    shutil.rmtree(tmp_path / "model/generator")
    artifact = artifacts.load(made / "model", verify=False)
    from merit.core.artifacts import Artifact
    from merit.core.errors import MissingArtifact
    from merit.retrieval.encode import open_encoder

    labels = artifacts.load(tmp_path / "model/labels", verify=False)
    with pytest.raises(MissingArtifact, match="has no generator"):
        open_encoder(Artifact(tmp_path / "model", artifact.manifest), labels)


def test_a_history_of_150_000_events_is_answered(model: Any, items: pl.DataFrame) -> None:
    """Some are unknown, and all come many times."""
    known = items.filter(pl.col("tags").list.len() > 0)["item_id"]
    ids = [*known.to_list(), "unknown-item-with-a-long-id-" + "x" * 40]
    events = pl.DataFrame({"user_id": ["a"] * 150_000, "item_id": [ids[row % len(ids)] for row in range(150_000)]})
    events = events.with_columns(timestamp=pl.lit("2024-05-06T07:08:09.123456+00:00"), title=pl.lit(None, pl.String))
    assert len(events.write_csv()) > 6e6
    new = model.with_histories(events)
    assert new.rests_on["events"].to_list() == [150_000] and len(new.interests("a", 10)) == 10
