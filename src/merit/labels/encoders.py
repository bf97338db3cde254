"""Texts → unit vectors: a sentence-transformer, a hashed twin that needs no torch, and a cache on disk for either.

torch is imported only when a sentence-transformer first encodes, so the rest of the package stays light.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from hashlib import blake2b, sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save

from merit.core import extras, files, weights
from merit.core.artifacts import hash_file
from merit.core.console import tell, track, warn
from merit.core.errors import ConfigError, MissingArtifact
from merit.core.seeds import mix
from merit.core.types import Floats, Ints, LabelEncoder
from merit.labels.minilm import NumpyMiniLM

Hashes = NDArray[np.uint64]
Keys = NDArray[np.uint64]  # (n, 2): the first and the last 64 bits of a hash


def make(name: str) -> LabelEncoder:
    """The encoder of that name, or the sentence-transformer in that folder."""
    if name in ENCODERS:
        return ENCODERS[name]()
    if Path(name).is_dir():
        return SentenceEncoder(Path(name))
    near = difflib.get_close_matches(name, ENCODERS, n=1, cutoff=0.5)
    hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(ENCODERS)}, or the folder of a model."
    raise ConfigError(f"'{name}' is neither a label encoder nor a folder; {hint}")


def make_light(name: str) -> LabelEncoder:
    """The same, in numpy where there is such a twin: whoever reads a few phrases need not load torch."""
    return make(LIGHT.get(name, name))


class SentenceEncoder:
    """A sentence-transformer read from a local folder. Nothing is ever downloaded, and nothing unpickled."""

    # Labels a second on one core, Shopify taxonomy: 16 a batch 213, 64 236, 128 222, 512 146. Batches of like token
    # count matter as much: sentence-transformers' own order, by characters, gives 183.
    batch = 64
    long = 2_000  # texts from which a person wants to see progress

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def fingerprint(self) -> str:
        """Of everything in the folder that can change a vector: weights, tokenizer and settings."""
        paths = sorted(
            path for path in self.folder.rglob("*") if path.suffix in {".safetensors", ".json", ".txt", ".model"}
        )
        if not any(path.suffix == ".safetensors" for path in paths):
            raise MissingArtifact(
                f"{self.folder} holds no .safetensors weights. Name the folder of a sentence-transformer."
            )
        lines = [f"{path.relative_to(self.folder).as_posix()} {hash_file(path)}" for path in paths]
        return f"sentence:{sha256(chr(10).join(lines).encode()).hexdigest()[:32]}"

    @cached_property
    def dimension(self) -> int:
        """Numbers of a vector. To ask for it loads the model."""
        return int(self._model.get_embedding_dimension())

    def encode(self, texts: Sequence[str]) -> Floats:
        """(texts, dimension), rows of length one. Batches are of like length, whatever the order of the texts."""
        keys = self.same(texts)
        text_of = dict(zip(keys, texts, strict=True))  # texts the model cannot tell apart are encoded once
        by_length = sorted(text_of, key=lambda key: (key.count(" "), key))
        vectors = np.empty((len(by_length), self.dimension), np.float32)
        starts: Iterable[int] = range(0, len(by_length), self.batch)
        if len(by_length) >= self.long:
            starts = track(starts, "Encoding labels", total=-(-len(by_length) // self.batch))
        for start in starts:
            part = [text_of[key] for key in by_length[start : start + self.batch]]
            vectors[start : start + len(part)] = self._model.encode(
                part, batch_size=self.batch, show_progress_bar=False, normalize_embeddings=True
            )
        row = {key: at for at, key in enumerate(by_length)}
        return vectors[[row[key] for key in keys]]

    def same(self, texts: Sequence[str]) -> list[str]:
        """The token ids as text: an uncased model reads "Café" and "cafe" as one label."""
        if not texts:
            return []
        ids = self._model.tokenizer(
            list(texts),
            truncation=True,
            max_length=self._model.max_seq_length,
            return_attention_mask=False,
            return_token_type_ids=False,
        )["input_ids"]
        return [" ".join(map(str, row)) for row in ids]

    @cached_property
    def _model(self) -> Any:
        with extras.needed_by("A label encoder made of torch (labels.encoder 'minilm-numpy' and 'hashed' are not)"):
            from sentence_transformers import SentenceTransformer
        # use_safetensors refuses pickled weights; float32 because bf16 crawls on most CPUs.
        settings = {"use_safetensors": True, "dtype": "float32"}
        with weights.without_bars():
            return SentenceTransformer(str(self.folder), local_files_only=True, model_kwargs=settings).eval()


class HashedNgrams:
    """Character n-grams and words, hashed into signed buckets. For tests, and for machines without torch."""

    sizes = (3, 4)
    rows = 8_192  # texts at a time: bounds the n-gram arrays to some tens of MB

    def __init__(self, dimension: int = 256) -> None:
        self.dimension = dimension

    @property
    def fingerprint(self) -> str:
        """The version of the hashing, and the dimension: there are no weights that could differ."""
        return f"hashed:1:{self.dimension}"

    def same(self, texts: Sequence[str]) -> list[str]:
        """In small letters, with single spaces: nothing else of a text is hashed."""
        return [" ".join(text.casefold().split()) for text in texts]

    def encode(self, texts: Sequence[str]) -> Floats:
        """(texts, dimension), rows of length one, that of an empty text too."""
        keys = self.same(texts)
        parts = [self._encode(keys[at : at + self.rows]) for at in range(0, len(keys), self.rows)]
        return np.concatenate(parts) if parts else np.empty((0, self.dimension), np.float32)

    def _encode(self, texts: list[str]) -> Floats:
        """(rows, dimension). Features of a row are summed by one bincount over row × bucket."""
        owner, hashes = _features(texts, self.sizes)
        bucket = (hashes >> np.uint64(1)) % np.uint64(self.dimension)
        sign = np.where(hashes & np.uint64(1), 1.0, -1.0)
        cell = owner * self.dimension + bucket.astype(np.int64)
        sums = np.bincount(cell, weights=sign, minlength=len(texts) * self.dimension).reshape(len(texts), -1)
        norm = np.linalg.norm(sums, axis=1)
        sums[norm == 0, 0] = 1.0  # an empty text still needs a direction
        norm[norm == 0] = 1.0
        return np.asarray(sums / norm[:, None], np.float32)


def _features(texts: list[str], sizes: Sequence[int]) -> tuple[Ints, Hashes]:
    """The owner (row) and the hash of every n-gram and every word of the texts, without a loop over rows."""
    wrapped = [f" {text} " for text in texts]
    code = np.frombuffer("".join(wrapped).encode("utf-32-le", "surrogatepass"), "<u4").astype(np.uint64)
    owner = np.repeat(np.arange(len(texts)), np.fromiter(map(len, wrapped), np.int64, len(texts)))
    parts = [*(_grams(code, owner, size) for size in sizes), _words(code, owner)]
    return np.concatenate([owners for owners, _ in parts]), np.concatenate([hashes for _, hashes in parts])


def _grams(code: Hashes, owner: Ints, size: int) -> tuple[Ints, Hashes]:
    count = max(len(code) - size + 1, 0)
    hashes = np.zeros(count, np.uint64)
    for place in range(size):
        hashes = mix(hashes ^ code[place : place + count], np.full(1, 16 * size + place, np.uint64))
    inside = owner[:count] == owner[size - 1 : size - 1 + count]  # a gram must not run into the next text
    return owner[:count][inside], hashes[inside]


def _words(code: Hashes, owner: Ints) -> tuple[Ints, Hashes]:
    """A word's hash is the sum of its letters' hashes, each mixed with its place in the word."""
    starts = np.flatnonzero((code[:-1] == 32) & (code[1:] != 32)) + 1
    if not len(starts):
        return owner[:0], code[:0]
    latest = np.zeros(len(code), np.int64)
    latest[starts] = starts
    place = (np.arange(len(code)) - np.maximum.accumulate(latest)).astype(np.uint64)
    letters = np.where(code == 32, np.uint64(0), mix(code, place))
    return owner[starts], mix(np.add.reduceat(letters, starts), np.zeros(1, np.uint64))


class Cached:
    """Remembers vectors on disk by content, so that adding labels encodes only what is new.

    Each chunk of new texts becomes one immutable segment file, named by its own sha256: a killed run keeps every
    chunk it finished, writers never disturb each other, and a damaged segment is known by its name.
    """

    chunk = 20_000  # a minute of encoding on a laptop: the most a killed run can lose

    def __init__(self, encoder: LabelEncoder, folder: Path) -> None:
        self.encoder = encoder
        self.folder = folder / blake2b(encoder.fingerprint.encode(), digest_size=8).hexdigest()
        self.misses = 0

    @property
    def fingerprint(self) -> str:
        """The encoder's own: a remembered vector is the one it would give."""
        return self.encoder.fingerprint

    @property
    def dimension(self) -> int:
        """The encoder's own, which may have to load its model to tell."""
        return self.encoder.dimension

    def same(self, texts: Sequence[str]) -> list[str]:
        """The encoder's own; only vectors are remembered."""
        return self.encoder.same(texts)

    def encode(self, texts: Sequence[str]) -> Floats:
        """(texts, dimension). The encoder is given only texts that no segment holds, each once."""
        row = {text: at for at, text in enumerate(dict.fromkeys(texts))}
        distinct = list(row)
        keys = _keys(distinct, self.fingerprint)
        vectors, cached = self._recall(keys)
        missing = np.flatnonzero(~cached)
        self.misses += len(missing)
        for start in range(0, len(missing), self.chunk):
            part = missing[start : start + self.chunk]
            vectors[part] = self.encoder.encode([distinct[at] for at in part])
            segment = save({"keys": keys[part], "vectors": vectors[part]})
            files.write(self.folder / f"{sha256(segment).hexdigest()}.safetensors", segment, 0o644)
            if len(missing) > self.chunk:
                tell(f"Encoded {start + len(part):,} of {len(missing):,} new label texts.")
        return vectors if len(distinct) == len(texts) else vectors[[row[text] for text in texts]]

    def _recall(self, keys: Keys) -> tuple[Floats, NDArray[np.bool_]]:
        """The vectors that any segment holds, whoever wrote it, and which rows those are."""
        vectors = np.zeros((len(keys), self.dimension), np.float32)
        cached = np.zeros(len(keys), bool)
        for path in sorted(self.folder.glob("*.safetensors")):
            segment = path.read_bytes()
            if sha256(segment).hexdigest() != path.stem:
                warn(f"{path} is damaged; its labels will be encoded again. Delete it to lose this warning.")
                continue
            tensors = load(segment)
            # The first 64 bits alone are enough: two texts sharing them would at worst be encoded again.
            _, wanted, at = np.intersect1d(keys[:, 0], tensors["keys"][:, 0], return_indices=True)
            match = (tensors["keys"][at] == keys[wanted]).all(axis=1)
            vectors[wanted[match]] = tensors["vectors"][at[match]]
            cached[wanted[match]] = True
        return vectors, cached


def _keys(texts: Sequence[str], fingerprint: str) -> Keys:
    salt = blake2b(fingerprint.encode(), digest_size=16).digest()
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    joined = b"".join(blake2b(text, digest_size=16, key=salt).digest() for text in encoded)
    return np.frombuffer(joined, "<u8").astype(np.uint64).reshape(-1, 2)


LIGHT = {"minilm": "minilm-numpy"}  # the vectors are the same to six digits
ENCODERS: dict[str, Callable[[], LabelEncoder]] = {
    "minilm": lambda: SentenceEncoder(weights.folder("minilm")),
    "minilm-numpy": lambda: NumpyMiniLM(weights.folder("minilm")),
    "hashed": HashedNgrams,
}
