"""Pseudonyms (docs/data.md): keyed, stable, in every place where an id stood; keys that are not safe are refused."""

from __future__ import annotations

import hmac
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from merit.campaigns.audiences import eligibility
from merit.campaigns.audiences.eligibility import Listed
from merit.core import artifacts
from merit.core.errors import ConfigError, DataError
from merit.data import check, validate
from merit.data.sources import TablesSource, open_source
from merit.privacy import pseudonyms
from merit.privacy.pseudonyms import PseudonymKey
from merit.privacy.restore import with_ids

SECRET = bytes(range(32))
KEY = PseudonymKey(SECRET, Path("key"))


@pytest.fixture
def key(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "keys" / "shop"
    pseudonyms.create(place)
    yield place
    pseudonyms.use(None)


@given(st.lists(st.text(min_size=1, max_size=20), min_size=1, max_size=20))
def test_a_pseudonym_is_the_keyed_hash_of_an_id(ids: list[str]) -> None:
    def slow(each: str) -> str:
        return blake2b(each.encode(), key=SECRET, digest_size=16, person=b"merit user").hexdigest()

    slowly = [f"p-{KEY.number}-{slow(each)}" for each in ids]
    assert KEY.of(ids) == slowly == KEY.of(slowly)  # what is one already stays
    column = pl.Series("user_id", [*ids, None, "", *ids], dtype=pl.String)
    told = column.to_frame().lazy().select(KEY.column(pl.col("user_id"))).collect(engine="streaming").to_series()
    assert told.to_list() == [*slowly, None, "", *slowly]


def test_nothing_but_nulls_and_nothing_at_all_are_columns_too() -> None:
    for values in ([], [None, None]):
        column = pl.DataFrame({"user_id": values}, schema={"user_id": pl.String})
        assert column.select(KEY.column(pl.col("user_id"))).equals(column)


def test_keys_and_kinds_give_different_pseudonyms() -> None:
    other = PseudonymKey(bytes(32), Path("other"))
    assert len({KEY.of(["7"])[0], KEY.of(["7"], pseudonyms.ORDER)[0], other.of(["7"])[0]}) == 3
    assert KEY.number != other.number and SECRET.hex() not in repr(KEY)


def test_a_key_is_its_owners_alone_and_is_made_once(key: Path) -> None:
    assert key.stat().st_mode & 0o777 == 0o600 and len(bytes.fromhex(key.read_text())) == 32
    with pytest.raises(ConfigError, match="there already"):
        pseudonyms.create(key)


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda key: key.chmod(0o640), "chmod 600"),
        (lambda key: key.chmod(0o602), "chmod 600"),
        (lambda key: key.write_text("abc123\n"), "64 hexadecimal digits"),
        (lambda key: key.write_text("z" * 64), "64 hexadecimal digits"),
        (lambda key: key.write_bytes(b"\xff" * 64), "cannot be read"),
        (lambda key: key.unlink(), "merit pseudonyms key"),
    ],
)
def test_a_key_that_is_not_safe_is_refused(key: Path, damage, told: str) -> None:
    damage(key)
    with pytest.raises(ConfigError, match=told):
        pseudonyms.read(key)


def test_a_key_beside_what_it_protects_is_refused(key: Path, tmp_path: Path) -> None:
    with artifacts.writing(tmp_path / "run" / "examples", "examples"):
        pass
    for place in (tmp_path / "run" / "key", tmp_path / "run" / "examples" / "deep" / "key"):
        place.parent.mkdir(exist_ok=True)
        place.write_text(key.read_text())
        place.chmod(0o600)
        with pytest.raises(ConfigError, match="Name a place elsewhere"):
            pseudonyms.read(place)
    with pytest.raises(ConfigError, match="Name a place elsewhere"):
        pseudonyms.require_apart(tmp_path / "new" / "deep" / "key", tmp_path / "new")
    pseudonyms.require_apart(key, tmp_path / "new")


# --- reading ---------------------------------------------------------------------------------------------------------

EVENTS = """user_id,item_id,timestamp,event,order_id
mia-4711,a,2024-01-01,purchase,basket-1
 mia-4711 ,a,2024-01-12,purchase,basket-2
tom-0815,a,2024-01-01,purchase,
tom-0815,gone,2024-01-03,purchase,basket-3
tom-0815,a,mia-4711,purchase,basket-4
tom-0815,a,2024-01-04,mia-4711,basket-5
"mia-4711
x",a,2024-01-05,purchase,basket-6
,a,2024-01-05,purchase,basket-7
"""
REAL = ("mia-4711", "tom-0815", "basket-")


def shop(folder: Path, key: Path | None) -> TablesSource:
    (folder / "events.csv").write_text(EVENTS)
    (folder / "items.csv").write_text("item_id,title,tags,vertical\na,Tea,Drinks,Food\n")
    return TablesSource(
        interactions=folder / "events.csv", items=folder / "items.csv", max_bad_share=0.9, pseudonyms=key
    )


