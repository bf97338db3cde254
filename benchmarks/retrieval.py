"""One interest over a million users, and one user over 291,000 labels, against a naive pass over whole pairs.

    python -m benchmarks.retrieval            # under 4 minutes on 2 busy cores; 2.6 GB in a temporary folder
    python -m benchmarks.retrieval --quick    # 100,000 users, 50,000 labels
    python -m benchmarks.retrieval --plot docs/images/retrieval.svg    # and a picture of the cost by number of users

Vectors and weights are random, at the scale a trained model has. The naive pass concatenates the vectors of a pair,
takes them through all three layers and adds the product of their factors (those of the one vector that all pairs share
are made once per block), in float32, block by block, with torch or numpy, whichever is faster here. Both rank to the
end: the best 20,000 users, or the best 100 labels. `same_ranking` compares with a float64 pass over whole pairs.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import altair as alt
import numpy as np
import polars as pl
import torch
from safetensors.numpy import load_file, save_file

from benchmarks import harness
from merit.core.seeds import stream
from merit.core.types import Floats, Ints
from merit.retrieval import store, topk
from merit.retrieval.exact import Exact, ScorerWeights, spans
from merit.retrieval.scorer import Scorer
from merit.retrieval.topk import Ranked

USERS, LABELS, AUDIENCE, INTERESTS = 1_000_000, 291_000, 20_000, 100
COUNTS = (10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000)
QUICK_USERS, QUICK_LABELS, QUICK_AUDIENCE = 100_000, 50_000, 2_000
USER, LABEL, FIRST, SECOND, FACTORS = 128, 384, 256, 64, 64
NAIVE_BLOCK = 4_096  # rows: the best for numpy; to torch 1,024 to 16,384 are all the same
Figures = dict[str, Any]


def make(folder: Path, users: int, labels: int, seed: int) -> None:
    """Weights and both sides on disk. The first layer has about unit variance, and so have both parts of a score."""
    rng = stream(seed, "benchmarks.retrieval")
    scales = {
        "W_u": ((FIRST, USER), USER**-0.5),
        "W_e": ((FIRST, LABEL), 1.0),  # label vectors have length 1
        "d1": ((FIRST,), 0.1),
        "W2": ((SECOND, FIRST), FIRST**-0.5),
        "d2": ((SECOND,), 0.1),
        "w3": ((SECOND,), 2 * SECOND**-0.5),
        "d3": ((1,), 1.0),
        "P_u": ((FACTORS, USER), USER**-0.5 * FACTORS**-0.25),
        "P_e": ((FACTORS, LABEL), FACTORS**-0.25),
    }
    net = ScorerWeights.of({name: rng.standard_normal(shape) * scale for name, (shape, scale) in scales.items()})
    save_file(net.arrays(), folder / "mlp.safetensors")
    exact = Exact.of(net)
    for name, rows, width, layer in (("users", users, USER, exact.users), ("labels", labels, LABEL, exact.labels)):
        (folder / name).mkdir()
        blocks = (rng.standard_normal((len(span), width), dtype=np.float32) for span in spans(rows, 50_000))
        if name == "labels":
            blocks = (block / np.linalg.norm(block, axis=1, keepdims=True) for block in blocks)
        store.write(folder / name, rows, blocks, layer)


def open_scorer(folder: Path) -> Scorer:
    return Scorer.read(ScorerWeights.of(load_file(folder / "mlp.safetensors")), folder / "users", folder / "labels")


def serve(folder: Path, n: int, k: int) -> None:
    """What a process that serves does, for the peak of its memory."""
    scorer = open_scorer(folder)
    audience(scorer, scorer.labels.vectors.take(slice(3, 4))[0], n)
    next(scorer.all_interests(k, np.array([3])))
    next(scorer.all_interests(k, np.arange(4)))


def audience(scorer: Scorer, label: Floats, n: int) -> Ranked:
    (ranked,) = scorer.audiences(label[None], [n])
    return ranked


class Question(NamedTuple):
    """One vector against all rows of the other side."""

    rows: Floats  # (N, D)
    number: int
    """Of the vector, a label's or a user's."""
    fixed: Floats
    users_first: bool  # in the concatenation: rows are users
    n: int


class Naive(NamedTuple):
    """The weights the way round in which rows are multiplied by them."""

    layers: list[tuple[Any, Any]]
    factors: tuple[Any, Any]  # (user, R), (label, R)


def naive_of(net: ScorerWeights, dtype: Any) -> Naive:
    layers = ((np.hstack([net.W_u, net.W_e]), net.d1), (net.W2, net.d2), (net.w3[None], np.array([net.d3])))
    of_user, of_label = (np.ascontiguousarray(weight.T.astype(dtype)) for weight in (net.P_u, net.P_e))
    return Naive(
        [(np.ascontiguousarray(weight.T.astype(dtype)), bias.astype(dtype)) for weight, bias in layers],
        (of_user, of_label),
    )


def naive_numpy(naive: Naive, asked: Question) -> Ints:
    layers, (of_user, of_label) = naive
    scores = np.empty(len(asked.rows), of_user.dtype)
    one = asked.fixed[None].astype(of_user.dtype)
    for span in spans(len(asked.rows), NAIVE_BLOCK):
        rows = asked.rows[span.start : span.stop].astype(of_user.dtype, copy=False)
        users, labels = (rows, one) if asked.users_first else (one, rows)
        x = np.concatenate([np.broadcast_to(side, (len(rows), side.shape[1])) for side in (users, labels)], axis=1)
        for weight, bias in layers[:-1]:
            x = x @ weight + bias
            np.maximum(x, 0, out=x)
        product = ((users @ of_user) * (labels @ of_label)).sum(axis=1)
        scores[span.start : span.stop] = (x @ layers[-1][0] + layers[-1][1])[:, 0] + product
    return best(scores, asked.n)


class TorchModel(torch.nn.Module):
    """The model as anyone would write it."""

    def __init__(self, net: ScorerWeights) -> None:
        super().__init__()
        naive = naive_of(net, np.float32)
        first, second, last = (_linear(weight, bias) for weight, bias in naive.layers)
        self.layers = torch.nn.Sequential(first, torch.nn.ReLU(), second, torch.nn.ReLU(), last)
        self.of_user, self.of_label = (_linear(weight) for weight in naive.factors)

    def forward(self, users: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """(n,) of (n, user) and (n, label), of which one may be a single row."""
        pairs = torch.cat([side.expand(max(len(users), len(labels)), -1) for side in (users, labels)], dim=1)
        product = (self.of_user(users) * self.of_label(labels)).sum(1)
        return self.layers(pairs)[:, 0] + product  # type: ignore[no-any-return]


def _linear(weight: Any, bias: Any = None) -> torch.nn.Linear:
    made = torch.nn.Linear(*weight.shape, bias=bias is not None)
    arrays = {"weight": weight.T.copy()} | ({} if bias is None else {"bias": bias})
    made.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()})
    return made


def naive_torch(model: TorchModel, asked: Question) -> Ints:
    scores = np.empty(len(asked.rows), np.float32)
    everything, one = torch.from_numpy(asked.rows), torch.from_numpy(asked.fixed)[None]
    with torch.inference_mode():
        for span in spans(len(asked.rows), NAIVE_BLOCK):
            rows = everything[span.start : span.stop]
            scores[span.start : span.stop] = model(*((rows, one) if asked.users_first else (one, rows))).numpy()
    return best(scores, asked.n)


def best(scores: Floats, n: int) -> Ints:
    near = topk.candidates(scores, n, 0.0)
    return near[topk.order(near, scores[near], n)]


def faster_naive(net: ScorerWeights, asked: Question) -> tuple[str, Callable[[Question], Ints]]:
    ways = {
        "numpy": partial(naive_numpy, naive_of(net, np.float32)),
        "torch": partial(naive_torch, TorchModel(net)),
    }
    some = asked._replace(rows=asked.rows[: 8 * NAIVE_BLOCK])
    race = harness.alternate(lambda: ways["torch"](some), lambda: ways["numpy"](some), 3)
    name = "torch" if race.speedup >= 1 else "numpy"
    return name, ways[name]


def torch_products(net: ScorerWeights, rows: int) -> Callable[[], object]:
    """The product of the second layer alone, of as many rows, as fast as torch does it from memory."""
    step = min(rows, 65_536)
    first, weight = torch.rand(step, FIRST), torch.from_numpy(net.W2_columns)
    out = torch.empty(step, SECOND)

    def products() -> None:
        for _ in range(rows // step):
            torch.mm(first, weight, out=out)
        if rest := rows % step:
            torch.mm(first[:rest], weight, out=out[:rest])

    return products


def one_way(scorer: Scorer, way: str, questions: list[Question], rounds: int) -> tuple[Figures, dict[str, str]]:
    """Speed on the first question, against naive and against torch's products; the ranking on all of them."""

    def ours(one: Question) -> Ranked:
        if way == "audience":
            return audience(scorer, one.fixed, one.n)
        ranked = next(scorer.all_interests(one.n, np.array([one.number])))
        return Ranked(ranked.labels.values, ranked.scores)

    asked = questions[0]
    name, naive = faster_naive(scorer.weights, asked)
    race = harness.alternate(lambda: ours(asked), lambda: naive(asked), rounds)
    products = torch_products(scorer.weights, len(asked.rows))
    share = harness.alternate(lambda: ours(asked), products, rounds)
    truth = naive_of(scorer.weights, np.float64)
    wanted = [naive_numpy(truth, one) for one in questions]
    same = all((ours(one).rows == rows).all() for one, rows in zip(questions, wanted, strict=True))
    rounded = f"{(naive(asked) == wanted[0]).mean():.2%}"
    figures = {
        f"{way}_seconds": round(race.ours, 3),
        f"{way}_speedup_vs_naive": round(race.speedup, 2),
        f"{way}_gemm_share": round(share.speedup, 3),
        f"{way}_same_ranking": bool(same),
    }
    remarks = {
        f"{way}_seconds": f"{len(asked.rows):,} rows, the best {asked.n:,}; naive ({name}): {race.other:.3f} s",
        f"{way}_speedup_vs_naive": "aim ≥ 5",
        f"{way}_same_ranking": f"{len(questions)} asked; naive float32 has {rounded} of the rows in their place",
    }
    return figures, remarks


