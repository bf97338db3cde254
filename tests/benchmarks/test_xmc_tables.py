"""Documents and labels in the repository's formats, read whole, and lines that cannot be read."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import xmc_files, xmc_tables
from benchmarks.xmc_tables import line_of, user_ids
from merit.core.errors import DataError
from merit.core.ragged import Ragged
from merit.data.prepare import PrepareConfig, PrepareRun, prepare, shards
from merit.data.prompt import Controls, PromptConfig, tokenise
from merit.data.sources import TablesSource
from tests.data.one_prompt import prompt_of

LABELS = ["role: program", "games", "näturliche Sprache", "C++"]
TRAIN = [("a", "A chess game", "for two", [1, 0]), ("b", "A compiler", "", [3]), ("b", "Speech", "from text", [2, 0])]
TEST = [("c", "Another game", "of cards", [1])]


def row(uid: Any, title: Any, content: Any, labels: Any, **more: Any) -> dict[str, Any]:
    return {"uid": uid, "title": title, "content": content, "target_ind": labels} | more


def write_lines(file: Path, lines: list[str | bytes]) -> None:
    raw = b"".join((line.encode() if isinstance(line, str) else line) + b"\n" for line in lines)
    file.write_bytes(gzip.compress(raw) if file.suffix == ".gz" else raw)


def raw_text(folder: Path, train: list[Any] = TRAIN, test: list[Any] = TEST, packed: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    for part, documents in (("trn", train), ("tst", test)):
        lines = [json.dumps(row(*each)) if isinstance(each, tuple) else each for each in documents]
        write_lines(folder / f"{part}.json{packed}", lines)
    write_lines(folder / f"lbl.json{packed}", [json.dumps({"uid": n, "title": text}) for n, text in enumerate(LABELS)])
    return folder


def plain(folder: Path, form: str, packed: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    for part, documents in (("trn", TRAIN), ("tst", TEST)):
        write_lines(
            folder / f"{part}_X.txt{packed}", [f"{title} {content}".strip() for _, title, content, _ in documents]
        )
        header = f"{len(documents)} {len(LABELS)}" if form == "sparse" else f"{len(documents)} 7 {len(LABELS)}"
        lists = [
            " ".join(f"{label}:1.0" for label in labels)
            if form == "sparse"
            else f"{','.join(map(str, labels))} 0:1 6:.5"
            for *_, labels in documents
        ]
        write_lines(folder / f"{part}_X_Y.txt{packed}", [header, *lists])
    write_lines(folder / f"Y.txt{packed}", list(LABELS))
    return folder


def read(folder: Path, part: Any = "train") -> list[xmc_files.Document]:
    found = xmc_files.find(folder)
    return list(xmc_files.documents(found, part, xmc_files.count(found)))


@pytest.mark.parametrize("packed", ["", ".gz"])
@pytest.mark.parametrize("layout", ["raw", "sparse", "words"])
def test_every_layout_gives_the_same_documents(tmp_path: Path, layout: str, packed: str) -> None:
    folder = raw_text(tmp_path / "x", packed=packed) if layout == "raw" else plain(tmp_path / "x", layout, packed)
    expected = [(f"{title} {content}".strip(), tuple(sorted(labels))) for _, title, content, labels in TRAIN]
    assert [(each.text, each.labels) for each in read(folder)] == expected
    assert [(each.text, each.labels) for each in read(folder, "test")] == [("Another game of cards", (1,))]
    assert [each.text for each in xmc_files.labels(xmc_files.find(folder))] == LABELS
    assert [each.line for each in read(folder)] == [1, 2, 3]


def test_titles_alone(tmp_path: Path) -> None:
    found = xmc_files.find(raw_text(tmp_path / "x"))
    assert next(xmc_files.documents(found, "train", 4, content=False)).text == "A chess game"


BAD_LINES = {
    b"{": "not JSON",
    b"": "not JSON",
    b"[1]": "no JSON object",
    b'{"title": "\xff"}': "byte 0xff is not UTF-8",
    b"[" * 100_000: "nested too deeply",
    json.dumps(row("z", "text", "", [4])).encode(): "label 4, but labels are 0 to 3",
    json.dumps(row("z", "text", "", [-1])).encode(): "label -1",
    json.dumps(row("z", "text", "", ["1"])).encode(): "target_ind is no list of whole numbers",
    json.dumps(row("z", "text", "", [True])).encode(): "target_ind is no list",
    json.dumps(row("z", "text", "", None)).encode(): "target_ind is no list",
    json.dumps(row("z", "text", "", [1, 2], target_rel=[1.0])).encode(): "target_rel has not as many",
    json.dumps(row("z", ["text"], "", [1])).encode(): "title is list, not text",
    json.dumps(row(None, "text", "", [1])).encode(): None,  # the line tells it from others
    json.dumps(row({"a": 1}, "text", "", [1])).encode(): "uid is dict",
    json.dumps(row("z", "  ", "", [1])).encode(): "no text",
    b'{"uid": "z", "title": "\\ud800", "target_ind": [1]}': "half a character",
    b'{"uid": "z", "title": "t", "target_ind": [' + b"9" * 5_000 + b"]}": "",
}


@pytest.mark.parametrize(("line", "problem"), BAD_LINES.items(), ids=[str(text)[:30] for text in BAD_LINES.values()])
def test_a_line_that_cannot_be_used_says_why_and_its_neighbours_stay(
    tmp_path: Path, line: bytes, problem: str | None
) -> None:
    found = read(raw_text(tmp_path / "x", train=[TRAIN[0], line, TRAIN[1]]))
    assert [each.line for each in found] == [1, 2, 3]
    assert [each.problem is None for each in found] == [True, problem is None, True]
    assert problem is None or problem in str(found[1].problem)


@given(st.lists(st.binary(max_size=40).filter(lambda line: b"\n" not in line and not line.endswith(b"\r")), min_size=1))
def test_no_line_is_lost_whatever_it_holds(tmp_path_factory: pytest.TempPathFactory, lines: list[bytes]) -> None:
    folder = raw_text(tmp_path_factory.mktemp("x"), train=lines)
    assert [each.line for each in read(folder)] == list(range(1, len(lines) + 1))


@pytest.mark.parametrize(
    ("file", "lines", "message"),
    [
        ("trn_X.txt", ["one", "two"], "trn_X.txt ends before document 3"),
        ("trn_X.txt", ["one", "two", "three", "four"], "trn_X_Y.txt ends before document 4"),
        ("trn_X_Y.txt", ["3 5", "1:1", "3:1", "2:1"], "5 labels, but there are 4 label texts"),
        ("trn_X_Y.txt", ["1:1", "3:1", "2:1"], "line 1 is neither"),
        ("trn_X_Y.txt", ["4 4", "1:1", "3:1", "2:1"], "says 4 rows in its header, but there are 3"),
        ("trn_X_Y.txt", ["2 4", "1:1", "3:1", "2:1"], "says 2 rows in its header, but there are 3"),
        ("Y.txt", [], "Y.txt is empty"),
    ],
)
def test_files_that_do_not_fit_each_other_are_refused(
    tmp_path: Path, file: str, lines: list[str | bytes], message: str
) -> None:
    folder = plain(tmp_path / "x", "sparse")
    write_lines(folder / file, lines)
    with pytest.raises(DataError, match=message):
        read(folder)


def test_plain_lines_that_cannot_be_used(tmp_path: Path) -> None:
    folder = plain(tmp_path / "x", "sparse")
    write_lines(folder / "trn_X_Y.txt", ["3 4", "1:1 0:0", "x:1", "2:nan"])
    found = read(folder)
    assert found[0].labels == (1,)  # a zero is no label
    assert "`label:value` (trn_X_Y.txt, line 3)" in str(found[1].problem)
    assert "no number (trn_X_Y.txt, line 4)" in str(found[2].problem)


def test_words_without_labels(tmp_path: Path) -> None:
    folder = plain(tmp_path / "x", "words")
    write_lines(folder / "trn_X_Y.txt", ["3 7 4", " 0:1 2:1", "0:1 2:1", "1,0 3:1"])
    assert [each.labels for each in read(folder)] == [(), (), (0, 1)]


def test_a_damaged_or_missing_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = raw_text(tmp_path / "x", packed=".gz")
    whole = (folder / "trn.json.gz").read_bytes()
    (folder / "trn.json.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"trn\.json\.gz is cut off"):
        read(folder)
    (folder / "trn.json.gz").unlink()
    with pytest.raises(DataError, match=r"no file of documents: looked for trn\.json"):
        read(folder)
    with pytest.raises(DataError, match=r"looked for Y\.txt"):
        xmc_files.find(tmp_path)
    monkeypatch.setattr(xmc_files, "LONGEST", 10)
    with pytest.raises(DataError, match="line 1 is longer"):
        read(raw_text(tmp_path / "y"))


def test_filtered_pairs_are_no_labels(tmp_path: Path) -> None:
    folder = raw_text(tmp_path / "x")
    write_lines(folder / "filter_labels_train.txt", ["0 1", "2 0"])
    assert [each.labels for each in read(folder)] == [(0,), (3,), (2,)]
    write_lines(folder / "filter_labels_train.txt", ["0 1", "2"])
    with pytest.raises(DataError, match="line 2 is not `document label`"):
        read(folder)
    write_lines(folder / "filter_labels_train.txt", ["0 9"])
    with pytest.raises(DataError, match="no label 9"):
        read(folder)


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    many = [("x", "word " * 200, "", [1])] * 5_000  # 5 MB
    found = xmc_files.find(raw_text(tmp_path / "x", train=many, packed=".gz"))
    tracemalloc.start()
    assert sum(1 for _ in xmc_files.documents(found, "train", 4)) == len(many)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000


# --- as two tables ---------------------------------------------------------------------------------------------------


def made(tmp_path: Path, folder: Path, **more: Any) -> Any:
    tables = tmp_path / "tables"
    xmc_tables.write(folder, tables, 7, **more)
    source = TablesSource(interactions=tables / "interactions", items=tables / "items", max_title_chars=20_000)
    settings = PrepareRun(source=source, prepare=PrepareConfig(target="order", min_history=1))
    return prepare(tmp_path / "examples", settings, 7)


def test_documents_become_examples_as_given(tmp_path: Path) -> None:
    many = [(f"d{n}", f"document {n}", "", [n % 4, (n + 1) % 4]) for n in range(60)]
    examples = made(tmp_path, raw_text(tmp_path / "x", train=many))
    [shard] = shards(examples)
    items = pl.read_parquet(examples.file("items.parquet"))
    titles, tags = items["title"].to_list(), items["tags"].to_list()
    seen, splits = shard.events["item"].to_list(), dict(shard.users.select("user_id", "split").iter_rows())
    names = shard.users["user_id"].to_list()
    assert len(shard.examples) == 61
    for each in shard.examples.iter_rows(named=True):
        name = names[each["user"]]
        number = line_of(name) - 1
        [text] = seen[each["history_start"] : each["history_stop"]]
        gold = [tag for item in each["target_items"] for tag in tags[item]]
        expected = [LABELS[label] for label in sorted(many[number][3])] if name.startswith("trn") else [LABELS[1]]
        assert titles[text] == (many[number][1] if name.startswith("trn") else "Another game of cards")
        assert tags[text] == [], "what is to be found must not be seen"
        assert gold == expected
        assert (splits[name] == "test") == name.startswith("tst")
    assert set(splits.values()) == {"train", "validation", "test"}
    counts = pl.read_parquet(examples.file("item_counts.parquet"))
    trained = [many[line_of(name) - 1][3] for name, split in splits.items() if split == "train"]
    assert counts["count"].to_list()[:4] == [sum(label in labels for labels in trained) for label in range(4)]


def test_unusable_lines_are_kept_aside_with_their_place(tmp_path: Path) -> None:
    folder = raw_text(tmp_path / "x", train=[*TRAIN, b"{", *[("e", "more", "", [0])] * 40])
    with pytest.raises(DataError, match=r"trn\.json, row 4: it is not JSON.*--max-bad-share"):
        made(tmp_path, folder)
    examples = made(tmp_path, folder, max_bad_share=0.1)
    [aside] = pl.read_parquet(tmp_path / "tables" / "bad.parquet").rows(named=True)
    assert (Path(aside["file"]).name, aside["row"]) == ("trn.json", 4)
    assert examples.manifest.summary["examples"] == 44


def test_documents_of_one_name_stay_two(tmp_path: Path) -> None:
    assert made(tmp_path, raw_text(tmp_path / "x")).manifest.summary["users"] == 4  # two are called b
    [one] = user_ids("train", [12], ["a/b/c"], 7)
    assert line_of(one) == 12


def test_tables_of_the_same_files_are_not_written_again(tmp_path: Path) -> None:
    folder, tables = raw_text(tmp_path / "x"), tmp_path / "tables"
    xmc_tables.write(folder, tables, 7)
    before = {file: file.stat().st_mtime_ns for file in tables.rglob("*.parquet")}
    xmc_tables.write(folder, tables, 7)
    assert {file: file.stat().st_mtime_ns for file in tables.rglob("*.parquet")} == before
    xmc_tables.write(folder, tables, 8)
    assert {file: file.stat().st_mtime_ns for file in tables.rglob("*.parquet")} != before


def test_a_text_reaches_the_prompt_in_full_up_to_the_budget() -> None:
    texts = ["one two three", " ".join(f"w{n}" for n in range(50))]
    config = PromptConfig(budget=20, title_tokens=17, profile_labels=0)
    words: dict[str, int] = {}

    def encode(texts: Sequence[str]) -> list[list[int]]:
        return [[words.setdefault(word, 10 + len(words)) for word in text.split()] for text in texts]

    made_texts = tokenise(texts, ["label"], encode, Controls(1, 2, 3, 4), config)
    nothing = Ragged(np.zeros(3, np.int64), np.zeros(0, np.int32))
    short, long = (prompt_of([item], nothing, made_texts, config).tokens.tolist() for item in (0, 1))
    assert short == [1, 2, *encode([texts[0]])[0], 4]
    assert long == [1, 2, *encode([texts[1]])[0][:17], 4]
    assert len(long) == config.budget
