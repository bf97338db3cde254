"""A refreshed model is served without a reload, a request that waits, or one that fails."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import polars as pl

from merit.core import artifacts
from merit.refresh.refresh import refresh
from merit.service.store import Store
from tests.refresh import worlds

PATIENCE = 60.0


def test_a_refreshed_model_is_swapped_in(quick: Path, tmp_path: Path) -> None:
    run, (log, items) = worlds.copy(quick, tmp_path), worlds.tables(quick)
    store = Store(run, None, verify=False, seconds_to_explain=1.0)
    before, stop = store.current, threading.Event()
    users, faults, answers = before.model.users["user_id"][:4], list[BaseException](), list[str]()

    def ask() -> None:
        while not stop.is_set():
            try:
                served = store.current
                assert served.model.interests(users, 3).height == 12
                answers.append(served.version)
            except BaseException as fault:
                faults.append(fault)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    refresh(run, source=worlds.given(tmp_path, pl.concat([log, worlds.week(log)]), items))
    end = time.monotonic() + PATIENCE
    while store.current.version == before.version and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(0.1)
    stop.set()
    for thread in threads:
        thread.join()
    assert not faults
    assert list(dict.fromkeys(answers)) == [before.version, store.current.version]
    assert store.current.model.hashes[0] == artifacts.load(run / "model").manifest.hash
    store.current.explainer.close()
