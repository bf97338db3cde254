"""Whoever works, and whatever is killed on the way: the same manifest, every row once."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import socket
import subprocess
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from merit.core.errors import ConfigError, EngineError, StorageError
from merit.engine import lock, run, storage
from merit.engine.job import EngineConfig
from merit.engine.local import LocalPool
from merit.engine.run import Parts, make_parts, workplace, write_parts
from tests.engine import jobs

SHARDS = 12
RUNNERS = {
    "inline": EngineConfig(shards=SHARDS),
    **{f"local-{n}": EngineConfig(runner="local", workers=n, threads=1, shards=SHARDS) for n in (1, 2, 7)},
}


@pytest.fixture(autouse=True)
def _no_long_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "BACK_OFF", 0.01)


def whole(parts: Parts) -> bool:
    """Every row is there once."""
    found = pl.concat(parts.tables())
    return sorted(found["row"].to_list()) == jobs.rows()["row"].to_list() and (
        (found["doubled"] == 2 * found["row"]).all()
    )


def test_the_manifest_is_the_same_for_any_number_of_workers(tmp_path: Path) -> None:
    hashes = {}
    for name, config in RUNNERS.items():
        parts = write_parts(jobs.job(tmp_path), jobs.rows(), str(tmp_path / name), config)
        assert whole(parts)
        hashes[name] = parts.manifest.hash
    assert len(set(hashes.values())) == 1
    bytes_of = {name: (tmp_path / name / "00003.parquet").read_bytes() for name in RUNNERS}
    assert len(set(bytes_of.values())) == 1


def test_a_worker_is_set_up_once(tmp_path: Path) -> None:
    write_parts(jobs.job(tmp_path), jobs.rows(), str(tmp_path / "out"), RUNNERS["local-1"])
    assert len(list(tmp_path.glob("done-*"))) == SHARDS
    assert len(list(tmp_path.glob("set-up-*"))) == 1


@pytest.mark.parametrize("work", [jobs.dies_once, jobs.stumbles_once])
def test_a_worker_killed_in_mid_shard_loses_nothing(tmp_path: Path, work: Any) -> None:
    right = write_parts(jobs.job(tmp_path), jobs.rows(), str(tmp_path / "right"), RUNNERS["inline"])
    parts = write_parts(jobs.job(tmp_path, work), jobs.rows(), str(tmp_path / "out"), RUNNERS["local-2"])
    assert (tmp_path / "died").exists() or (tmp_path / "stumbled").exists()
    assert whole(parts)
    assert parts.manifest.hash == right.manifest.hash


def test_a_worker_that_hangs_is_ended_and_its_shard_done_by_another(tmp_path: Path) -> None:
    right = write_parts(jobs.job(tmp_path), jobs.rows(), str(tmp_path / "right"), RUNNERS["inline"])
    limited = RUNNERS["local-2"].model_copy(update={"shard_minutes": 1 / 60})
    parts = write_parts(jobs.job(tmp_path, jobs.hangs_once), jobs.rows(), str(tmp_path / "out"), limited)
    assert (tmp_path / "stopped").exists()
    assert parts.manifest.hash == right.manifest.hash
    with pytest.raises(ValueError, match="set runner to local or ray"):
        EngineConfig(shard_minutes=1)


@pytest.mark.parametrize("runner", ["inline", "local-2"])
def test_a_poisoned_shard_is_told_with_its_rows_and_all_others_are_kept(tmp_path: Path, runner: str) -> None:
    out = tmp_path / "out"
    with pytest.raises(EngineError, match=f"1 of {SHARDS} shards could not be done.*no answer") as told:
        write_parts(jobs.job(tmp_path, jobs.always_stumbles), jobs.rows(), str(out), RUNNERS[runner])
    assert told.value.exit_code != 0
    [line] = [json.loads(each) for each in Path(f"{out}.poisoned.jsonl").read_text().splitlines()]
    assert "user-3" in line["users"]
    assert [jobs.rows()["user_id"][row] for row in line["rows"]] == line["users"]
    assert len(list(out.glob("*.parquet"))) == SHARDS - 1
    assert not (out / "manifest.json").exists()
    assert len(list(tmp_path.glob("tried-*"))) == SHARDS - 1 + EngineConfig().attempts
    mended = write_parts(jobs.job(tmp_path), jobs.rows(), str(out), RUNNERS[runner])
    assert whole(mended)
    assert not Path(f"{out}.poisoned.jsonl").exists()


def test_every_attempt_waits_twice_as_long_as_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "BACK_OFF", 0.1)
    one = EngineConfig(shards=1, attempts=4)
    with pytest.raises(EngineError, match="no answer"):
        write_parts(jobs.job(tmp_path, jobs.always_stumbles), jobs.rows(), str(tmp_path / "out"), one)
    tried = sorted(int(mark.name.removeprefix("tried-")) / 1e9 for mark in tmp_path.glob("tried-*"))
    pauses = [later - earlier for earlier, later in pairwise(tried)]
    assert [pause >= least for pause, least in zip(pauses, (0.1, 0.2, 0.4), strict=True)] == [True] * 3


def test_a_shard_that_kills_its_worker_every_time_is_poisoned_too(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"1 of 12 shards.*ended with code -9"):
        write_parts(jobs.job(tmp_path, jobs.always_dies), jobs.rows(), str(tmp_path / "out"), RUNNERS["local-2"])
    assert len(list((tmp_path / "out").glob("*.parquet"))) == SHARDS - 1


def test_rows_that_are_at_fault_are_not_tried_again(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="user-3 has no name"):
        write_parts(jobs.job(tmp_path, jobs.bad_rows), jobs.rows(), str(tmp_path / "out"), RUNNERS["inline"])
    assert len(list(tmp_path.glob("refused-*"))) == 1


def test_what_no_worker_can_do_ends_the_job_with_its_own_words(tmp_path: Path) -> None:
    job = jobs.ShardJob("doubling", jobs.refuses, jobs.Settings(tmp_path), jobs.double, "a")
    for runner in ("inline", "local-2"):
        with pytest.raises(ConfigError, match="The model is of another kind"):
            write_parts(job, jobs.rows(), str(tmp_path / runner), RUNNERS[runner])


def test_a_killed_run_goes_on_and_its_workers_end_with_it(tmp_path: Path) -> None:
    right = write_parts(jobs.job(tmp_path), jobs.rows(), str(tmp_path / "right"), RUNNERS["inline"])
    out = tmp_path / "out"
    begun = multiprocessing.get_context("spawn").Process(target=long_run, args=(tmp_path, out))
    begun.start()
    until(lambda: len(list(out.glob("*.parquet"))) >= 3)
    workers = children(begun.pid or 0)
    assert len(workers) >= 2
    os.kill(begun.pid or 0, signal.SIGKILL)
    begun.join()
    until(lambda: not any(Path(f"/proc/{worker}").exists() for worker in workers))
    before = set(out.glob(f"*{storage.RECORD}"))  # a part without its record does not count
    assert len(before) < SHARDS
    for mark in tmp_path.glob("done-*"):
        mark.unlink()
    parts = write_parts(jobs.job(tmp_path), jobs.rows(), str(out), RUNNERS["local-2"])
    assert len(list(tmp_path.glob("done-*"))) == SHARDS - len(before)  # only what was missing
    assert whole(parts)
    assert parts.manifest.hash == right.manifest.hash
    assert {path.name for path in out.iterdir()} == {path.name for path in (tmp_path / "right").iterdir()}


def test_two_at_once_are_refused_and_a_killed_one_leaves_no_lock(tmp_path: Path) -> None:
    out = tmp_path / "out"
    begun = multiprocessing.get_context("spawn").Process(target=long_run, args=(tmp_path, out))
    begun.start()
    until(lambda: len(list(out.glob("*.parquet"))) >= 1)
    with pytest.raises(StorageError, match="Another run is at work"):
        write_parts(jobs.job(tmp_path), jobs.rows(), str(out), RUNNERS["inline"])
    os.kill(begun.pid or 0, signal.SIGKILL)
    begun.join()
    assert whole(write_parts(jobs.job(tmp_path), jobs.rows(), str(out), RUNNERS["inline"]))


def test_parts_of_another_job_are_not_taken_for_this_ones(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    first = write_parts(jobs.job(tmp_path), jobs.rows(), out, RUNNERS["inline"])
    again = write_parts(jobs.job(tmp_path, essence="b"), jobs.rows(), out, RUNNERS["inline"])
    fewer = write_parts(jobs.job(tmp_path, essence="b"), jobs.rows(30), out, RUNNERS["inline"])
    assert len({each.manifest.hash for each in (first, again, fewer)}) == 3
    assert sum(len(table) for table in fewer.tables()) == 90


@pytest.mark.parametrize("finished", [True, False])
@given(data=st.data())
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_part_that_lost_its_end_or_has_a_flipped_bit_is_made_again(
    tmp_path: Path, finished: bool, data: st.DataObject
) -> None:
    out = tmp_path / "out"
    first = write_parts(jobs.job(tmp_path), jobs.rows(), str(out), RUNNERS["inline"])
    part = out / "00003.parquet"
    whole_part = bytearray(part.read_bytes())
    if not finished:  # killed before the manifest
        for each in out.glob("*.parquet"):
            storage.commit(str(each), each.read_bytes())
        (out / "manifest.json").unlink()
    at = data.draw(st.integers(0, len(whole_part) - 1))
    bit = data.draw(st.none() | st.integers(0, 7))
    part.write_bytes(whole_part[:at] if bit is None else flipped(whole_part, at, bit))
    again = write_parts(jobs.job(tmp_path), jobs.rows(), str(out), RUNNERS["inline"])
    assert again.manifest.hash == first.manifest.hash
    assert part.read_bytes() == bytes(whole_part)
    assert {each.name for each in out.iterdir()} == {"plan.json", "manifest.json", *first.manifest.files}


def flipped(content: bytearray, at: int, bit: int) -> bytes:
    return bytes(content[:at]) + bytes([content[at] ^ (1 << bit)]) + bytes(content[at + 1 :])


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter.txt").write_text("dear")
    with pytest.raises(StorageError, match="does not hold parts of a job"):
        write_parts(jobs.job(tmp_path), jobs.rows(), str(tmp_path / "home"), RUNNERS["inline"])
    assert (tmp_path / "home" / "letter.txt").read_text() == "dear"


def test_parts_that_serve_another_output_are_gone_when_it_is_there(tmp_path: Path) -> None:
    with workplace(tmp_path / "out", RUNNERS["inline"]) as place:
        assert whole(make_parts(jobs.job(tmp_path), jobs.rows(), place, RUNNERS["inline"]))
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == []


@pytest.mark.parametrize("runner", ["inline", "local-2"])
def test_a_store_that_is_no_disk_holds_the_same(tmp_path: Path, runner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELF", str(tmp_path / "shelf"))
    right = write_parts(jobs.job(tmp_path), jobs.rows(), str(tmp_path / "right"), RUNNERS["inline"])
    there = write_parts(jobs.job(tmp_path, jobs.stumbles_once), jobs.rows(), "shelf://a/out", RUNNERS[runner])
    assert whole(there)
    assert there.manifest.hash == right.manifest.hash
    assert sorted(path.name for path in (tmp_path / "shelf/a/out").iterdir()) == storage.names("shelf://a/out")


def test_in_memory_too_and_a_second_holder_is_refused_there_until_the_first_is_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = write_parts(jobs.job(tmp_path), jobs.rows(), str(tmp_path / "right"), RUNNERS["inline"])
    folder = f"memory://{tmp_path.name}/out"
    held = {"token": "theirs", "host": "another", "at": time.time()}
    storage.put(f"{folder}/.lock", json.dumps(held).encode())
    with pytest.raises(StorageError, match="Another run, on another, holds"):
        write_parts(jobs.job(tmp_path), jobs.rows(), folder, RUNNERS["inline"])
    storage.put(f"{folder}/.lock", json.dumps(held | {"at": time.time() - 1_000}).encode())
    monkeypatch.setattr(lock, "SETTLING", 0.0)
    there = write_parts(jobs.job(tmp_path), jobs.rows(), folder, RUNNERS["inline"])
    assert there.manifest.hash == right.manifest.hash
    assert storage.get(f"{folder}/.lock") is None


def test_of_two_that_take_over_from_a_dead_one_the_last_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = f"memory://{tmp_path.name}/out/.lock"
    dead = {"token": "old", "host": "a dead one", "at": time.time() - 1_000}
    storage.put(file, json.dumps(dead).encode())
    theirs = json.dumps({"token": "theirs", "host": "another", "at": time.time()}).encode()
    monkeypatch.setattr(time, "sleep", lambda _: storage.put(file, theirs))  # they come while ours settles
    with pytest.raises(StorageError, match="Another run, on another, holds"), lock.locked(file.removesuffix("/.lock")):
        raise AssertionError("both hold it")
    assert storage.get(file) == theirs


def test_who_was_silent_for_too_long_does_not_take_back_what_another_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "RENEWAL", 0.02)
    folder = f"memory://{tmp_path.name}/out"
    theirs = json.dumps({"token": "theirs", "host": "another", "at": time.time()}).encode()
    with lock.locked(folder):
        first = storage.get(f"{folder}/.lock")
        until(lambda: storage.get(f"{folder}/.lock") != first)  # it gives signs of life
        until(lambda: storage.put(f"{folder}/.lock", theirs) or steady(f"{folder}/.lock", theirs))
    assert storage.get(f"{folder}/.lock") == theirs


def steady(address: str, content: bytes) -> bool:
    """Whether several renewals later it is still that."""
    time.sleep(0.2)
    return storage.get(address) == content


def test_an_address_that_nobody_understands_is_told(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="no address of a file system"):
        write_parts(jobs.job(tmp_path), jobs.rows(), "nowhere://a/b", RUNNERS["inline"])


def test_more_threads_than_cores_are_refused_before_anybody_waits(tmp_path: Path) -> None:
    asked = EngineConfig(runner="local", workers=4096, threads=2)
    with pytest.raises(ConfigError, match=r"4096 workers of 2 threads.*Set engine.threads=1"):
        write_parts(jobs.job(tmp_path), jobs.rows(), str(tmp_path / "out"), asked)


def test_each_of_two_workers_sees_a_gpu_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4, 7")
    asked = replace(jobs.job(tmp_path, jobs.gpu), device="cuda")
    parts = write_parts(asked, jobs.rows(), str(tmp_path / "out"), RUNNERS["local-2"])
    assert set(pl.concat(parts.tables())["gpu"]) == {"4", "7"}
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "4, 7"


def test_the_place_of_a_lost_worker_is_taken_on_its_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    pool = LocalPool(replace(jobs.job(tmp_path), device="cuda"), RUNNERS["local-2"])
    try:
        (first, _), (second, _) = pool.start(), pool.start()
        before = dict(pool.gpu_of)
        assert "ended with code -9" in pool.end(first)
        third, _ = pool.start()
        assert {pool.gpu_of[second], pool.gpu_of[third]} == {before[first], before[second]} == {"0", "1"}
    finally:
        pool.close()


def test_a_cluster_that_does_not_answer_is_told(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'merit-interests[ray]'")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        asked = EngineConfig(runner="ray", address=f"127.0.0.1:{free.getsockname()[1]}")
        with pytest.raises(ConfigError, match=r"No Ray cluster answers at 127.0.0.1:\d+.*ray start --head"):
            write_parts(jobs.job(tmp_path), jobs.rows(), str(tmp_path / "out"), asked)


def long_run(marks: Path, out: Path) -> None:
    write_parts(jobs.job(marks, jobs.slow), jobs.rows(), str(out), RUNNERS["local-2"])


def children(pid: int) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return [int(each) for each in found.stdout.split()]


def until(holds: Any, seconds: float = 60) -> None:
    stop = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < stop
        time.sleep(0.02)
