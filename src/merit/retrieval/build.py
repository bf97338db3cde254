"""model: everything needed to score, in one folder that can be moved: what `merit.load` opens.

The artifact: labels/, propensity/ and, of the standard preset, generator/ (copies of those artifacts), users/ and
interests/ (vectors and projections for retrieval), mlp.safetensors, verticals.*, users.parquet, items.parquet,
windows.json (what audiences of a window are scored by; not of data too short to learn that), and
README.md, a model card: what the model was made from, how good it is, and what not to use it for. torch is imported for
the standard preset only.
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
from pydantic import Field
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
from merit.retrieval.store import Form
from merit.retrieval.verticals import vertical_shares
from merit.retrieval.windows import WINDOWS, learn_windows, without_generator

if TYPE_CHECKING:
    from merit.propensity.states_model import Propensity

STANDARD = "standard"
BLOCK = 8_192  # users encoded at a time
MADE = {
    QUICK: "the factor model in closed form, calibrated; no generator",
    STANDARD: "a generator trained by self-correction, on top of the factor model, calibrated",
}
WEAK = 2.0  # a vertical whose calibration error is so many times the overall one is named in the card


class ModelConfig(Frozen):
    """How the model's folder is laid out, and what audiences of a window are learnt from."""

    projections: Form = Field("float32")
    """How projections of users and labels are stored: float32, float16 or int8. Answers do not change, only their
    speed."""
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
    import torch

    from merit.propensity.states import read_features
    from merit.propensity.train import load_scorer

    scorer, (users, features) = load_scorer(propensity, labels), read_features(corpus, states, NOW)
    parents = {"propensity": propensity, "states": states, "generator": generator, "corpus": corpus}
    parents |= {"labels": labels, "results": results}
    with torch.inference_mode():
        vectors = scorer.model.labels(torch.from_numpy(scorer.texts), torch.arange(len(scorer.texts))).numpy()
    parts = ModelParts(
        preset=STANDARD,
        weights=weights_of(scorer.model),
        repeat=scorer.model.repeat.detach().numpy(),
        label_repeats=scorer.repeats.numpy(),
        user_vectors=lambda part: scorer.vectors(part).numpy(),
        label_vectors=_at_the_end(vectors, features, float(scorer.model.trend_weight.detach().sum())),
        likely_weight=scorer.model.likely_weight.item(),
        encode=None if scorer.model.reads_states else without_generator(scorer, corpus, space.load(labels.path)),
    )
    return _write(parts, users, features, parents, ("labels", "propensity", "generator"), out, config, seed)


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
    parts = ModelParts(
        preset=QUICK,
        weights=quick_weights(scorer),
        repeat=scorer.weights.repeat,
        label_repeats=scorer.label_repeats,
        user_vectors=scorer.users,
        label_vectors=_at_the_end(scorer.label_vectors, features, float(scorer.weights.trend_weight.sum())),
        encode=lambda items: QuickEncoder(scorer, catalogue).encode(items, items).vectors,
    )
    return _write(parts, users, features, parents, ("labels", "propensity"), out, config, seed)


@dataclass(frozen=True)
class ModelParts:
    """What a model's folder is made of, as plain arrays."""

    preset: str
    weights: ScorerWeights
    repeat: Floats  # (3,)
    label_repeats: Floats  # (C,)
    user_vectors: Callable[[UserFeatures], Floats]
    label_vectors: Floats
    encode: Callable[[Ragged], Floats] | None
    """(users, width) of histories of items, where that needs no generator."""
    likely_weight: float = 0.0
    """Of the labels that the generator finds likely."""

    def factors(self, items: Ragged) -> Floats:
        """(users, R) of histories of items; zeros where a generator would have to read them."""
        if self.encode is None:
            return np.zeros((len(items), len(self.weights.P_u)), np.float32)
        factors: Floats = self.encode(items) @ self.weights.P_u.T
        return factors


