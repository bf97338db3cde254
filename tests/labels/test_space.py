"""Labels are merged when they are the same, reported when they are, and otherwise never move."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from merit.core.errors import DamagedArtifact, DataError
from merit.labels import changes, space
from merit.labels.names import clean, normalise
from merit.labels.space import LabelSpace

TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)


def tags(*rows: tuple[str, int, str]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema={"text": pl.String, "count": pl.UInt64, "vertical": pl.String}, orient="row")


def without_blanks(texts: Sequence[str]) -> list[str]:
    """An encoder that does not see white space or hyphens."""
    return [text.casefold().replace(" ", "").replace("-", "") for text in texts]


@pytest.fixture
def labels() -> LabelSpace:
    built, _ = space.build(tags(("Trail running", 5, "Sports"), ("Tents", 3, "Camping"), ("Kettles", 1, "Kitchen")))
    return built


@given(TEXTS)
@example("ﬀİ")
@example("\u1fbe\u0345ͅ")
@example("a \u200b b")
def test_a_key_is_its_own_key(text: str) -> None:
    assert normalise(normalise(text)) == normalise(text)
    assert normalise(clean(text)) == normalise(text)
    assert clean(clean(text)) == clean(text)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Trail\u00a0 Running", "trail running"),
        ("(Tents)", "tents"),
        ("ＴＥＮＴＳ", "tents"),
        ("Straße", "STRASSE"),
        ("zero\u200bwidth", "zerowidth"),
        ("❤️", "❤"),
        ("#running", "Running"),
    ],
)
def test_same_key(one: str, other: str) -> None:
    assert normalise(one) == normalise(other)


@pytest.mark.parametrize(("one", "other"), [("C#", "C"), ("100%", "100"), ("🍕", "🚀"), ("cafe", "café")])
def test_other_key(one: str, other: str) -> None:
    assert normalise(one) != normalise(other)


@pytest.mark.parametrize("text", ["🍕 pizza", "👨‍👩‍👧", "أحذية الجري", "נעלי ריצה", "می‌خواهم"])
def test_emoji_and_right_to_left_survive(text: str) -> None:
    assert clean(text) == text
    assert normalise(text)


def test_hidden_characters_go() -> None:
    assert clean("guns\u202e\x00\U000e0041 ") == "guns"


def test_the_most_frequent_form_is_shown_and_merges_are_reported() -> None:
    rows = tags(("tents", 2, "A"), ("TENTS", 2, "B"), ("TENTS ", 1, "B"), ("Tents!", 2, "A"), ("...", 9, "A"))
    built, merged = space.build(rows)
    assert built.table.select("id", "text", "key", "count", "vertical").rows() == [(0, "TENTS", "tents", 7, "A")]
    assert merged.rows() == [
        ("...", None, "nothing left after normalisation"),
        ("Tents!", "TENTS", "equal after normalisation"),
        ("tents", "TENTS", "equal after normalisation"),
    ]


def test_labels_the_encoder_cannot_tell_apart_are_one() -> None:
    rows = tags(("trail-running", 2, "A"), ("Trail running", 3, "B"), ("tents", 1, "A"))
    built, merged = space.build(rows, without_blanks)
    assert built.texts == ["Trail running", "tents"]
    assert built.table["count"].to_list() == [5, 1]
    assert built.find(["trail-running", "TRAIL RUNNING"]).tolist() == [0, 0]
    assert merged.rows() == [("trail-running", "Trail running", "equal after tokenisation")]


def test_unknown_signs_are_not_one_label() -> None:
    """What an encoder makes of emoji it does not know: one and the same token."""
    built, merged = space.build(
        tags(("🍕", 1, "A"), ("🚀", 1, "A"), ("Café", 1, "A"), ("cafe", 2, "A")), lambda texts: ["x"] * len(texts)
    )
    assert sorted(built.texts) == ["cafe", "🍕", "🚀"]
    assert merged.height == 1


def test_rare_labels_are_left_out_with_a_word() -> None:
    built, merged = space.build(tags(("tents", 5, "A"), ("kettles", 1, "A")), min_count=2)
    assert built.texts == ["tents"]
    assert merged.rows() == [("kettles", None, "fewer than 2 interactions")]
    assert built.find(["kettles"]).tolist() == [-1]


def test_ties_between_verticals_go_to_more_items_then_the_alphabet() -> None:
    built, _ = space.build(tags(("a", 0, "Z"), ("a", 0, "Z"), ("a", 0, "A"), ("b", 1, "Y"), ("b", 1, "X")))
    assert dict(built.table.select("text", "vertical").iter_rows()) == {"a": "Z", "b": "X"}


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(TEXTS, st.integers(0, 9), st.sampled_from("AB")), max_size=12))
def test_every_text_is_a_label_or_reported(rows: list[tuple[str, int, str]]) -> None:
    built, merged = space.build(tags(*rows), without_blanks)
    assert built.table["id"].to_list() == list(range(len(built)))
    assert built.table["count"].sum() == sum(count for text, count, _ in rows if normalise(text))
    for text, _, _ in rows:
        at = int(built.find([text])[0])
        assert (at >= 0) == bool(normalise(text))
        if at < 0 or clean(text) != built.texts[at]:
            assert (clean(text) or text) in merged["text"].to_list()


def test_add_appends_and_moves_nothing(labels: LabelSpace) -> None:
    newer, told = changes.add(labels, ["Fell running", "tents", "fell  running", "?"], ["Sports", "x", "Sports", "x"])
    assert newer.table[:3].equals(labels.table)
    assert newer.table[3].select("id", "text", "count", "since", "cluster").row(0) == (3, "Fell running", 0, 2, -1)
    assert (labels.version, newer.version) == (1, 2)
    assert newer.changes[-1].model_dump(include={"action", "labels", "after"}) == {
        "action": "add",
        "labels": [3],
        "after": ["Fell running"],
    }
    assert dict(told.select("text", "reason").iter_rows()) == {
        "tents": "already in the space",
        "fell  running": "equal after normalisation or tokenisation",
        "?": "nothing left after normalisation",
    }


def test_an_added_twin_becomes_an_alias(labels: LabelSpace) -> None:
    newer, told = changes.add(labels, ["trail-running", "Lamps"], ["Sports", "Camping"], without_blanks)
    assert newer.texts == [*labels.texts, "Lamps"]
    assert newer.find(["trail-running"]).tolist() == [0]
    assert told.rows() == [("trail-running", "Trail running", "already in the space")]


def test_nothing_to_add_is_an_error(labels: LabelSpace) -> None:
    with pytest.raises(DataError, match="already in the space"):
        changes.add(labels, ["TENTS"], ["Camping"])


def test_a_retired_label_comes_back_under_its_id(labels: LabelSpace) -> None:
    gone = changes.set_status(labels, ["tents"], "retired", "no longer sold")
    assert gone.live_mask().tolist() == [True, False, True]
    assert gone.changes[-1].before == ["live"] and gone.changes[-1].after == ["retired"]
    back, _ = changes.add(gone, ["Tents"], ["Camping"])
    assert back.table.equals(labels.table)
    assert back.version == 3


def test_a_blocked_label_cannot_be_retired_and_added(labels: LabelSpace) -> None:
    shut = changes.set_status(labels, [1], "blocked", "policy")
    assert shut.find(["tents"]).tolist() == [1]
    with pytest.raises(DataError, match="stays so"):
        changes.set_status(shut, [1], "retired", "a way round")
    grown, told = changes.add(shut, ["tents", "lamps"], ["x", "x"])
    assert grown.table["status"].to_list() == ["live", "blocked", "live", "live"]
    assert told.row(0) == ("tents", "Tents", "blocked")


def test_rename_keeps_the_id_and_the_old_name(labels: LabelSpace) -> None:
    newer = changes.rename(labels, "trail running", "Fell Running")
    assert newer.find(["trail running", "fell running"]).tolist() == [0, 0]
    assert newer.table[1:].equals(labels.table[1:])
    assert newer.table.row(0)[:3] == (0, "Fell Running", "fell running")
    back = changes.rename(newer, 0, "Trail running")
    assert back.table.equals(labels.table)
    assert back.aliases["key"].n_unique() == back.aliases.height == 4


@pytest.mark.parametrize("taken", ["tents", "T-E-N-T-S", " "])
def test_rename_refuses_a_clash(labels: LabelSpace, taken: str) -> None:
    with pytest.raises(DataError, match="cannot be renamed"):
        changes.rename(labels, "kettles", taken, without_blanks)


def test_an_old_name_cannot_be_taken(labels: LabelSpace) -> None:
    newer = changes.rename(labels, "tents", "shelters")
    with pytest.raises(DataError, match="leads to 'shelters'"):
        changes.rename(newer, "kettles", "Tents")


def test_unknown_labels_are_answered_with_the_nearest(labels: LabelSpace) -> None:
    with pytest.raises(DataError, match=r"no label 'trial running'.*Nearest: 'Trail running'"):
        changes.set_status(labels, ["trial running"], "retired", "typing mistake")
    with pytest.raises(DataError, match="no label 7"):
        changes.set_status(labels, [7], "blocked", "out of range")
    with pytest.raises(DataError, match="--reason"):
        changes.set_status(labels, [0], "blocked", " ")


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["add", "retired", "rename", "blocked"]), st.sampled_from("abcdef")), max_size=8)
)
def test_ids_are_dense_and_names_never_lost(steps: list[tuple[str, str]]) -> None:
    now, _ = space.build(tags(("a", 1, "V"), ("b", 1, "V"), ("c", 1, "V")))
    for action, name in steps:
        before, touched = now, now.find([name]).tolist()
        try:
            if action == "add":
                now, _ = changes.add(now, [name], ["V"])
            elif action == "rename":
                now = changes.rename(now, name, name * 2)
            else:
                now = changes.set_status(now, [name], action, "because")
        except DataError:
            continue
        assert now.version == before.version + 1 == now.changes[-1].version
        assert now.table["id"].to_list() == list(range(len(now)))
        assert set(before.aliases.iter_rows()) <= set(now.aliases.iter_rows())
        rest = np.setdiff1d(np.arange(len(before)), touched)
        assert now.table[rest].equals(before.table[rest])


def test_items_get_each_live_label_once(labels: LabelSpace) -> None:
    shut = changes.set_status(
        changes.set_status(labels, ["kettles"], "retired", "gone"), ["trail running"], "blocked", "policy"
    )
    items = pl.DataFrame(
        {
            "item": [2, 0, 1, 3],
            "tags": [["tents", "TENTS", "kettles"], ["unknown", "Trail running"], None, ["tents", "trail running"]],
        },
        schema={"item": pl.UInt32, "tags": pl.List(pl.String)},
    )
    offsets, ids = space.item_labels(shut, items)
    assert (offsets.tolist(), ids.tolist()) == ([0, 0, 0, 1, 2], [1, 1])
    offsets, ids = space.item_labels(labels, items)
    assert (offsets.tolist(), ids.tolist()) == ([0, 1, 1, 3, 5], [0, 1, 2, 1, 0])


def test_saved_and_loaded(labels: LabelSpace, tmp_path: Path) -> None:
    newer = changes.with_clusters(changes.rename(labels, "tents", "שלום 🍕"), [1, 0, 1])
    space.save(newer, tmp_path)
    again = space.load(tmp_path)
    assert again.table.equals(newer.table) and again.table.schema == newer.table.schema == space.COLUMNS
    assert again.aliases.equals(newer.aliases) and again.changes == newer.changes and again.version == 2
    (tmp_path / "changes.json").write_text("{")
    with pytest.raises(DamagedArtifact, match="readable label space"):
        space.load(tmp_path)
