"""model: everything needed to score, in one folder that can be moved: what `merit.load` opens.

The artifact: labels/, propensity/ and, of the standard preset, generator/ (copies of those artifacts), users/ and
interests/ (vectors and projections for retrieval), mlp.safetensors, verticals.*, users.parquet, items.parquet,
windows.json (what audiences of a window are scored by; not of data too short to learn that), and README.md, a model
card: what the model was made from, how good it is, and what not to use it for. A refresh adds since.parquet, log/ and,
where labels are new, later/, their space. torch is imported for the standard preset only.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from numpy.typing import NDArray
from safetensors.numpy import save

from merit import __version__
from merit.core import artifacts, console
from merit.core.artifacts import Artifact
from merit.core.config import Frozen
from merit.core.ragged import Ragged
from merit.core.types import Floats
from merit.data.corpus import NOW, current_columns
from merit.data.examples import ExamplesConfig
from merit.evaluation import calibration, tables
from merit.evaluation.calibration import Reliability
from merit.labels import space
from merit.labels.space import LabelSpace
from merit.propensity.factor_scorer import FactorScorer
from merit.propensity.features import LikelyLabels, UserFeatures, stateless
from merit.propensity.quick import load_quick
from merit.propensity.windows import WindowConfig
from merit.report.markdown import plain
from merit.report.page import SMALLEST_CELL
from merit.retrieval import store
from merit.retrieval.encode import QUICK, QuickEncoder
from merit.retrieval.exact import Exact, Projection, ScorerWeights
from merit.retrieval.verticals import vertical_shares
from merit.retrieval.windows import WINDOWS, learn_windows, without_generator

if TYPE_CHECKING:
    from merit.propensity.states_model import Propensity
    from merit.propensity.train import TrainedScorer

STANDARD = "standard"
SINCE = "since.parquet"  # events that refreshes have read since the training: user_id, item, timestamp, event, order_id
BLOCK = 8_192  # users encoded at a time
MADE = {
    QUICK: "the factor model in closed form, calibrated; no generator",
    STANDARD: "a generator trained by self-correction, on top of the factor model, calibrated",
}
WEAK = 2.0  # a vertical whose calibration error is so many times the overall one is named in the card


class ModelConfig(Frozen):
    """What audiences of a window are learnt from; the folder is laid out in one way."""

    windows: WindowConfig = WindowConfig()


def write_model(
    propensity: Artifact,
    states: Artifact,
    generator: Artifact,
    corpus: Artifact,
    labels: Artifact,
    results: Artifact,
    out: Path,
    config: ModelConfig,
    seed: int,
) -> Artifact:
    """The model: every user as of the end of the data, and all that scoring needs, in one folder."""
    from merit.propensity.states import read_features  # loads torch
    from merit.propensity.train import load_scorer

    scorer, (users, features) = load_scorer(propensity, labels), read_features(corpus, states, NOW)
    parents = {"propensity": propensity, "states": states, "generator": generator, "corpus": corpus}
    parents |= {"labels": labels, "results": results}
    encode = None if scorer.model.reads_states else without_generator(scorer, corpus, space.load(labels.path))
    kept = ("labels", "propensity", "generator")
    return _write(standard_parts(scorer), encode, users, features, parents, kept, out, config, seed)


def write_quick_model(
    propensity: Artifact,
    corpus: Artifact,
    labels: Artifact,
    results: Artifact,
    out: Path,
    config: ModelConfig,
    seed: int,
) -> Artifact:
    """The same of the quick preset, without a generator."""
    scorer, (users, features) = load_quick(propensity, labels), stateless(corpus, NOW, *current_columns(corpus))
    catalogue = Ragged(*space.item_labels(space.load(labels.path), pl.read_parquet(corpus.file("items.parquet"))))
    parents = {"propensity": propensity, "corpus": corpus, "labels": labels, "results": results}
    encoder = QuickEncoder(scorer.weights, catalogue)

    def encode(items: Ragged) -> Floats:
        return encoder.encode(items, items).vectors

    kept = ("labels", "propensity")
    return _write(factor_parts(scorer), encode, users, features, parents, kept, out, config, seed)


@dataclass(frozen=True)
class ModelParts:
    """What a model's folder is made of, as plain arrays."""

    preset: str
    weights: ScorerWeights
    repeat: Floats  # (3,)
    label_repeats: Floats  # (C,)
    user_vectors: Callable[[UserFeatures], Floats]
    label_vectors: Floats
    """Without trends."""
    trend_weight: float
    likely_weight: float = 0.0
    """Of the labels that the generator finds likely."""

    def labels_of_week(self, trends: NDArray[np.floating]) -> Floats:
        """The vectors of all labels with their trends (labels,) of the last week: all users are scored for it."""
        vectors = self.label_vectors
        if self.trend_weight:
            vectors = vectors.copy()
            vectors[:, -1] += self.trend_weight * trends.astype(np.float32)
        return vectors


