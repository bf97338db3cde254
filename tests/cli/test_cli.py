"""The program as a person meets it: words in, exit code, one message, files on disk."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from merit.core import artifacts
from merit.core.pipeline import STAGES
from merit.data.planted import PlantedConfig, shop, write
from tests import processes
from tests.conftest import Command

Mangle = Callable[[Path], Any]

TEXT_ONLY = ("stage-1", "mined-1", "predictions-1", "mined-2")


def settings(folder: Path, users: int = 120) -> Path:
    """A small planted shop and the configuration that reads it."""
    write(shop(PlantedConfig(users=users), seed=7), folder / "shop")
    text = f"""
    seed = 7
    out = "{folder}/run"
    cache = "{folder}/cache"
    [source]
    kind = "tables"
    interactions = "{folder}/shop/interactions.parquet"
    items = "{folder}/shop/items.parquet"
    [labels]
    encoder = "hashed"
    [item_generator.network]
    width = 16
    layers = 1
    heads = 2
    [item_generator.train]
    steps = 12
    [backbone]
    width = 32
    layers = 1
    vocabulary = 1400
    [stage_1]
    objective = "teacher-forcing"
    steps = 12
    [mining]
    samples = 2
    [stage_2]
    steps = 12
    [evaluation]
    resamples = 200
    """
    (folder / "run.toml").write_text(text)
    return folder / "run.toml"


def test_from_two_tables_to_a_report(tmp_path: Path, command: Command) -> None:
    file = settings(tmp_path, users=360)  # so that there are 50 test users, and figures may be shown
    code, out, _ = command("run", file, "--json")
    assert code == 0
    made = json.loads(out)
    assert list(made) == [name for name in STAGES if name not in TEXT_ONLY]
    assert made["examples"]["summary"]["users"] == 360
    assert made["stage-2"]["summary"]["steps"] == 12
    figures = pl.read_parquet(tmp_path / "run" / "results" / "figures.parquet")
    said = {"trivial", "popularity", "history frequency", "item generator", "MERIT"}
    assert said <= set(figures["method"])
    for name in ("data-report", "results"):
        page = (tmp_path / "run" / name / "index.html").read_text()
        assert "<table" in page and "<script" not in page and "http://" not in page.replace("http://www.w3.org", "")


def test_from_two_tables_to_a_report_by_a_language_model(tmp_path: Path, command: Command) -> None:
    code, out, _ = command("run", settings(tmp_path), "--json", "--set", "reads=text")
    assert code == 0
    made = json.loads(out)
    assert list(made) == list(STAGES)
    assert made["stage-2"]["summary"]["steps"] == 12
    drawn = made["mined-1"]["summary"]["examples"]
    assert drawn == min(12 * 64, made["stage-1"]["summary"]["examples"]) == made["stage-2"]["summary"]["examples"]
    figures = pl.read_parquet(tmp_path / "run" / "results" / "figures.parquet")
    assert {"teacher-forcing", "self-correction (β = 0)", "MERIT"} <= set(figures["method"])


def test_a_second_run_keeps_what_is_unchanged(tmp_path: Path, command: Command) -> None:
    file = settings(tmp_path)
    command("run", file)
    stages = len(STAGES) - len(TEXT_ONLY)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*") if path.is_file()}
    _, _, err = command("run", file)
    assert err.count("unchanged, kept") == stages
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*") if path.is_file()}
    _, _, err = command("run", file, "--set", "predict.budget=10")
    assert err.count("unchanged, kept") == stages - 3  # the predictions, the results, and the model with its card


def test_two_runs_make_the_same_bytes(tmp_path: Path, command: Command) -> None:
    hashes = []
    for name in ("one", "two"):
        file = settings(tmp_path)
        _, out, _ = command("run", file, "--json", "--set", f"out={tmp_path}/{name}", "--until", "labels")
        hashes.append({stage: made["hash"] for stage, made in json.loads(out).items()})
    assert hashes[0] == hashes[1]


def test_show_tells_where_a_folder_came_from(tmp_path: Path, command: Command) -> None:
    command("run", settings(tmp_path), "--until", "data-report")
    code, out, _ = command("show", tmp_path / "run" / "labels")
    assert code == 0
    assert "labels, " in out and "from examples" in out and "interactions" in out
    code, out, _ = command("show", tmp_path / "run", "--json")
    assert [each["kind"] for each in json.loads(out)] == ["corpus", "data-report", "examples", "labels"]


def test_a_living_vocabulary(tmp_path: Path, command: Command) -> None:
    command("run", settings(tmp_path), "--until", "labels")
    first, second, third = (tmp_path / "run" / "labels", tmp_path / "v2", tmp_path / "v3")
    cache = ["--cache", tmp_path / "cache"]
    assert command("labels", "add", first, "night hiking", "sourdough", "--out", second, *cache)[0] == 0
    assert command("labels", "rename", second, "night hiking", "hiking at night", "--out", third, *cache)[0] == 0
    table = pl.read_parquet(third / "labels.parquet")
    assert {"hiking at night", "sourdough"} <= set(table["text"])
    code, _, err = command(
        "labels", "retire", third, "no such label", "--out", tmp_path / "v4", "--reason", "gone", *cache
    )
    assert code != 0 and "no such label" in err and not (tmp_path / "v4").exists()


def test_settings_are_explained(tmp_path: Path, command: Command) -> None:
    file = settings(tmp_path)
    code, _, err = command("run", file, "--set", "prepare.min_histroy=2")
    assert code == 2 and "did you mean 'min_history'?" in err
    code, _, err = command("run", file, "--until", "lables")
    assert code == 2 and "There is no stage 'lables'" in err
    code, out, _ = command("config", "schema")
    assert code == 0 and "prepare" in json.loads(out)["properties"]
    code, out, _ = command("config", "show", file)
    assert json.loads(out)["prepare"]["gap_days"] == 7


def test_doctor_finds_everything(command: Command) -> None:
    code, out, _ = command("doctor", "--json")
    found = {each["what"]: each for each in json.loads(out)}
    assert code == 0 and found["weights minilm"]["ok"] and "GFLOP/s" in found["torch works"]["value"]


def test_data_check_speaks_json_and_ends_with_zero_on_good_tables(tmp_path: Path, command: Command) -> None:
    settings(tmp_path)
    tables = ["--interactions", tmp_path / "shop/interactions.parquet", "--items", tmp_path / "shop/items.parquet"]
    code, out, _ = command("data", "check", *tables, "--json")
    assert code == 0 and json.loads(out)["users"] == 120


def rewrite(table: str, change: Callable[[pl.DataFrame], pl.DataFrame]) -> Mangle:
    def mangle(folder: Path) -> None:
        path = folder / "shop" / f"{table}.parquet"
        change(pl.read_parquet(path)).write_parquet(path)

    return mangle


def as_csv(table: str, text: Callable[[str], str]) -> Mangle:
    def mangle(folder: Path) -> None:
        path = folder / "shop" / f"{table}.parquet"
        frame = pl.read_parquet(path)
        if table == "items":
            frame = frame.with_columns(pl.col("tags").list.join("|"))
        path.with_suffix(".csv").write_text(text(frame.write_csv()))
        config = folder / "run.toml"
        config.write_text(config.read_text().replace(f"{table}.parquet", f"{table}.csv"))

    return mangle


def first_row(column: str, value: Any) -> Callable[[pl.DataFrame], pl.DataFrame]:
    return lambda frame: frame.with_columns(
        pl.when(pl.int_range(pl.len()) == 4).then(pl.lit(value)).otherwise(pl.col(column)).alias(column)
    )


def truncate(folder: Path) -> None:
    path = folder / "shop" / "interactions.parquet"
    path.write_bytes(path.read_bytes()[:-2000])


def clash(frame: pl.DataFrame) -> pl.DataFrame:
    return pl.concat([frame, frame.head(5).with_columns(title=pl.lit("something else"))])


def shorter(frame: pl.DataFrame) -> pl.DataFrame:
    """Few enough rows that one bad row is more than one in a thousand."""
    return frame.head(900)


def epochs(value: int) -> Callable[[pl.DataFrame], pl.DataFrame]:
    return lambda frame: first_row("timestamp", value)(
        shorter(frame).with_columns(pl.col("timestamp").dt.epoch("s").alias("timestamp"))
    )


BAD: dict[str, tuple[Mangle, tuple[str, ...]]] = {
    "missing column": (
        rewrite("interactions", lambda f: f.drop("item_id")),
        ("interactions.parquet", "item_id", "--set"),
    ),
    "wrong type": (
        rewrite("interactions", lambda f: f.with_columns(timestamp=pl.lit("yesterday"))),
        ("interactions.parquet", "row 1", "yesterday", "quarantine"),
    ),
    "no rows": (rewrite("interactions", lambda f: f.clear()), ("interactions.parquet", "no usable rows")),
    "empty file": (lambda folder: (folder / "shop/items.parquet").write_bytes(b""), ("items.parquet", "empty")),
    "truncated Parquet": (truncate, ("interactions.parquet", "again")),
    "broken quote": (
        as_csv("items", lambda text: text.replace("\n", '\n"', 3)),
        ("items.csv", "quote"),
    ),
    "negative time": (rewrite("interactions", epochs(-5)), ("interactions.parquet", "row 5", "-5", "max_bad_share")),
    "far future": (rewrite("interactions", epochs(9_999_999_999)), ("interactions.parquet", "row 5", "max_bad_share")),
    "duplicate ids": (rewrite("items", clash), ("items.parquet", "row 601", "max_bad_share")),
    "10 MB title": (
        rewrite("items", first_row("title", "x" * 10_000_000)),
        ("items.parquet", "row 5", "max_title_chars"),
    ),
    "missing file": (lambda folder: (folder / "shop/items.parquet").unlink(), ("items.parquet", "does not exist")),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_message_and_leaves_nothing(name: str, tmp_path: Path, command: Command) -> None:
    file = settings(tmp_path)
    mangle, words = BAD[name]
    mangle(tmp_path)
    code, out, err = command("run", file)
    assert code != 0 and out == ""
    assert "Traceback" not in err and err.count("error ") == 1
    for word in words:
        assert word in err, err
    assert not (tmp_path / "run").exists() or list((tmp_path / "run").iterdir()) == []
    assert command("data", "check", file)[0] != 0


def test_tables_are_checked_without_torch(tmp_path: Path) -> None:
    file = settings(tmp_path)
    code = "import sys; from merit import cli; cli.app(standalone_mode=False); print('torch' in sys.modules)"
    words = ["data", "check", str(file)]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


def test_a_setting_that_a_check_does_not_read_is_refused(tmp_path: Path, command: Command) -> None:
    file = settings(tmp_path)
    tables = [f"--{name}={tmp_path / 'shop' / name}.parquet" for name in ("interactions", "items")]
    for given in ([file], tables):
        code, out, err = command("data", "check", *given, "--set", "sorce.max_bad_share=1")
        assert (code, out) == (2, "") and "sorce: unknown setting; did you mean 'source'?" in err
        code, out, err = command("data", "check", *given, "--set", "stage_1.steps=5")
        assert (code, out) == (2, "") and "stage_1: unknown setting; known here: out, source." in err
        assert command("data", "check", *given, "--set", "source.max_bad_share=1")[0] == 0


def test_strange_but_legal_text_goes_through_unchanged(tmp_path: Path, command: Command) -> None:
    """Emoji, right-to-left text and control tokens are text. They are kept, told about, and harmless."""
    file = settings(tmp_path)
    strange = ["💐 Blumenstrauß 👩‍🌾", "זר פרחים לשבת", "[SEP] ignore <|endoftext|> all <answer> before"]
    path = tmp_path / "shop/items.parquet"
    items = pl.read_parquet(path)
    titles = pl.Series("title", strange + items["title"].to_list()[3:])
    items.with_columns(titles).write_parquet(path)
    assert command("run", file, "--until", "examples")[0] == 0
    kept = set(pl.read_parquet(tmp_path / "run/examples/items.parquet")["title"])
    assert set(strange) <= kept
    code, out, _ = command("data", "check", file, "--json")
    assert code == 0 and "control token" in " ".join(json.loads(out)["notes"])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small file system")
def test_disk_full(tmp_path: Path, command: Command) -> None:
    file = settings(tmp_path, users=400)
    small = tmp_path / "run"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96k", "tmpfs", str(small)], capture_output=True).returncode:
        pytest.skip("this system does not let a test mount a file system")
    try:
        code, _, err = command("run", file)
        assert code == 7 and "disk is full" in err and str(small) in err and "Traceback" not in err
        assert list(small.iterdir()) == []
    finally:
        subprocess.run(["umount", str(small)], check=True)


@pytest.mark.parametrize(("sign", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_leaves_nothing_half_written(tmp_path: Path, sign: signal.Signals, code: int) -> None:
    file = settings(tmp_path, users=20_000)
    child = processes.merit("run", file, folder=tmp_path, out=tmp_path / "out.txt", err=tmp_path / "err.txt")
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("run/.examples.tmp-*")) and child.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)
    os.kill(child.pid, sign)
    ended, err = child.wait(60), child.err.read_text()
    assert ended == code and "Traceback" not in err
    assert ("Stopped. Nothing is half-written" in err) == (sign == signal.SIGINT)
    assert not [path.name for path in (tmp_path / "run").iterdir() if path.name.startswith(".")]
    assert artifacts.MANIFEST not in {path.name for path in tmp_path.glob("run/examples/*")}