def first_users(scorer: Scorer, count: int) -> Scorer:
    users = scorer.users
    cut = replace(
        users,
        vectors=store.Rows(users.vectors.values[:count]),
        projections=store.Rows(users.projections.values[:count]),
    )
    return Scorer(scorer.weights, cut, scorer.labels)


def seconds_by_users(scorer: Scorer, label: Floats, counts: list[int]) -> dict[int, float]:
    """For audiences of 2 % of the users."""
    found = {}
    for count in counts:
        ask = partial(audience, first_users(scorer, count), label, count // 50)
        ask()
        found[count] = float(np.median([harness.timed(ask)[1] for _ in range(7)]))
    return found


def straight(seconds: dict[int, float]) -> tuple[float, float]:
    """Seconds that an answer takes for nobody, and for each user more: the line with the least relative error."""
    counts, times = np.array(list(seconds)), np.array(list(seconds.values()))
    (start, slope), *_ = np.linalg.lstsq(np.stack([1 / times, counts / times], 1), np.ones(len(times)))
    return float(start), float(slope)


def draw(seconds: dict[int, float], file: Path) -> None:
    start, slope = straight(seconds)
    x = alt.X("users:Q").scale(type="log").title("users")
    y = alt.Y("seconds:Q").scale(type="log").title("seconds for the first 2 % of them")
    measured = pl.DataFrame({"users": list(seconds), "seconds": list(seconds.values())})
    fitted = measured.with_columns(seconds=start + slope * pl.col("users"))
    title = f"{1e3 * start:.1f} ms, and {1e9 * slope:.0f} ns for each user"
    line = alt.Chart(fitted, title=title).mark_line(color="#999").encode(x, y)
    points = alt.Chart(measured).mark_point(filled=True, size=60).encode(x, y)
    (line + points).properties(width=480, height=300).save(file)


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("--plot", type=Path, help="draw the cost by number of users into this file")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
    quick, seed = arguments.quick, arguments.seed
    users, labels = (QUICK_USERS, QUICK_LABELS) if quick else (USERS, LABELS)
    n, rounds = (QUICK_AUDIENCE, 3) if quick else (AUDIENCE, 5)
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        _, writing = harness.timed(lambda: make(folder, users, labels, seed))
        peak, _ = harness.in_child(serve, folder, n, INTERESTS)
        scorer = open_scorer(folder)
        people, phrases = np.array(scorer.users.vectors.values), np.array(scorer.labels.vectors.values)
        several = 1 if quick else 3
        to_users, told = one_way(
            scorer, "audience", [Question(people, at, phrases[at], True, n) for at in range(several)], rounds
        )
        to_labels, also = one_way(
            scorer, "interests", [Question(phrases, at, people[at], False, INTERESTS) for at in range(several)], rounds
        )
        counts = [count for count in COUNTS if count <= users]
        seconds = seconds_by_users(scorer, phrases[0], counts)
    if arguments.plot:
        draw(seconds, arguments.plot)
    start, slope = straight(seconds)
    off = max(abs(start + slope * count - took) / took for count, took in seconds.items())
    figures = {
        "users": users,
        "labels": labels,
        "write_seconds": round(writing, 1),
        **to_users,
        **to_labels,
        "gemm_share": min(to_users["audience_gemm_share"], to_labels["interests_gemm_share"]),
        "peak_gib": round(peak, 3),
        "same_ranking": to_users["audience_same_ranking"] and to_labels["interests_same_ranking"],
        **{f"ns_per_user_at_{count}": round(1e9 * took / count) for count, took in seconds.items()},
        "fixed_ms": round(1e3 * start, 2),
        "ns_per_user": round(1e9 * slope),
        "off_the_line": round(off, 3),
    }
    remarks = {
        "write_seconds": "vectors drawn, projections computed in float64 and stored, both sides",
        "gemm_share": "aim ≥ 0.5; the rate of the whole answer / torch's for the second layer's product alone",
        "peak_gib": "aim ≤ 2; a process that opens both sides and answers both ways",
        "same_ranking": "aim: identical to float64 over whole pairs, row by row",
        "off_the_line": "the largest distance from fixed_ms + ns_per_user × users, as a share of the time",
        **told,
        **also,
    }
    harness.finish("retrieval", figures, seed, remarks)


if __name__ == "__main__":
    harness.run(main)
