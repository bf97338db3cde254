"""Constrained decoding over 291,000 labels, against `generate(prefix_allowed_tokens_fn=…)` of transformers.

    python -m benchmarks.decode --data LABELS            # about 5 minutes
    python -m benchmarks.decode --data LABELS --quick    # 50,000 labels, fewer prompts

LABELS is a Parquet file, or a folder of them, with a text column `label`. Without it, label texts are made up. Both
sides decode the same prompts with the same model (`tiny`, random weights), greedily, ten labels each and none twice,
in one batch and on one thread: two threads on a machine that does other things as well mostly wait for each other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

from benchmarks import harness
from merit.core.errors import DataError
from merit.core.seeds import stable_hash, stream
from merit.data import tokenizer
from merit.generator import backbone, constraint, decoding
from merit.labels.token_paths import Paths, Trie, linearise

LABELS, QUICK_LABELS, BUDGET = 291_000, 50_000, 10
VOCABULARY, TRAINED_ON = 8192, 50_000
Prompts = list[NDArray[np.int32]]
Node = dict[int, Any]  # token → node; -1 → label


class World(NamedTuple):
    model: Any
    paths: Paths
    trie: Trie
    sep: int
    end: int
    seed: int


def read_texts(data: Path | None, count: int) -> list[str]:
    """The `count` labels that come first by a stable hash: always the same, and of every kind."""
    texts = _column(data) if data else _made_up(2 * count)
    order = np.argsort(stable_hash(texts, "benchmarks.decode"), kind="stable")[:count]
    return [texts[at] for at in order]


def _column(data: Path) -> list[str]:
    try:
        found = pl.read_parquet(data / "*.parquet" if data.is_dir() else data, columns=["label"])
    except (OSError, pl.exceptions.PolarsError) as error:
        raise DataError(f"{data} gives no labels ({error}). Pass a Parquet file with a text column `label`.") from None
    return found["label"].drop_nulls().unique().sort().to_list()


def _made_up(count: int) -> list[str]:
    """`Category - Attribute: Value`, each of one to three words of two to four syllables."""
    rng = stream(0, "benchmarks.decode", "texts")
    parts = ["ba", "co", "den", "fil", "gar", "hol", "ker", "lin", "mos", "nat", "pra", "rin", "sul", "ter", "vel"]
    words = ["".join(rng.choice(parts, rng.integers(2, 5))) for _ in range(3_000)]
    names = [" ".join(rng.choice(words, rng.integers(1, 4))).title() for _ in range(12_000)]
    places = rng.random((2 * count, 3)) ** 1.5 * (len(names), 500, 4_000)
    made = [f"{names[a]} - {names[b]}: {names[c]}" for a, b, c in places.astype(int).tolist()]
    return list(dict.fromkeys(made))[:count]


def build(texts: list[str], seed: int) -> World:
    vocabulary = tokenizer.train(texts[:TRAINED_ON], [], VOCABULARY)
    paths = linearise(
        texts, vocabulary.encode, form="none", vocabulary=len(vocabulary), forbidden=vocabulary.special_ids()
    )
    model = backbone.make(backbone.BackboneConfig(vocabulary=VOCABULARY), vocabulary, seed).eval()
    return World(model, paths, paths.trie(), vocabulary.sep, vocabulary.end, seed)


def make_prompts(world: World, count: int, length: int) -> Prompts:
    rng = stream(world.seed, "prompts", length)
    sizes = rng.integers(int(0.9 * length), int(1.1 * length), count)
    special = len(tokenizer.SPECIALS)
    return [rng.integers(special, world.model.config.vocab_size, size).astype(np.int32) for size in sizes]


def ours(world: World, prompts: Prompts, **settings: Any) -> decoding.Decoded:
    config = decoding.DecodeConfig(max_labels=BUDGET, fixed_budget=True, batch_size=len(prompts), **settings)
    return decoding.decode(world.model, prompts, world.trie, world.sep, world.end, config, world.seed)


def nested(world: World) -> Node:
    """The trie as transformers' users write it."""
    root: Node = {}
    for label in world.paths.kept.tolist():
        node = root
        for token in world.paths.path(label):
            node = node.setdefault(token, {})
        node[-1] = label
    return root


def transformers(world: World, root: Node, prompts: Prompts) -> list[list[int]]:
    """The labels of each prompt by `generate`, under the same constraint."""
    width = max(map(len, prompts))
    tokens = torch.zeros(len(prompts), width, dtype=torch.long)
    mask = torch.zeros_like(tokens)
    for row, prompt in enumerate(prompts):
        tokens[row, width - len(prompt) :] = torch.from_numpy(prompt)
        mask[row, width - len(prompt) :] = 1
    allowed = partial(_allowed, world, root, {}, width)
    found = world.model.generate(
        tokens,
        attention_mask=mask,
        prefix_allowed_tokens_fn=allowed,
        do_sample=False,
        max_new_tokens=BUDGET * (max(np.diff(world.paths.offsets)) + 1),
        eos_token_id=world.end,
        pad_token_id=world.end,
    )
    return [
        [_follow(root, label)[-1] for label in _split(row, world.sep)[:BUDGET]] for row in found[:, width:].tolist()
    ]


