"""Randomness is named. A stream depends on the seed and on its names, never on what was drawn elsewhere before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]
USER_SALT = "merit.user"  # fixed: shards must agree between runs, configurations and machines


def stream(seed: int, *names: str | int) -> np.random.Generator:
    """The random stream of that name, whatever was drawn elsewhere before.

    >>> int(stream(7, "mine", "user-12").integers(100))
    16
    >>> _ = stream(7, "mine", "user-11").integers(100)
    >>> int(stream(7, "mine", "user-12").integers(100))
    16
    """
    digest = blake2b("\x1f".join(map(str, (seed, *names))).encode(), digest_size=16).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest, "little")))


def stable_hash(texts: Sequence[str], salt: str) -> Hashes:
    """A 64-bit hash per text that any other program can compute: blake2b(text, key=salt), little-endian.

    The same on every machine, version and process, so that a user stays in one split, shard and arm for ever.

    >>> stable_hash(["u42"], "merit.user").tolist()
    [384438023512746998]
    """
    key = blake2b(salt.encode(), digest_size=16).digest()
    joined = b"".join([blake2b(text.encode(), digest_size=8, key=key).digest() for text in texts])
    return np.frombuffer(joined, dtype="<u8").astype(np.uint64)


def mix(hashes: Hashes, counter: NDArray[np.uint64]) -> Hashes:
    """A new hash per (hash, counter) pair, vectorised (the splitmix64 finaliser)."""
    with np.errstate(over="ignore"):
        z = hashes + (counter + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed: Hashes = z ^ (z >> np.uint64(31))
    return mixed


def unit_interval(hashes: Hashes) -> NDArray[np.float64]:
    """Hashes as numbers in [0, 1), with 53 bits each."""
    return (hashes >> np.uint64(11)).astype(np.float64) * 2.0**-53


def derive(hashes: Hashes, seed: int, *names: str | int) -> Hashes:
    """The hashes under another name: independent of every other name, and of who else is in the array."""
    digest = blake2b("\x1f".join(map(str, (seed, *names))).encode(), digest_size=8).digest()
    return mix(hashes, np.full_like(hashes, int.from_bytes(digest, "little")))


@contextmanager
def torch_stream(seed: int, name: str) -> Iterator[None]:
    """Torch draws from the stream of that name; its global generator is left as it was."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(stream(seed, name).integers(2**63)))
        yield