def factor_parts(scorer: FactorScorer, preset: str = QUICK, likely_weight: float = 0.0) -> ModelParts:
    """Of a model whose score is a dot product, and what is likely."""
    return ModelParts(
        preset=preset,
        weights=factor_weights(scorer.weights.of_text, scorer.weights.bias),
        repeat=scorer.weights.repeat,
        label_repeats=scorer.label_repeats,
        user_vectors=scorer.users,
        label_vectors=scorer.label_vectors,
        trend_weight=float(scorer.weights.trend_weight.sum()),
        likely_weight=likely_weight,
    )


def standard_parts(scorer: TrainedScorer) -> ModelParts:
    """Of the standard preset."""
    import torch

    with torch.inference_mode():
        vectors = scorer.model.labels(torch.from_numpy(scorer.texts), torch.arange(len(scorer.texts))).numpy()
    return ModelParts(
        preset=STANDARD,
        weights=weights_of(scorer.model),
        repeat=scorer.model.repeat.detach().numpy(),
        label_repeats=scorer.repeats.numpy(),
        user_vectors=lambda part: scorer.vectors(part).numpy(),
        label_vectors=vectors,
        trend_weight=float(scorer.model.trend_weight.detach().sum()),
        likely_weight=scorer.model.likely_weight.item(),
    )


def _write(
    parts: ModelParts,
    encode: Callable[[Ragged], Floats] | None,
    users: pl.DataFrame,
    features: UserFeatures,
    parents: Mapping[str, Artifact],
    kept: Iterable[str],
    out: Path,
    config: ModelConfig,
    seed: int,
) -> Artifact:
    """The folder; `kept` names the parents that go into it. `encode`: (users, width) of items, without a generator."""
    corpus, labels = parents["corpus"], parents["labels"]
    label_space, exact = space.load(labels.path), Exact.of(parts.weights)
    with artifacts.writing(out, "model", config=config, seed=seed, parents=parents) as draft:
        for name in kept:
            shutil.copytree(parents[name].path, draft.path / name)
        shutil.copyfile(corpus.file("items.parquet"), draft.path / "items.parquet")
        likely = features.likely or LikelyLabels(Ragged.empty(len(users)), np.zeros(0, np.float32))
        added = likely.columns(parts.likely_weight)
        kept_columns = users.select("user_id", "history", "counts", *current_columns(corpus))
        kept_columns.with_columns(**added).write_parquet(draft.path / "users.parquet")
        repeat = {"repeat": parts.repeat, "repeat_labels": parts.label_repeats}
        (draft.path / "mlp.safetensors").write_bytes(save(parts.weights.arrays() | repeat))
        shares, names = vertical_shares(corpus, label_space)
        (draft.path / "verticals.safetensors").write_bytes(save({"shares": shares}))
        (draft.path / "verticals.json").write_text(json.dumps(names, ensure_ascii=False), encoding="utf-8")
        starts = range(0, len(features), BLOCK)
        user_vectors = (parts.user_vectors(features.part(start, start + BLOCK)) for start in starts)
        trends = (
            features.trends.gather(np.arange(1)).of(np.arange(len(label_space)))[0]
            if features.trends and len(users)
            else 0
        )
        label_vectors = parts.labels_of_week(np.asarray(trends))
        write_side(draft.path / "users", len(users), user_vectors, exact.users)
        write_side(draft.path / "interests", len(label_space), [label_vectors], exact.labels)
        how = parts.weights, label_vectors, encode, config.windows, seed
        with console.spinner("learning windows"):
            learnt = learn_windows(users, corpus, label_space, *how)
        if learnt:
            (draft.path / WINDOWS).write_text(learnt.model_dump_json(indent=1) + "\n", encoding="utf-8")
        card = _card(parts.preset, parents["propensity"], corpus, labels, parents["results"], label_space)
        (draft.path / "README.md").write_text(card, encoding="utf-8")
        draft.summary |= {"users": len(users), "labels": len(label_space), "label_version": label_space.version}
        window = {name: getattr(ExamplesConfig(), name) for name in ("history_days", "gap_days")}
        made = window | corpus.manifest.summary  # an older corpus does not say
        draft.summary |= {"preset": parts.preset} | {name: made[name] for name in ("last", *window)}
    return artifacts.load(out, "model")


def write_side(folder: Path, rows: int, blocks: Iterable[Floats], projection: Projection) -> None:
    """All users or all labels, in a new folder."""
    folder.mkdir()
    with console.spinner(f"storing {rows:,} {folder.name}"):
        store.write(folder, rows, blocks, projection)