def _allowed(world: World, root: Node, sizes: dict[int, int], width: int, _: int, sentence: torch.Tensor) -> list[int]:
    *labels, begun = _split(sentence[width:].tolist(), world.sep)
    if len(labels) == BUDGET:
        return [world.end]
    node, depth = _follow(root, begun), len(begun)
    same = [label for label in labels if label[:depth] == begun]
    behind = [label[depth] for label in same if len(label) > depth]
    closed = {token for token in behind if behind.count(token) == _size(node[token], sizes)}
    tokens = [token for token in node if token >= 0 and token not in closed]
    return tokens + ([world.sep] if -1 in node and begun not in same else [])


def _split(tokens: list[int], sep: int) -> list[list[int]]:
    labels: list[list[int]] = [[]]
    for token in tokens:
        if token == sep:
            labels.append([])
        else:
            labels[-1].append(token)
    return labels


def _follow(root: Node, tokens: list[int]) -> Node:
    for token in tokens:
        root = root[token]
    return root


def _size(node: Node, sizes: dict[int, int]) -> int:
    """Labels at or below a node, counted once."""
    if id(node) not in sizes:
        sizes[id(node)] = sum(1 if token < 0 else _size(child, sizes) for token, child in node.items())
    return sizes[id(node)]


class Race(NamedTuple):
    speedup: float
    rate: float  # users per second, ours
    other_rate: float
    same: bool


def race(world: World, root: Node, prompts: Prompts, rounds: int) -> Race:
    """Both in turns on all prompts at once, after a few to warm up: a whole turn of transformers takes long."""
    ours(world, prompts[:4]), transformers(world, root, prompts[:4])
    turns = [
        (harness.timed(lambda: ours(world, prompts)), harness.timed(lambda: transformers(world, root, prompts)))
        for _ in range(rounds)
    ]
    seconds, other = (float(np.median([taken for _, taken in side])) for side in zip(*turns, strict=True))
    (mine, _), (theirs, _) = turns[0]
    same = [samples[0] for samples in mine.lists()] == theirs
    speedup = float(np.median([other / own for (_, own), (_, other) in turns]))
    return Race(speedup, len(prompts) / seconds, len(prompts) / other, same)


@contextmanager
def clocks(*places: tuple[Any, str]) -> Iterator[dict[str, float]]:
    """Seconds spent in functions of modules or methods of classes, by name."""
    spent = {name: 0.0 for _, name in places}
    kept = [(owner, name, getattr(owner, name)) for owner, name in places]

    def clocked(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            begin = time.perf_counter()
            done = function(*arguments, **named)
            spent[name] += time.perf_counter() - begin
            return done

        return run

    try:
        for owner, name, function in kept:
            setattr(owner, name, clocked(name, function))
        yield spent
    finally:
        for owner, name, function in kept:
            setattr(owner, name, function)


def trie_share(world: World, prompts: Prompts) -> float:
    """Of the time between prefill and the last label: what is allowed, masks, moves; not the head's products."""
    trie_work = [(decoding, name) for name in ("root_choices", "inner_choices", "move", "settle")]
    head_work = [(constraint, name) for name in ("root_logits", "inner_logits")]
    before = [(decoding, "prefill"), (decoding, "constrain")]
    with clocks(*trie_work, *head_work, *before) as spent:
        _, whole = harness.timed(lambda: ours(world, prompts))
    steps = whole - sum(spent[name] for _, name in before)
    return (sum(spent[name] for _, name in trie_work) - sum(spent[name] for _, name in head_work)) / steps


def main() -> None:
    arguments = harness.parser(__doc__).parse_args()
    torch.set_num_threads(1)
    quick = arguments.quick
    world = build(read_texts(arguments.data, QUICK_LABELS if quick else LABELS), arguments.seed)
    root, rounds = nested(world), 1 if quick else 3
    short, long = make_prompts(world, 192 if quick else 256, 128), make_prompts(world, 24 if quick else 128, 500)
    main_race = race(world, root, short, rounds)
    others = (
        {} if quick else {"500_tokens": race(world, root, long, rounds), "batch_64": race(world, root, short[:64], 3)}
    )
    sample = partial(ours, world, long, mode="sample")
    samples = harness.alternate(partial(sample, samples=1), partial(sample, samples=4), 2 if quick else 3)
    figures = {
        "labels": len(world.paths.kept),
        "prompts": len(short),
        "speedup_vs_transformers": round(main_race.speedup, 2),
        **{f"speedup_at_{name}": round(other.speedup, 2) for name, other in others.items()},
        "same_output": main_race.same and all(other.same for other in others.values()),
        "users_per_second": round(main_race.rate, 1),
        "users_per_second_transformers": round(main_race.other_rate, 1),
        "four_samples_cost": round(samples.speedup, 2),
        "trie_share": round(float(np.median([trie_share(world, short[:64]) for _ in range(3)])), 3),
    }
    remarks = {
        "speedup_vs_transformers": f"aim ≥ 5; about 128 tokens, {BUDGET} labels, one batch",
        "speedup_at_500_tokens": f"{len(long)} prompts, one batch",
        "same_output": "aim: identical",
        "four_samples_cost": "aim ≤ 2; about 500 tokens",
        "trie_share": "aim ≤ 0.1; about 128 tokens, batch of 64",
    }
    harness.finish("decode", figures, arguments.seed, remarks)


if __name__ == "__main__":
    harness.run(main)
