"""model: everything needed to score, in one folder that can be moved: what `merit.load` opens.

The artifact: labels/, propensity/ and generator/ (copies of those artifacts), users/ and interests/ (vectors and halves
for retrieval), mlp.safetensors, verticals.*, users.parquet, items.parquet, and README.md, a model card.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import numpy as np
import polars as pl
import torch
from pydantic import Field
from safetensors.numpy import save

from merit.core import artifacts, console
from merit.core.artifacts import Artifact
from merit.core.config import Frozen
from merit.core.ragged import Ragged
from merit.core.types import Floats
from merit.data.prepare import shards
from merit.evaluation import calibration
from merit.labels import space
from merit.labels.build import load_vectors
from merit.labels.space import LabelSpace
from merit.propensity.features import UserFeatures
from merit.propensity.states import NOW, read_states
from merit.propensity.states_model import Propensity
from merit.propensity.train import TrainedScorer, load_scorer
from merit.retrieval import card, mlp, store
from merit.retrieval.exact import Exact
from merit.retrieval.mlp import Mlp
from merit.retrieval.quantise import Form
from merit.retrieval.verticals import given_label

BLOCK = 8_192  # users encoded at a time


class ModelConfig(Frozen):
    """How the model's folder is laid out; no answer depends on it."""

    halves: Form = Field("float32")
    """How users' and labels' halves are stored: float32, float16 or int8. Answers do not change, only their speed."""


def write_model(
    propensity: Artifact,
    states: Artifact,
    generator: Artifact,
    examples: Artifact,
    labels: Artifact,
    results: Artifact,
    out: Path,
    config: ModelConfig,
    seed: int,
) -> Artifact:
    """Encode every user as they stand at the end of the data, and put all that scoring needs into one folder."""
    scorer, known = load_scorer(propensity, labels), space.load(labels.path)
    people, kept = read_states(states, NOW)
    weights = mlp_of(scorer.model)
    layers = Exact.of(weights)
    parents = {"propensity": propensity, "states": states, "generator": generator, "examples": examples}
    parents |= {"labels": labels, "results": results}
    with artifacts.writing(out, "model", config=config, seed=seed, parents=parents) as draft:
        for name, artifact in (("labels", labels), ("propensity", propensity), ("generator", generator)):
            shutil.copytree(artifact.path, draft.path / name)
        shutil.copyfile(examples.file("items.parquet"), draft.path / "items.parquet")
        people.select("user_id", "history", "counts", "items").write_parquet(draft.path / "users.parquet")
        repeat = {"repeat": scorer.model.repeat.detach().numpy(), "repeat_labels": scorer.repeats.numpy()}
        (draft.path / "mlp.safetensors").write_bytes(save(weights.arrays() | repeat))
        shares, names = vertical_shares(examples, known)
        (draft.path / "verticals.safetensors").write_bytes(save({"shares": shares}))
        (draft.path / "verticals.json").write_text(json.dumps(names, ensure_ascii=False), encoding="utf-8")
        for name, rows in (("users", len(people)), ("interests", len(known))):
            (draft.path / name).mkdir()
            texts = load_vectors(labels)
            blocks = _users(scorer, kept) if name == "users" else iter([_interests(scorer, texts, kept)])
            layer = layers.users if name == "users" else layers.labels
            with console.spinner(f"storing {rows:,} {name}"):
                store.write(draft.path / name, rows, blocks, layer, halves_form=config.halves)
        (draft.path / "README.md").write_text(_card(propensity, examples, labels, results, known), encoding="utf-8")
        draft.summary |= {"users": len(people), "labels": len(known), "label_version": known.version}
    return artifacts.load(out, "model")


