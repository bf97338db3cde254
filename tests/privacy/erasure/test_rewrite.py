"""Files again without some rows: judged by the obvious way to do it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merit.campaigns.audiences.export import WRITERS
from merit.core import files
from merit.privacy.erasure import rewrite


@given(st.sets(st.integers(0, 49)), st.booleans())
@settings(max_examples=15, deadline=None)
def test_tables_keep_types_order_and_notes(
    tmp_path_factory: pytest.TempPathFactory, gone: set[int], many: bool
) -> None:
    folder = tmp_path_factory.mktemp("rows")
    frame = pl.DataFrame(
        {
            "example": pl.Series(range(50), dtype=pl.UInt32),
            "kind": pl.Series(["a", "b"] * 25, dtype=pl.Enum(["b", "a"])),
            "at": pl.Series(range(50), dtype=pl.Datetime("ms", "UTC")),
            "labels": [[number, number + 1] for number in range(50)],
        }
    )
    frame.write_parquet(folder / "a.parquet", metadata={"merit": "told"}, row_group_size=7 if many else None)
    rewrite.drop_rows(folder / "a.parquet", folder / "b.parquet", np.array(sorted(gone), dtype=np.int64))
    kept = frame.filter(~pl.col("example").is_in(list(gone)))
    assert pl.read_parquet(folder / "b.parquet").equals(kept)
    assert pl.read_parquet(folder / "b.parquet").schema == frame.schema
    assert pl.read_parquet_metadata(folder / "b.parquet")["merit"] == "told"
    rewrite.drop_rows(folder / "a.parquet", folder / "c.parquet", np.array(sorted(gone), dtype=np.int64), "example")
    counted = pl.read_parquet(folder / "c.parquet")
    assert counted["example"].to_list() == list(range(len(kept))) and counted.schema == frame.schema
    assert counted.drop("example").equals(kept.drop("example"))


@given(st.sets(st.integers(0, 40)), st.sampled_from(["float16", "int32", "int8"]))
@settings(max_examples=15, deadline=None)
def test_arrays_keep_every_bit(tmp_path_factory: pytest.TempPathFactory, gone: set[int], dtype: str) -> None:
    folder = tmp_path_factory.mktemp("rows")
    array = np.random.default_rng(0).integers(-100, 100, (41, 3, 2)).astype(dtype)
    np.save(folder / "a.npy", array)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(rewrite, "BLOCK", 8)
        rewrite.drop_rows(folder / "a.npy", folder / "b.npy", np.array(sorted(gone), dtype=np.int64))
    found = np.load(folder / "b.npy")
    assert found.dtype == array.dtype and np.array_equal(found, np.delete(array, sorted(gone), axis=0))


IDS = ["u1", "=SUM(A1)", 'a "quoted", id', "two\nlines", "u12", "'marked", "ü"]


@pytest.mark.parametrize("gone", IDS)
def test_lines_of_others_stay_as_they_are(tmp_path: Path, gone: str) -> None:
    members = pl.LazyFrame({"user_id": IDS, "rank": range(len(IDS)), "score": [0.1] * len(IDS)})
    for form in ("csv", "jsonl"):
        written, kept = tmp_path / f"a.{form}", tmp_path / f"b.{form}"
        WRITERS[form](members, written)  # type: ignore[index]
        ids = [value for _, value in rewrite.records(written, "user_id")]
        stored = ids[-len(IDS) :][IDS.index(gone)]  # a CSV marks what a spreadsheet would run
        assert form == "csv" or stored == gone
        rewrite.drop_lines(written, kept, "user_id", frozenset([stored]))
        WRITERS[form](members.filter(pl.col("user_id") != gone), tmp_path / f"c.{form}")  # type: ignore[index]
        assert (tmp_path / f"b.{form}").read_bytes() == (tmp_path / f"c.{form}").read_bytes()


@pytest.mark.parametrize("able", [True, False])
def test_a_folder_takes_anothers_place(tmp_path: Path, able: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not able:
        monkeypatch.setattr(files, "_EXCHANGE", 1 << 20)  # what no file system knows
    for name in ("old", ".old.draft"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "told").write_text(name)
    rewrite.exchange(tmp_path / ".old.draft", tmp_path / "old")
    assert (tmp_path / "old/told").read_text() == ".old.draft" and (tmp_path / ".old.draft/told").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == [".old.draft", "old"]


@pytest.mark.parametrize("steps", [1, 2])
def test_a_kill_between_two_steps_is_mended(tmp_path: Path, steps: int) -> None:
    """Where folders cannot be swapped: the old one stepped aside, and perhaps the new one in."""
    draft, place = tmp_path / ".a.erased-1", tmp_path / "a"
    draft.mkdir()
    (draft / "new").touch()
    (tmp_path / ".a.erased-1-old").mkdir()
    if steps == 2:
        draft.rename(place)
    rewrite.mend([tmp_path])
    assert [path.name for path in tmp_path.iterdir()] == ["a"] and (place / "new").exists()
