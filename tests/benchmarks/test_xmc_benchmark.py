"""Debian's packages as a text set, and the comparison on a small one."""

from __future__ import annotations

import gzip
import json
import lzma
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

from benchmarks import debtags, xmc, xmc_files, xmc_peers, xmc_tables
from merit.core.errors import DataError
from merit.core.ragged import Ragged
from merit.labels import space

PACKAGES = """\
Package: chess
Version: 1
Source: games-pack (1.0)
Description: a game of chess
Description-md5: abc
Tag: game::board, implemented-in::{c,c++},
 role::program, game::TODO

Package: untagged
Description: nothing to learn

Package: chess
Description: the same once more
Tag: role::data

Package: libspeak
Description: speech from text
 It reads aloud.
 .
 In many languages.
Tag: role::shared-lib
"""
TRANSLATION = "Package: chess\nDescription-md5: abc\nDescription-en: a game of chess\n For two.\n .\n Or one.\n"


def pack(text: str, file: Path) -> Path:
    raw = text.encode()
    if file.suffix in debtags.BY_ARROW:
        with pa.output_stream(str(file), compression=debtags.BY_ARROW[file.suffix]) as out:
            out.write(raw)
    else:
        file.write_bytes({".gz": gzip.compress(raw), ".xz": lzma.compress(raw)}.get(file.suffix, raw))
    return file


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz", ".lz4", ".zst"])
def test_packages_are_read_whatever_packed_them(tmp_path: Path, suffix: str) -> None:
    pack(TRANSLATION, tmp_path / f"debian_i18n_Translation-en{suffix}")
    pack(PACKAGES, tmp_path / f"debian_binary-amd64_Packages{suffix}")
    (tmp_path / "debian_InRelease").write_text("not one of them")
    chess, speak = debtags.packages(debtags.find(tmp_path))
    assert chess == debtags.Package(
        "chess",
        "games-pack",
        "a game of chess",
        "For two. Or one.",
        ("game::board", "implemented-in::c", "implemented-in::c++", "role::program"),
    )
    assert (speak.source, speak.content) == ("libspeak", "It reads aloud. In many languages.")


