"""Bits that flip and ends that get lost: is it found out, and is it mended by running the same command again?"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.faults_run import Place, Right, finished, hashes
from merit.core import artifacts
from merit.core.artifacts import MANIFEST
from merit.core.errors import MeritError
from merit.engine import storage


def corruption(out: Path, stages: Sequence[str], flips: int, rng: np.random.Generator) -> dict[str, list[int]]:
    """By kind of file: bits flipped, of which found out; files cut off, of which found out."""
    made_of = [
        (stage, out / stage / name)
        for stage in stages
        for name in (*artifacts.load(out / stage).manifest.files, MANIFEST)
    ]
    table: dict[str, list[int]] = {}
    for stage, file in made_of:
        found = table.setdefault(_kind(file), [0, 0, 0, 0])
        whole = file.read_bytes()
        for number in range(max(2, flips // len(made_of))):
            cut = number == 0
            file.write_bytes(damaged(whole, cut, rng))
            found[2 if cut else 0] += 1
            found[3 if cut else 1] += _refused(out / stage)
        file.write_bytes(whole)
    return table


def _kind(file: Path) -> str:
    if file.name == MANIFEST:
        return "manifests"
    return {".parquet": "tables", ".safetensors": "weights", ".npy": "arrays", ".json": "json"}.get(
        file.suffix, "others"
    )


def parts_corruption(place: Path, content: bytes, flips: int, rng: np.random.Generator) -> list[int]:
    """The same of a part, with its record, of a job that is not finished."""
    place.mkdir()
    names, found = ("00000.parquet", f"00000.parquet{storage.RECORD}"), [0, 0, 0, 0]
    for number in range(flips):
        storage.commit(str(place / names[0]), content)
        file, cut = place / names[number % 8 == 0], number % 5 == 0
        file.write_bytes(damaged(file.read_bytes(), cut, rng))
        found[2 if cut else 0] += 1
        found[3 if cut else 1] += not storage.committed(str(place), names[:1])
    return found


def mended(place: Place, right: Right, times: int, rng: np.random.Generator) -> int:
    """A bit of a finished run is flipped and the same command run again: how often all is as it was."""
    good = 0
    for _ in range(times):
        out = place.folder / "mended"
        shutil.copytree(place.folder / "right", out)
        stage = str(rng.choice(place.stages))
        file = out / stage / str(rng.choice([MANIFEST, *artifacts.load(out / stage).manifest.files]))
        file.write_bytes(damaged(file.read_bytes(), False, rng))
        if stage == "audience":
            shutil.rmtree(out / "audience")  # it is built where there is none
        good += finished(place, out) == 0 and hashes(place, out) == right.hashes
        shutil.rmtree(out)
    return good


def damaged(whole: bytes, cut: bool, rng: np.random.Generator) -> bytes:
    at = int(rng.integers(len(whole)))
    if cut:
        return whole[:at]
    return whole[:at] + bytes([whole[at] ^ (1 << int(rng.integers(8)))]) + whole[at + 1 :]


def _refused(folder: Path) -> bool:
    try:
        artifacts.load(folder)
    except MeritError:
        return True
    return False
