from __future__ import annotations

import subprocess
import sys
from hashlib import blake2b

import numpy as np

from merit.core.seeds import derive, mix, stable_hash, stream, unit_interval


def test_a_stream_depends_on_its_name_alone() -> None:
    first = stream(7, "mine", "user-12").random(3)
    stream(7, "mine", "user-13").random(1000)
    assert np.array_equal(first, stream(7, "mine", "user-12").random(3))


def test_names_do_not_run_together() -> None:
    draws = {stream(*name).random() for name in [(7, "ab", "c"), (7, "a", "bc"), (7, "abc"), (71, "bc")]}
    assert len(draws) == 4


def test_hash_is_the_documented_one() -> None:
    key = blake2b(b"salt", digest_size=16).digest()
    expected = int.from_bytes(blake2b("user é".encode(), digest_size=8, key=key).digest(), "little")
    assert int(stable_hash(["user é"], "salt")[0]) == expected


def test_hash_is_the_same_in_another_process() -> None:
    code = "from merit.core.seeds import stable_hash; print(int(stable_hash(['a'], 's')[0]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"{int(stable_hash(['a'], 's')[0])}\n"


def test_derived_hashes_are_uniform_and_unrelated() -> None:
    hashes = stable_hash([str(n) for n in range(20_000)], "s")
    split, shard = (unit_interval(derive(hashes, 7, name)) for name in ("split", "shard"))
    assert abs(split.mean() - 0.5) < 0.01
    assert abs(np.corrcoef(split, shard)[0, 1]) < 0.03
    assert (split < 1).all()


def test_mix_is_splitmix64() -> None:
    # The first output of the reference generator seeded with 0.
    assert int(mix(np.zeros(1, np.uint64), np.zeros(1, np.uint64))[0]) == 0xE220A8397B1DCDAF


def test_empty_is_fine() -> None:
    assert len(stable_hash([], "s")) == 0
