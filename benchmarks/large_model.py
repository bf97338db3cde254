"""A model folder of any size, as `merit run` would have left it, but with random numbers: to see what serving costs.

    large_model.make(Path("large"), users=1_000_000, labels=291_000, seed=7)      # then: merit serve large

The label space is built by the stage that builds every label space, from the texts of a catalogue, of which the policy
blocks a few (cigars); users, their histories and the weights are drawn. Everything is written block by block. There is
no generator, so `explain` fails.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import polars as pl
import pyarrow.parquet as pq
from numpy.typing import NDArray
from safetensors.numpy import save

from merit.core import artifacts
from merit.core.artifacts import Artifact
from merit.core.errors import ConfigError
from merit.core.ragged import Ragged, list_column
from merit.core.seeds import stream
from merit.core.types import Floats, Ints
from merit.evaluation.calibration import Bins
from merit.labels import space
from merit.labels.build import LabelsConfig, build_labels, load_vectors
from merit.propensity.calibration import CENTRES, CalibrationCurve
from merit.propensity.features import LikelyLabels
from merit.retrieval import store
from merit.retrieval.exact import Exact, ScorerWeights, spans

USER, OWN, FIRST, SECOND = 128, 64, 256, 64  # as a model has by default
BLOCK = 50_000  # users made at a time
EVENTS = 12  # of a user, in the mean
WORDS = """
plain folding vintage modern compact heavy light striped dotted rustic elegant sturdy slim padded quilted knitted
painted polished waterproof insulated stackable portable curved round square tall narrow wide soft firm
/ cotton linen wool silk felt denim canvas leather cork bamboo oak pine walnut steel copper brass tin glass marble
granite clay porcelain paper rattan rubber nylon velvet fleece jute acrylic
/ chairs tables lamps shelves baskets curtains blankets pillows rugs clocks mirrors vases bowls plates mugs trays pans
kettles knives aprons gloves scarves hats boots sandals belts wallets backpacks tents lanterns bottles notebooks pencils
puzzles kites cigars
/ gardens kitchens offices baths halls balconies workshops travellers beginners
"""
VERTICALS = ("home", "fashion", "outdoor", "leisure")


def make(folder: Path, users: int, labels: int, seed: int) -> Path:
    """The folder of a run: examples (a catalogue only), labels and a model."""
    catalogue = write_catalogue(folder / "examples", labels, seed)
    with TemporaryDirectory() as cache:
        known = build_labels(catalogue, folder / "labels", LabelsConfig(encoder="hashed"), seed, Path(cache))
    write_model(folder / "model", catalogue, known, users, seed)
    return folder


def write_catalogue(out: Path, labels: int, seed: int) -> Artifact:
    """A product for every label, which carries that label and most likely a more common one."""
    kinds = [words.split() for words in WORDS.split("/")]
    texts = [f"{how} {made} {what} for {whom}" for how, made, what, whom in product(*kinds)]
    if labels > len(texts):
        raise ConfigError(f"There are words for {len(texts):,} labels. Ask for no more than that with --labels.")
    rng = stream(seed, "large", "catalogue")
    chosen = [texts[at] for at in rng.permutation(len(texts))[:labels]]
    second = (labels * rng.random(labels) ** 3).astype(np.int64)
    items = pl.DataFrame(
        {
            "item": pl.Series(np.arange(labels), dtype=pl.UInt32),
            "item_id": [f"P{number:07}" for number in range(labels)],
            "title": [f"{text.capitalize()}, no. {number % 97}" for number, text in enumerate(chosen)],
            "tags": [[text, chosen[other]] for text, other in zip(chosen, second.tolist(), strict=True)],
            "vertical": [VERTICALS[number % len(VERTICALS)] for number in range(labels)],
        }
    )
    sold = (1e6 / (1 + np.arange(labels)) ** 0.8).astype(np.uint64)
    with artifacts.writing(out, "examples", seed=seed) as draft:
        items.write_parquet(draft.path / "items.parquet")
        pl.DataFrame({"item": items["item"], "count": sold}).write_parquet(draft.path / "item_counts.parquet")
    return artifacts.load(out, "examples", verify=False)


def write_model(out: Path, catalogue: Artifact, labels: Artifact, users: int, seed: int) -> Artifact:
    rng = stream(seed, "large", "model")
    known, texts = space.load(labels.path), load_vectors(labels)
    net = weights(rng, texts.shape[1])
    layers = Exact.of(net)
    parents = {"examples": catalogue, "labels": labels}
    with artifacts.writing(out, "model", seed=seed, parents=parents) as draft:
        shutil.copytree(labels.path, draft.path / "labels")
        shutil.copyfile(catalogue.file("items.parquet"), draft.path / "items.parquet")
        (draft.path / "propensity").mkdir()
        write_curve(draft.path / "propensity", rng)
        repeat = {"repeat": np.array([1.7, 1.0, -0.15], np.float32), "repeat_labels": _normal(rng, len(known), 0.5)}
        (draft.path / "mlp.safetensors").write_bytes(save(net.arrays() | repeat))
        shares = rng.dirichlet(np.full(len(VERTICALS), 0.2), len(known)).astype(np.float32)
        (draft.path / "verticals.safetensors").write_bytes(save({"shares": shares}))
        (draft.path / "verticals.json").write_text(json.dumps(VERTICALS), encoding="utf-8")
        (draft.path / "README.md").write_text("# A model of random numbers\n", encoding="utf-8")
        write_users(draft.path / "users.parquet", catalogue, labels, users, seed)
        for name in ("users", "interests"):
            (draft.path / name).mkdir()
        store.write(draft.path / "users", users, user_vectors(rng, users), layers.users)
        store.write(draft.path / "interests", len(known), label_vectors(rng, texts), layers.labels)
        draft.summary |= {"users": users, "labels": len(known), "label_version": known.version}
    return artifacts.load(out, "model", verify=False)


def weights(rng: np.random.Generator, text: int) -> ScorerWeights:
    """The network's part of a score varies by about a half, the product's by about one, around rare interests."""
    same = np.eye(OWN)
    made = {
        "W_u": _normal(rng, (FIRST, USER + OWN), USER**-0.5),
        "W_e": _normal(rng, (FIRST, text + OWN), 1.0),  # text vectors have length 1
        "d1": _normal(rng, FIRST, 0.1),
        "W2": _normal(rng, (SECOND, FIRST), FIRST**-0.5),
        "d2": _normal(rng, SECOND, 0.1),
        "w3": _normal(rng, SECOND, 0.5 * SECOND**-0.5),
        "d3": np.array([-8.0], np.float32),
        "P_u": np.hstack([np.zeros((OWN, USER)), same]),
        "P_e": np.hstack([_normal(rng, (OWN, text), 0.3), same]),
    }
    return ScorerWeights.of(made)


def user_vectors(rng: np.random.Generator, users: int) -> Iterator[Floats]:
    """Numbers of about unit size, then factors, the last of them a one."""
    for span in spans(users, BLOCK):
        block = rng.standard_normal((len(span), USER + OWN), dtype=np.float32)
        block[:, USER:] *= np.float32(0.35)
        block[:, -1] = 1
        yield block


def label_vectors(rng: np.random.Generator, texts: Floats) -> Iterator[Floats]:
    """Text vectors, then numbers of their own; the last is how popular a label is: ids go by falling count."""
    for span in spans(len(texts), BLOCK):
        own = _normal(rng, (len(span), OWN), 0.35)
        own[:, -1] = 1 - 0.3 * np.log1p(np.arange(span.start, span.stop))
        yield np.hstack([texts[span.start : span.stop], own])


def write_users(file: Path, catalogue: Artifact, labels: Artifact, users: int, seed: int) -> None:
    """user_id, history, counts, items, and nothing likely: a few products each, popular ones more often."""
    rng = stream(seed, "large", "users")
    carried = Ragged(*space.item_labels(space.load(labels.path), pl.read_parquet(catalogue.file("items.parquet"))))
    names = rng.permutation(users)
    writer: pq.ParquetWriter | None = None
    for span in spans(users, BLOCK):
        sizes = 1 + rng.poisson(EVENTS - 1, len(span))
        items = (len(carried) * rng.random(int(sizes.sum())) ** 3).astype(np.int64)
        had, each = carried.take(items)
        block = pl.DataFrame(
            {
                "user_id": pl.Series([f"u{number:08}" for number in names[span.start : span.stop].tolist()]),
                **_histories(np.repeat(np.arange(len(span)), sizes), had, each, len(span)),
                "items": list_column(items.astype(np.uint32), sizes),
                **LikelyLabels(Ragged.empty(len(span)), np.zeros(0, np.float32)).columns(0.0),
            }
        ).to_arrow()
        writer = writer or pq.ParquetWriter(file, block.schema)
        writer.write_table(block)
    if writer:
        writer.close()


def _histories(owner: Ints, had: NDArray[np.int32], each: Ints, users: int) -> dict[str, pl.Series]:
    """history and counts from the labels of all events."""
    width = int(had.max(initial=0)) + 1
    pairs, counts = np.unique(np.repeat(owner, each) * width + had, return_counts=True)
    sizes = np.bincount(pairs // width, minlength=users)
    return {
        "history": list_column((pairs % width).astype(np.uint32), sizes),
        "counts": list_column(counts.astype(np.uint32), sizes),
    }


def write_curve(folder: Path, rng: np.random.Generator) -> None:
    """A calibration that is nearly the score itself, and how it did among test users who are not there."""
    curve = CalibrationCurve(tuple(CENTRES.tolist()), tuple((0.9 * CENTRES - 0.2).tolist()))
    (folder / "calibration.json").write_text(
        json.dumps({"scores": curve.scores, "log_odds": curve.log_odds}), encoding="utf-8"
    )
    bins = Bins.empty(1)
    promised = curve.probability(rng.normal(-6, 2, 1_000_000))
    bins.add(promised, rng.random(len(promised)) < promised, np.zeros(len(promised), np.int64))
    bins.table(["all"]).write_parquet(folder / "reliability.parquet")


def _normal(rng: np.random.Generator, shape: int | tuple[int, ...], scale: float) -> Floats:
    return rng.standard_normal(shape, dtype=np.float32) * np.float32(scale)
