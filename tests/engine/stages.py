"""The three jobs that everything later is made of, on a small trained run: their hashes. And examples of any shop."""

from __future__ import annotations

from pathlib import Path

from merit.core import artifacts, config
from merit.core.artifacts import Artifact
from merit.data.prepare import PrepareRun, prepare
from merit.engine.job import EngineConfig
from merit.engine.run import INLINE
from merit.generator.mining import MiningConfig, mine
from merit.generator.worker import DecodeJob
from merit.propensity.states import StatesConfig, write_states
from merit.retrieval.bulk import write_all_interests

SHARDS = 8
ALL = ("mined", "states", "scores")


def hashes(run: Path, out: Path, engine: EngineConfig, what: tuple[str, ...] = ALL) -> dict[str, str]:
    """Mined labels, states, and the scores of everyone."""
    inputs = [artifacts.load(run / name, verify=False) for name in ("stage-2", "corpus", "labels")]
    if "mined" in what:
        mine(DecodeJob(*inputs, MiningConfig(samples=2), 7), out / "mined", engine)  # type: ignore[arg-type]
    if "states" in what:
        write_states(DecodeJob(*inputs, StatesConfig(labels=3), 7), out / "states", engine)  # type: ignore[arg-type]
    if "scores" in what:
        write_all_interests(run, str(out / "scores"), k=5, engine=engine)
    assert sorted(path.name for path in out.iterdir()) == sorted(what)  # no part is left over
    return {name: artifacts.load(out / name).manifest.hash for name in what}


def prepared(shop: Path, out: Path, engine: EngineConfig = INLINE) -> Artifact:
    """Examples of the tables in a folder, which may have a few users only."""
    tables = {name: str(shop / f"{name}.parquet") for name in ("interactions", "items")}
    split = {"validation": 0.0, "test": 0.4}
    values = {"source": {"kind": "tables", **tables}, "prepare": {"shards": SHARDS, "split": split}}
    return prepare(out, config.build(PrepareRun, values), 7, engine)