def weights_of(model: Propensity) -> ScorerWeights:
    """The layers and factors of a trained model as plain arrays."""
    import torch

    if not model.reads_states:
        return factor_weights(model.of_text.detach().numpy(), model.bias.sum().detach().numpy())
    same = torch.eye(model.factors)
    unread = torch.zeros(model.of_label.out_features, min(1, model.factors))
    values = {
        "W_u": model.of_user.weight,
        "W_e": torch.cat([model.of_label.weight, unread], dim=1),
        "d1": model.of_user.bias,
        "W2": model.second.weight,
        "d2": model.second.bias,
        "w3": model.last.weight[0],
        "d3": model.last.bias + model.bias.sum(),
        "P_u": torch.cat([torch.zeros(model.factors, model.of_user.in_features - model.factors), same], dim=1),
        "P_e": torch.cat([model.of_text, same], dim=1),
    }
    return ScorerWeights.of({name: value.detach().numpy() for name, value in values.items()})


def factor_weights(of_text: Floats, bias: Floats) -> ScorerWeights:
    """Those of a factor model alone: its score is a dot product, and all layers are empty."""
    factors, width = of_text.shape
    shapes = {"W_u": (0, factors), "W_e": (0, width + factors), "W2": (0, 0), "d1": (0,), "d2": (0,), "w3": (0,)}
    same = np.eye(factors, dtype=np.float32)
    projections = {"P_u": same, "P_e": np.concatenate([of_text, same], axis=1)}
    return ScorerWeights.of({name: np.zeros(shape) for name, shape in shapes.items()} | projections | {"d3": bias})


def _card(
    preset: str,
    propensity: Artifact,
    corpus: Artifact,
    labels: Artifact,
    results: Artifact,
    label_space: LabelSpace,
) -> str:
    """The card in Markdown."""
    figures, bins = (
        pl.read_parquet(artifact.file(f"{name}.parquet"))
        for artifact, name in ((results, "figures"), (propensity, "reliability"))
    )
    summary, overall, live = corpus.manifest.summary, calibration.summary(bins), int(label_space.live_mask().sum())
    first, last = (datetime.fromtimestamp(summary[name] / 1000, UTC).date() for name in ("first", "last"))
    parts = [
        "# Model card",
        f"Propensities over {live:,} text interests, made by merit {__version__} with seed {propensity.manifest.seed}, "
        f"preset `{preset}`: {MADE[preset]}.",
        "## Data",
        f"- Interactions from {first} to {last}: {summary['events']:,} events of {summary['users']:,} users.\n"
        f"- Label space version {label_space.version}: {len(label_space):,} labels, {live:,} of them live, "
        f"{labels.manifest.summary['blocked']:,} blocked by the policy {plain(labels.manifest.config['policy'])}.\n"
        "- A probability speaks of the labels of a purchase at least a week after the last event.",
        "## Interests for a user",
        _accuracy(figures),
        "## Probabilities",
        f"Test users, a curve fitted on others: expected calibration error {overall.ece:.5f} over {overall.pairs:,} "
        f"pairs, {overall.ece_likely:.4f} among pairs given 1 % and more; Brier score {overall.brier:.5f}; "
        f"{overall.prevalence:.3%} of pairs came true.",
        _weak_verticals(overall, calibration.by_vertical(bins)),
        "## What carries the score",
        _shares(propensity),
        "## Not for",
        "Decisions about single people in credit, housing, employment, health or insurance. Interests blocked by the "
        "policy are neither scored nor named. A phrase far from every label of training is answered with a warning: "
        "take that seriously.",
    ]
    return "\n\n".join(parts) + "\n"


def _shares(propensity: Artifact) -> str:
    summary, model = propensity.manifest.summary, propensity.manifest.config.get("model")
    if not model:
        return "The factor model, alone."
    if not model["factors"]:
        return "A scorer of the generator's states, alone."
    share, states = summary["likely_share"], "; the rest is the factor model and a scorer of states"
    return (
        f"Of the variance of scores within a test user, {share:.1%} is what the generator adds by the labels that it "
        f"finds likely{states if model['states'] else '; the rest is the factor model'}."
    )


def _accuracy(figures: pl.DataFrame) -> str:
    users = int(figures["users"].max() or 0)  # type: ignore[arg-type]
    if users < SMALLEST_CELL:
        return f"Tested on fewer than {SMALLEST_CELL} users; no figure is shown."
    table = tables.headline(figures, tables.EXACT, ()).drop(tables.ORIGIN, strict=False)
    return f"Exact match on {users:,} test users, in points with 95 % intervals.\n\n" + tables.markdown(
        table, tables.leaders(figures, tables.EXACT)
    )


def _weak_verticals(overall: Reliability, verticals: pl.DataFrame) -> str:
    enough = verticals.filter(pl.col("pairs") >= SMALLEST_CELL)
    weak = enough.filter(pl.col("ece") > WEAK * overall.ece).sort("ece", descending=True)
    if not len(weak):
        return "No vertical is calibrated much worse than the whole."
    named = ", ".join(f"{plain(name)} ({error:.4f})" for name, error in weak.select("vertical", "ece").head(10).rows())
    return f"Verticals whose calibration error is more than {WEAK:g} times that: {named}."
