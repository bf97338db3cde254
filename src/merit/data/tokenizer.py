"""Words for the generator: a small vocabulary in which the shop's own phrases are single tokens.

A frequent label costs one token wherever it stands, in a title too, so that a year of history is short; everything
else falls apart into pieces of bytes, so that no text is ever unknown. A pretrained backbone keeps the words it was
trained with.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count, takewhile
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from merit.core.errors import ConfigError, MissingArtifact
from merit.data.prompt import Controls

SPECIALS = ("<pad>", "<profile>", "<recent>", "<next>", "<answer>", "<sep>", "<end>")
CLUSTER = "<cluster-{}>"


@dataclass(frozen=True)
class Vocabulary:
    """A tokenizer and the ids that only we may write."""

    tokenizer: Tokenizer
    controls: Controls
    pad: int
    sep: int
    end: int
    clusters: tuple[int, ...] = ()
    """The token of each cluster, where label paths begin with one."""

    def __len__(self) -> int:
        return int(self.tokenizer.get_vocab_size())

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text. A control token spelt out in a text is ordinary characters."""
        return [encoding.ids for encoding in self.tokenizer.encode_batch(list(texts), add_special_tokens=False)]

    def special_ids(self) -> set[int]:
        """All that are ours. No label may contain one, and training changes their rows in any case."""
        return {self.pad, self.sep, self.end, *self.controls, *self.clusters}


def train(texts: Iterable[str], whole: Sequence[str], size: int) -> Vocabulary:
    """Learn byte pieces from texts; `whole` phrases become single tokens. `size` counts all of it."""
    pieces = size - len(SPECIALS) - len(whole)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    if pieces < len(alphabet):
        raise ConfigError(
            f"A vocabulary of {size} has no room: {len(SPECIALS)} special tokens, {len(alphabet)} bytes and "
            f"{len(whole)} whole labels are {len(SPECIALS) + len(alphabet) + len(whole)}. Raise backbone.vocabulary or "
            "lower backbone.whole_labels."
        )
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=len(SPECIALS) + pieces, special_tokens=list(SPECIALS), initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens([AddedToken(text.lower(), single_word=True, lstrip=True, normalized=True) for text in whole])
    return of(tokenizer)


def of(tokenizer: Tokenizer, clusters: int = 0) -> Vocabulary:
    """Any tokenizer with our special tokens and those of so many clusters, added where they are missing."""
    names = (*SPECIALS, *map(CLUSTER.format, range(clusters)))
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in names])
    tokenizer.encode_special_tokens = True  # what looks like one in a text is text
    tokenizer.no_truncation()
    tokenizer.no_padding()
    pad, profile, recent, following, answer, sep, end = (int(tokenizer.token_to_id(name) or 0) for name in SPECIALS)
    added = tokenizer.get_added_tokens_decoder().items()
    special = {token.content: number for number, token in added if token.special}  # a label may have any name
    clusters_there = takewhile(lambda name: name in special, map(CLUSTER.format, count()))
    numbers = tuple(special[name] for name in clusters_there)
    return Vocabulary(tokenizer, Controls(profile, recent, following, answer), pad, sep, end, numbers)


def pretrained(folder: Path) -> Vocabulary:
    """The tokenizer of a pretrained backbone, with our special tokens.

    Labels follow each other without a space between them, so every text is made to begin with one where the tokenizer
    does not see to that itself: the backbone has met most words behind a space.
    """
    tokenizer = _read(folder / "tokenizer.json")
    ids = tokenizer.encode("a a", add_special_tokens=False).ids
    if ids[: len(ids) // 2] != ids[len(ids) // 2 :]:  # a word is not the same at the beginning as behind a space
        space = normalizers.Prepend(" ")
        had = tokenizer.normalizer
        tokenizer.normalizer = normalizers.Sequence([space, had]) if had else space
    return of(tokenizer)


def load(file: Path) -> Vocabulary:
    """The vocabulary in a tokenizer.json, such as a generator's own; a file that is none is refused."""
    return of(_read(file))


def _read(file: Path) -> Tokenizer:
    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises plain Exception for a missing and for a broken file alike
        raise MissingArtifact(f"{file} is not a tokenizer: {error}.") from None