def _write(
    parts: ModelParts,
    users: pl.DataFrame,
    features: UserFeatures,
    parents: Mapping[str, Artifact],
    kept: Iterable[str],
    out: Path,
    config: ModelConfig,
    seed: int,
) -> Artifact:
    """The folder; `kept` names the parents that go into it."""
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
        sides: dict[str, tuple[int, Iterable[Floats], Projection]] = {
            "users": (len(users), user_vectors, exact.users),
            "interests": (len(label_space), [parts.label_vectors], exact.labels),
        }
        for name, (rows, blocks, projection) in sides.items():
            (draft.path / name).mkdir()
            with console.spinner(f"storing {rows:,} {name}"):
                store.write(draft.path / name, rows, blocks, projection, config.projections)
        with console.spinner("learning windows"):
            factors = parts.label_vectors @ parts.weights.P_e.T
            learnt = learn_windows(users, corpus, label_space, factors, parts.factors, config.windows, seed)
        if learnt:
            (draft.path / WINDOWS).write_text(learnt.model_dump_json(indent=1) + "\n", encoding="utf-8")
        card = _card(parts.preset, parents["propensity"], corpus, labels, parents["results"], label_space)
        (draft.path / "README.md").write_text(card, encoding="utf-8")
        draft.summary |= {"users": len(users), "labels": len(label_space), "label_version": label_space.version}
        window = {name: getattr(ExamplesConfig(), name) for name in ("history_days", "gap_days")}
        made = window | corpus.manifest.summary  # an older corpus does not say
        draft.summary |= {"preset": parts.preset} | {name: made[name] for name in ("last", *window)}
    return artifacts.load(out, "model")


def weights_of(model: Propensity) -> ScorerWeights:
    """The layers and factors of a trained model as plain arrays; without a scorer of states its layers are empty."""
    import torch

    same, width = torch.eye(model.factors), model.of_text.shape[1]
    values = {"P_e": torch.cat([model.of_text, same], dim=1)}
    if model.reads_states:
        unread = torch.zeros(model.of_label.out_features, min(1, model.factors))
        values |= {
            "W_u": model.of_user.weight,
            "W_e": torch.cat([model.of_label.weight, unread], dim=1),
            "d1": model.of_user.bias,
            "W2": model.second.weight,
            "d2": model.second.bias,
            "w3": model.last.weight[0],
            "d3": model.last.bias + model.bias.sum(),
            "P_u": torch.cat([torch.zeros(model.factors, model.of_user.in_features - model.factors), same], dim=1),
        }
    else:
        none = torch.zeros(0)
        values |= {
            "W_u": torch.zeros(0, model.factors),
            "W_e": torch.zeros(0, width + model.factors),
            "W2": torch.zeros(0, 0),
            **dict.fromkeys(("d1", "d2", "w3"), none),
            "d3": model.bias.sum(),
            "P_u": same,
        }
    return ScorerWeights.of({name: value.detach().numpy() for name, value in values.items()})


def quick_weights(scorer: FactorScorer) -> ScorerWeights:
    """The factors of a quick model as plain arrays. Its MLP is one unit that adds nothing."""
    factors, text = scorer.weights.of_text.shape
    shapes = {"W_u": (1, factors), "W_e": (1, text + factors), "d1": (1,), "W2": (1, 1), "d2": (1,), "w3": (1,)}
    nothing = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    same = np.eye(factors, dtype=np.float32)
    projections = {"P_u": same, "P_e": np.concatenate([scorer.weights.of_text, same], axis=1)}
    return ScorerWeights.of(nothing | projections | {"d3": scorer.weights.bias})


def _at_the_end(vectors: Floats, now: UserFeatures, trend_weight: float) -> Floats:
    """The vectors of all labels with their popularity of the last week: all users are scored for it."""
    if trend_weight and now.trends and len(now):
        vectors = vectors.copy()
        vectors[:, -1] += trend_weight * now.trends.gather(np.arange(1)).of(np.arange(len(vectors)))[0]
    return vectors


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
