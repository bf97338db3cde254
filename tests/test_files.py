from __future__ import annotations

from pathlib import Path

import pytest

from merit import files
from merit.errors import StorageError


def test_a_file_is_private_and_replaced_whole(tmp_path: Path) -> None:
    place = tmp_path / "new" / "file"
    files.write(place, "one")
    files.write(place, b"two")
    assert place.read_bytes() == b"two" and place.stat().st_mode & 0o777 == 0o600
    assert list(place.parent.iterdir()) == [place]


def test_what_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    place = tmp_path / "file"
    files.write(place, "old")
    with pytest.raises(StorageError):
        files.write(place / "below", "new")
    assert place.read_text() == "old"


def test_who_comes_second_is_told_and_the_lock_goes_with_its_holder(tmp_path: Path) -> None:
    held, second = files.locked(tmp_path / ".lock"), files.locked(tmp_path / ".lock", "Another is at work.")
    with held, pytest.raises(StorageError, match="at work"), second:
        pass
    with files.locked(tmp_path / ".lock", "Another is at work."):
        assert (tmp_path / ".lock").exists()
