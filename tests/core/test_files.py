from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from merit.core import files
from merit.core.errors import StorageError


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


def test_a_draft_takes_its_place_at_the_end_and_has_its_mode_before_the_first_byte(tmp_path: Path) -> None:
    place, umask = tmp_path / "new" / "file", os.umask(0o077)
    try:
        with files.drafted(place, 0o644) as draft:
            assert draft.read_bytes() == b"" and draft.stat().st_mode & 0o777 == 0o644
            draft.write_bytes(b"one")
            assert not place.exists()
    finally:
        os.umask(umask)
    assert place.read_bytes() == b"one" and place.stat().st_mode & 0o777 == 0o644
    assert list(place.parent.iterdir()) == [place]


def test_a_draft_that_fails_leaves_the_old_file_and_one_left_behind_is_no_harm(tmp_path: Path) -> None:
    place = tmp_path / "file"
    files.write(place, "old")
    with pytest.raises(ValueError, match="half"), files.drafted(place) as draft:
        draft.write_text("new")
        raise ValueError("half-way")
    assert place.read_text() == "old" and list(tmp_path.iterdir()) == [place]
    draft.write_text("left behind by a killed process")
    draft.chmod(0o666)
    with files.drafted(place) as again:
        assert again == draft and again.read_bytes() == b"" and again.stat().st_mode & 0o777 == 0o600
        again.write_text("new")
    assert place.read_text() == "new"


def test_who_comes_second_is_told_and_the_lock_goes_with_its_holder(tmp_path: Path) -> None:
    held, second = files.locked(tmp_path / ".lock"), files.locked(tmp_path / ".lock", "Another is at work.")
    with held, pytest.raises(StorageError, match="at work"), second:
        pass
    with files.locked(tmp_path / ".lock", "Another is at work."):
        assert (tmp_path / ".lock").exists()


def test_a_folder_goes_though_something_still_writes_into_it(tmp_path: Path) -> None:
    folder, over = tmp_path / "draft", threading.Event()
    (folder / "part").mkdir(parents=True)

    def writing() -> None:
        for number in range(60):
            with suppress(OSError):
                (folder / "part" / str(number)).write_bytes(b"x" * 100)
            time.sleep(0.002)
        over.set()

    thread = threading.Thread(target=writing)
    thread.start()
    files.remove_folder(folder)
    thread.join()
    assert over.is_set() and not folder.exists()


def test_a_folder_that_must_stay_is_not_waited_for_forever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "draft").mkdir()
    monkeypatch.setattr("shutil.rmtree", lambda *_, **__: None)
    files.remove_folder(tmp_path / "draft", patience=0.05)
    assert (tmp_path / "draft").exists()


def test_links_are_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    files.link(tmp_path / "a", tmp_path / "deep/b")
    assert (tmp_path / "deep/b").samefile(tmp_path / "a")


def test_a_version_is_another_when_the_file_is(tmp_path: Path) -> None:
    place = tmp_path / "file"
    assert files.version(place) is None
    files.write(place, "one")
    first = files.version(place)
    assert files.version(place) == first
    files.write(place, "two")
    assert files.version(place) != first