def test_every_id_is_replaced_where_it_is_read(key: Path, tmp_path: Path) -> None:
    tables = open_source(shop(tmp_path, key))
    good = validate.validate(tables)
    plain = validate.validate(open_source(shop(tmp_path, None)))
    hidden, seen = good.interactions.collect(), plain.interactions.collect()
    made = pseudonyms.read(key)
    assert hidden["user_id"].to_list() == made.of(seen["user_id"])
    assert hidden["order_id"].drop_nulls().to_list() == made.of(seen["order_id"].drop_nulls(), pseudonyms.ORDER)
    assert hidden.drop("user_id", "order_id").equals(seen.drop("user_id", "order_id"))
    assert tables.inputs["pseudonyms"] == made.number


def test_bad_rows_and_reports_name_nobody(key: Path, tmp_path: Path) -> None:
    tables = open_source(shop(tmp_path, key))
    assert validate.quarantine(tables, tmp_path / "bad.csv") == 5
    told = (tmp_path / "bad.csv").read_text() + check.examine(tables).model_dump_json()
    assert not [real for real in REAL if real in told]
    bad = pl.read_csv(tmp_path / "bad.csv")
    assert bad["row"].to_list() == [4, 5, 6, 7, 8]
    (unknown,) = bad.filter(pl.col("reason") == validate.UNKNOWN_ITEM)["original"]
    assert pseudonyms.read(key).of(["tom-0815"])[0] in unknown and '"gone"' in unknown  # so that it can be erased
    assert validate.quarantine(open_source(shop(tmp_path, None)), tmp_path / "plain.csv") == 5
    assert "mia-4711" in (tmp_path / "plain.csv").read_text()


def test_an_unset_key_changes_no_manifest(tmp_path: Path) -> None:
    assert "pseudonyms" not in shop(tmp_path, None).model_dump(mode="json")


# --- asking ----------------------------------------------------------------------------------------------------------


def test_asking_by_real_ids_needs_the_key(key: Path, tmp_path: Path) -> None:
    known = pseudonyms.read(key).of(["mia-4711", "tom-0815"])
    assert pseudonyms.stored_ids(known, known) == known  # pseudonyms are understood by everybody
    assert pseudonyms.stored_ids(["mia-4711"], ["mia-4711"]) == ["mia-4711"]
    with pytest.raises(ConfigError, match=r"are pseudonyms of key \w{8}, and 1 of the ids.*merit --key FILE") as caught:
        pseudonyms.stored_ids(["mia-4711"], known)
    assert "mia" not in str(caught.value)
    pseudonyms.use(key)
    assert pseudonyms.stored_ids(["mia-4711", known[1]], known) == known
    pseudonyms.create(tmp_path / "another")
    pseudonyms.use(tmp_path / "another")
    with pytest.raises(ConfigError, match="but the users here are of key"):
        pseudonyms.stored_ids(["mia-4711"], known)


def test_tables_of_real_ids_are_understood_with_the_key(key: Path, tmp_path: Path) -> None:
    users = pl.Series(pseudonyms.read(key).of(["a-1", "b-2", "c-3"]))
    (tmp_path / "consent.csv").write_text("user_id\nb-2\nc-3\nz-9\n")
    rule = Listed(rule="listed", table=tmp_path / "consent.csv", keep=True)
    with pytest.raises(ConfigError, match="Give the key"):
        eligibility.waterfall([rule], users, lambda _: pytest.fail("no history is asked for"), None)
    pseudonyms.use(key)
    kept, _ = eligibility.waterfall([rule], users, lambda _: pytest.fail("no history is asked for"), None)
    assert kept.tolist() == [False, True, True]


def test_ids_are_found_again_in_a_list_of_them_or_nothing_is_told() -> None:
    rows = pl.DataFrame({"user_id": KEY.of(["b", "a"]), "rank": [1, 2]}).lazy()
    assert with_ids(rows, pl.Series(["a", "b", "c"]), KEY)["user_id"].to_list() == ["b", "a"]
    with pytest.raises(DataError, match="1 of 2 users"):
        with_ids(rows, pl.Series(["a", "c"]), KEY)
    with pytest.raises(DataError, match="2 of 2 users"):
        with_ids(rows, pl.Series(["a", "b"]), PseudonymKey(bytes(32), Path("other")))


def test_a_guess_cannot_be_confirmed_without_the_key() -> None:
    """No digest of the id alone, nor with what is public, is in the pseudonym."""
    shown = KEY.of(["mia-4711"])[0].rpartition("-")[2]
    for size in (16, 32, 64):
        for person in (b"", b"merit user"):
            assert shown not in blake2b(b"mia-4711", digest_size=size, person=person).hexdigest()
        public = blake2b(b"mia-4711", key=KEY.number.encode(), digest_size=size, person=b"merit user")
        assert not hmac.compare_digest(shown, public.hexdigest())