def test_the_folder_is_the_repositorys_and_the_same_every_time(tmp_path: Path) -> None:
    text = "\n".join(
        f"Package: p{n}\nSource: s{n // 2}\nDescription: number {n}\nTag: n::{n % 5}\n" for n in range(400)
    )
    place = pack(text, tmp_path / "Packages")
    sizes = debtags.make(place, tmp_path / "one")
    debtags.make(place, tmp_path / "two")
    for name in ("trn.json", "tst.json", "lbl.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    found = xmc_files.find(tmp_path / "one")
    train, test = (list(xmc_files.documents(found, part, 5)) for part in ("train", "test"))
    assert (len(train), len(test)) == (sizes["train"], sizes["test"])
    assert len(train) + len(test) == 400
    assert 40 < len(test) < 120
    sources = [{int(each.name[1:]) // 2 for each in part} for part in (train, test)]
    assert not sources[0] & sources[1], "packages of one source share their description"
    assert [each.text for each in xmc_files.labels(found)] == [f"n: {n}" for n in range(5)]
    assert debtags.make(place, tmp_path / "half", 0.5)["train"] < 0.7 * len(train)


@pytest.mark.parametrize(
    ("tag", "text"),
    [
        ("implemented-in::python", "implemented in: python"),
        ("devel::lang:c++", "devel: lang: c++"),
        ("works-with-format::html", "works with format: html"),
    ],
)
def test_tags_are_readable(tag: str, text: str) -> None:
    assert debtags.readable(tag) == text


def test_elsewhere_there_is_one_message(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="apt-get update"):
        debtags.find(tmp_path)
    with pytest.raises(DataError, match="apt-get update"):
        debtags.find(tmp_path / "missing")
    (tmp_path / "Packages.xz").write_bytes(b"not xz")
    with pytest.raises(DataError, match=r"Packages\.xz cannot be read"):
        list(debtags.packages(debtags.find(tmp_path)))
    with pytest.raises(DataError, match="no package with tags"):
        debtags.make(pack("Package: a\n", tmp_path / "Packages"), tmp_path / "out")


@pytest.mark.parametrize("name", xmc_peers.PEERS)
def test_peers_find_what_words_say(name: str) -> None:
    pytest.importorskip("omikuji" if name == "omikuji" else "napkinxc")
    texts = [f"{'cat' if n % 2 else 'dog'} number {n % 7}" for n in range(60)]
    gold = Ragged.of([[n % 2] for n in range(61)])
    asked = xmc_peers.task([*texts, "unheard-of"], ["a cat", "a dog"], gold, 3, 30, 1, 7, 1)
    found = xmc_peers.PEERS[name](asked)
    assert [found.said[row].tolist() for row in range(2)] == [[1], [0]]
    assert found.documents == 61


def test_pairs_that_say_nothing_are_neither_right_nor_wrong(tmp_path: Path) -> None:
    (tmp_path / "lbl.json").write_text(
        "".join(json.dumps({"uid": n, "title": n}) + "\n" for n in ("one", "two", "three"))
    )
    for part in ("trn", "tst"):
        (tmp_path / f"{part}.json").write_text('{"title": "a text", "target_ind": [0]}\n' * 3)
    tags = pl.DataFrame({"text": ["two", "one", "three"], "count": [9, 5, 1], "vertical": [None] * 3})
    known, _ = space.build(tags)  # by count, so another order than the file's
    documents = xmc_tables.user_ids("test", (3, 1), ("", ""), 7)
    assert xmc.idle_labels(tmp_path, documents, known) == [set(), set()]
    (tmp_path / "filter_labels_test.txt").write_text("2 1\n0 2\n0 0\n")
    idle = xmc.idle_labels(tmp_path, documents, known)
    assert idle == [{0}, {1, 2}]
    kept = xmc.without(Ragged.of([[0, 1, 2], [0, 1, 2]]), idle)
    assert [kept[row].tolist() for row in range(2)] == [[1, 2], [0]]


def test_what_has_not_changed_is_not_written_again(tmp_path: Path) -> None:
    place = pack(PACKAGES, tmp_path / "Packages")
    debtags.make(place, tmp_path / "out")
    before = {file: file.stat().st_mtime_ns for file in (tmp_path / "out").iterdir()}
    debtags.make(place, tmp_path / "out")
    assert {file: file.stat().st_mtime_ns for file in (tmp_path / "out").iterdir()} == before


@pytest.mark.slow
def test_the_whole_comparison_in_small(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("napkinxc")
    words = ("chess", "speech", "mail", "paint")
    stanzas = [
        f"Package: p{n}\nDescription: {words[n % 4]} tool number {n}\nTag: about::{words[n % 4]}, role::program\n"
        for n in range(300)
    ]
    folder = tmp_path / "data"
    debtags.make(pack("\n".join(stanzas), tmp_path / "Packages"), folder)
    config = xmc.settings(tmp_path / "tables", tmp_path / "run", 5.0, 3, 32, quick=True)
    xmc_tables.write(folder, tmp_path / "tables", config.seed)
    small = {"width": 16, "layers": 1, "heads": 2, "vocabulary": 1400}
    config = config.model_copy(update={"backbone": config.backbone.model_copy(update=small)})
    figures = xmc.compare(folder, config, 7)
    assert figures["label tree (napkinXC PLT) P@1"] > 95
    assert figures["labels"] == 5
    assert figures["read_in_full"] == 1
    assert figures["popularity P@1"] == 100  # everything is a program
    for objective in xmc.OURS:
        assert 0 <= figures[f"{objective}, as decoded PSP@5"] <= 100
        assert f"{objective}, likelihood ranking P@1" in figures
    assert "| method | P@1 |" in capsys.readouterr().out
    json.dumps(figures)