def mlp_of(model: Propensity) -> Mlp:
    """The scorer's three layers and its product as plain arrays."""
    same, unread = torch.eye(model.factors), torch.zeros(model.of_label.out_features, min(1, model.factors))
    values = {
        "W_u": model.of_user.weight,
        "W_e": torch.cat([model.of_label.weight, unread], dim=1),
        "d1": model.of_user.bias,
        "W2": model.second.weight,
        "d2": model.second.bias,
        "w3": model.last.weight[0],
        "d3": model.last.bias,
        "P_u": torch.cat([torch.zeros(model.factors, model.of_user.in_features - model.factors), same], dim=1),
        "P_e": torch.cat([model.of_text, same], dim=1),
    }
    return mlp.load({name: value.detach().numpy() for name, value in values.items()})


def label_vectors(model: Propensity, texts: Floats, first: int = 0) -> Floats:
    """Text vectors with the numbers that labels seen in training have of their own; `first` is the id of the first."""
    with torch.inference_mode():
        found: Floats = model.labels(torch.from_numpy(texts), torch.arange(first, first + len(texts))).numpy()
    return found


def _interests(scorer: TrainedScorer, texts: Floats, now: UserFeatures) -> Floats:
    """The vectors of all labels, as popular as they are now: all users are asked about in one week."""
    vectors = label_vectors(scorer.model, texts)
    if scorer.model.factors and now.trends and len(now):
        with torch.inference_mode():
            new = torch.from_numpy(now.trends.part(0, 1).of(np.arange(len(vectors))))
            vectors[:, -1] += scorer.model.trend_score(new)[0].numpy()
    return vectors


def vertical_shares(examples: Artifact, known: LabelSpace) -> tuple[Floats, list[str]]:
    """P(vertical | label) from training events alone, and the names of the verticals."""
    items = pl.read_parquet(examples.file("items.parquet"))
    counts = pl.read_parquet(examples.file("item_counts.parquet"))["count"].to_numpy().astype(np.int64)
    item_labels = Ragged(*space.item_labels(known, items))
    names = verticals_of(known)
    own = items["vertical"].fill_null(UNKNOWN).replace_strict(names, range(len(names)), default=-1)
    place, owner = own.to_numpy().astype(np.int64), np.repeat(np.arange(len(item_labels)), item_labels.lengths())
    told = place[owner] >= 0
    shape = (len(known), len(names))
    shares = given_label(
        item_labels.values[told].astype(np.int64), place[owner][told], counts[owner][told], shape
    ).astype(np.float32)
    return shares, names


UNKNOWN = "unknown"


def verticals_of(known: LabelSpace) -> list[str]:
    """Names in order, the columns of `vertical_shares`; labels without one count as unknown."""
    return known.table["vertical"].fill_null(UNKNOWN).unique().sort().to_list()


def _users(scorer: TrainedScorer, kept: UserFeatures) -> Iterator[Floats]:
    for at in range(0, len(kept), BLOCK):
        yield scorer.vectors(kept.part(at, at + BLOCK)).numpy()


def _card(propensity: Artifact, examples: Artifact, labels: Artifact, results: Artifact, known: LabelSpace) -> str:
    first, last = _span(examples)
    found = pl.read_parquet(propensity.file("reliability.parquet"))
    return card.write(
        card.Facts(
            first=first,
            last=last,
            users=examples.manifest.summary["users"],
            events=examples.manifest.summary["events"],
            labels=len(known),
            live=int(known.live_mask().sum()),
            label_version=known.version,
            policy=labels.manifest.config["policy"],
            blocked=labels.manifest.summary["blocked"],
            seed=propensity.manifest.seed,
        ),
        pl.read_parquet(results.file("figures.parquet")),
        calibration.summary(found),
        calibration.by_vertical(found),
    )


def _span(examples: Artifact) -> tuple[date, date]:
    """The first and the last day of the data."""
    spans = [
        part.events.select(first=pl.col("timestamp").min(), last=pl.col("timestamp").max()).row(0)
        for part in shards(examples)
    ]
    return min(low for low, _ in spans if low).date(), max(high for _, high in spans if high).date()
