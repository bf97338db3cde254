"""propensity: states and mined labels → a calibrated model of who wants what.

The artifact: model.safetensors, calibration.json, and reliability.parquet: what the model promised the test users and
what came true, by probability and vertical. The model sees train users, the curve validation users, the table test
users.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from pydantic import Field
from safetensors.torch import load_file, save_file

from merit.core import artifacts, console
from merit.core.artifacts import Artifact
from merit.core.config import Frozen
from merit.core.errors import DamagedArtifact, DataError
from merit.core.ragged import column_lists
from merit.core.seeds import stream
from merit.core.types import Floats, Ints
from merit.evaluation import calibration
from merit.evaluation.calibration import Bins
from merit.labels import space
from merit.labels.build import load_vectors
from merit.propensity.calibration import CalibrationCurve, ScoreTally, calibrate
from merit.propensity.features import UserFeatures
from merit.propensity.linear import FactorsConfig, fit_factors
from merit.propensity.negatives import NegativesConfig, Sampler, make_sampler
from merit.propensity.states import WORDS, read_purchases, read_states
from merit.propensity.states_model import Propensity, PropensityConfig
from merit.propensity.training import PropensityFitConfig, fit, user_vectors

GRID = 1 << 22  # numbers of the hidden layer at a time


class PropensityRun(Frozen):
    """All that decides what this stage makes."""

    model: PropensityConfig = PropensityConfig()
    factors: FactorsConfig = FactorsConfig()
    negatives: NegativesConfig = NegativesConfig()
    fit: PropensityFitConfig = PropensityFitConfig()
    calibration_pairs: int = Field(20_000_000, ge=1)
    """Pairs of user and label that calibration and its check look at, at most; whole users are left out beyond."""


@dataclass(frozen=True)
class TrainedScorer:
    """A trained model with the halves of all labels. Scores are log-odds before calibration."""

    model: Propensity
    labels: int
    """k_g: states that make a user."""
    texts: Floats
    """By label: its text vector."""
    halves: torch.Tensor  # (C, hidden + factors)
    repeats: torch.Tensor  # (C,)
    live: NDArray[np.bool_]
    calibration: CalibrationCurve | None

    def vectors(self, known: UserFeatures) -> torch.Tensor:
        """(B, width + factors): the vectors of users."""
        with torch.inference_mode():
            return user_vectors(self.model, known.first(self.labels).take(np.arange(len(known))), self.texts)

    def users(self, known: UserFeatures) -> EncodedUsers:
        """Users ready to be scored."""
        with torch.inference_mode():
            return EncodedUsers(self.model.user_halves(self.vectors(known)), known)

    def grid(self, users: EncodedUsers, labels: Ints) -> Floats:
        """(B, labels): all pairs."""
        chosen = self.halves[torch.from_numpy(labels)]
        step = max(1, GRID // max(1, chosen.numel()))
        with torch.inference_mode():
            blocks = [
                self.model.score(users.halves[at : at + step, None], chosen)
                + self.model.repeats(*users.had(at, at + step, labels, len(self.live)), self.repeats[labels])
                for at in range(0, len(users), step)
            ]
            scores = torch.cat(blocks)
            if users.known.lately:
                scores += self.model.trend(torch.from_numpy(users.known.lately.of(labels)))
        found: Floats = scores.numpy()
        return found


@dataclass(frozen=True)
class EncodedUsers:
    """Users encoded once, to be scored against any labels."""

    halves: torch.Tensor  # (B, hidden + factors)
    known: UserFeatures

    def __len__(self) -> int:
        return len(self.halves)

    def part(self, start: int, stop: int) -> EncodedUsers:
        """From start to stop, without copying."""
        return EncodedUsers(self.halves[start:stop], self.known.part(start, stop))

    def had(self, start: int, stop: int, labels: Ints, n_labels: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Both (users, labels): how often users from start to stop had a label, and its share of their history."""
        rows = np.arange(start, min(stop, len(self)))
        found = self.known.had(rows, np.broadcast_to(labels, (len(rows), len(labels))), n_labels)
        return torch.from_numpy(found.times), torch.from_numpy(found.shares)


def train_propensity(
    states: Artifact, mined: Artifact, labels: Artifact, out: Path, config: PropensityRun, seed: int
) -> Artifact:
    """Train on train users, calibrate on validation users, check on test users."""
    known, vectors = space.load(labels.path), load_vectors(labels)
    people, kept = read_states(states, "train")
    bought, buyers = read_purchases(states)
    live = known.live_mask()
    sampler = _sampler(people, mined, live, config)
    words = json.loads(states.file(WORDS).read_text(encoding="utf-8"))
    model = make_model(config.model, kept.states.values.shape[2], vectors.shape[1], live, seed, len(words))
    verticals = known.table["vertical"].fill_null("unknown")
    parents = {"states": states, "mined": mined, "labels": labels}
    with artifacts.writing(out, "propensity", config=config, seed=seed, parents=parents) as draft:
        first = fit_factors(model, buyers, bought, np.flatnonzero(live), vectors, config.factors, seed)
        losses = fit(model, kept.first(config.model.labels), sampler, vectors, config.fit, seed)
        scorer = _scorer(model, config, vectors, live, None)
        curve = _calibrated(scorer, states, config)
        found = _checked(scorer, curve, states, verticals, config)
        save_file(model.state_dict(), draft.path / "model.safetensors")
        shutil.copyfile(states.file(WORDS), draft.path / WORDS)
        (draft.path / "calibration.json").write_text(json.dumps(asdict(curve)), encoding="utf-8")
        found.write_parquet(draft.path / "reliability.parquet")
        overall = calibration.summary(found)
        draft.summary |= {
            "parameters": sum(value.numel() for value in model.parameters()),
            "factor_losses": [round(loss, 4) for loss in first],
            "losses": [round(loss, 4) for loss in losses],
            "ece": overall.ece,
            "brier": overall.brier,
            "state_width": kept.states.values.shape[2],
        } | _false_negatives(mined)
    return artifacts.load(out, "propensity")


def load_scorer(propensity: Artifact, labels: Artifact) -> TrainedScorer:
    """A trained model over a label space (that of its training, or a later version: new labels speak by their text)."""
    config = PropensityRun.model_validate(propensity.manifest.config)
    known, vectors = space.load(labels.path), load_vectors(labels)
    trained = load_file(propensity.file("model.safetensors"))
    if len(trained["trained"]) > len(known):
        raise DataError(
            f"{propensity.path} was trained on {len(trained['trained']):,} labels, but {labels.path} has only "
            f"{len(known):,}. Use the label space of its training, or a later version of that."
        )
    width = propensity.manifest.summary["state_width"]
    words = len(trained["word_says"])
    model = make_model(config.model, width, vectors.shape[1], trained["trained"].numpy(), seed=0, words=words)
    try:
        model.load_state_dict(trained)
    except RuntimeError as error:
        raise DamagedArtifact(f"{propensity.path} does not hold its model: {str(error).splitlines()[0]}") from None
    curve = CalibrationCurve(**json.loads(propensity.file("calibration.json").read_text(encoding="utf-8")))
    return _scorer(model.eval(), config, vectors, known.live_mask(), curve)


def make_model(
    config: PropensityConfig, state_width: int, vector_width: int, trained: NDArray[np.bool_], seed: int, words: int
) -> Propensity:
    """Untrained, its weights drawn by the seed; `trained` tells by label whether training sees it."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(stream(seed, "propensity-weights").integers(2**63)))
        return Propensity(config, state_width, vector_width, torch.from_numpy(trained), words)


def _scorer(
    model: Propensity,
    config: PropensityRun,
    vectors: Floats,
    live: NDArray[np.bool_],
    curve: CalibrationCurve | None,
) -> TrainedScorer:
    with torch.inference_mode():
        table = model.labels(torch.from_numpy(vectors), torch.arange(len(vectors)))
        halves, repeats = model.label_halves(table), model.label_repeats(table)
    return TrainedScorer(model, config.model.labels, vectors, halves, repeats, live, curve)


def _sampler(people: pl.DataFrame, mined: Artifact, live: NDArray[np.bool_], config: PropensityRun) -> Sampler:
    table = pl.read_parquet(mined.file("mined.parquet"))
    if len(table) != len(people):
        raise DataError(f"{mined.path} has {len(table)} examples, the states have {len(people)}. Mine again.")
    gold, wrong = column_lists(people["gold"]), column_lists(table["labels"])
    hits, counts = (column_lists(table[name]).values for name in ("hits", "counts"))
    return make_sampler(gold, hits, wrong, counts, live, config.negatives)


def _false_negatives(mined: Artifact) -> dict[str, float]:
    """How many of the mined labels the same user bought later: early, not wrong."""
    report = mined.manifest.summary
    return {"mined": report["mined"], "later_bought_share": report["later_bought_share"]}


def _grids(
    scorer: TrainedScorer, states: Artifact, split: str, pairs: int
) -> Iterator[tuple[Floats, NDArray[np.bool_]]]:
    """Scores and truth of all live labels for users of a split, block by block, until so many pairs are seen."""
    people, kept = read_states(states, split)
    live = np.flatnonzero(scorer.live)
    gold = column_lists(people["gold"])
    users = min(len(people), max(1, pairs // len(live)))
    block = max(1, GRID // len(live))
    starts = range(0, users, block)
    for at in console.track(starts, f"scoring {split} users", total=len(starts)):
        part = kept.part(at, at + block)
        truth = np.zeros((len(part), len(scorer.live)), dtype=bool)
        labels, sizes = gold.take(np.arange(at, at + len(part)))
        truth[np.repeat(np.arange(len(part)), sizes), labels] = True
        yield scorer.grid(scorer.users(part), live), truth[:, live]


def _calibrated(scorer: TrainedScorer, states: Artifact, config: PropensityRun) -> CalibrationCurve:
    tally = ScoreTally.empty()
    for scores, truth in _grids(scorer, states, "validation", config.calibration_pairs):
        tally.add(scores.ravel(), truth.ravel())
    return calibrate(tally)


def _checked(
    scorer: TrainedScorer, curve: CalibrationCurve, states: Artifact, verticals: pl.Series, config: PropensityRun
) -> pl.DataFrame:
    """What was promised to test users and what came true, by probability and vertical of the label."""
    names = verticals.unique().sort()
    of_label = names.search_sorted(verticals).to_numpy()[np.flatnonzero(scorer.live)]
    bins = Bins.empty(len(names))
    for scores, truth in _grids(scorer, states, "test", config.calibration_pairs):
        bins.add(curve.probability(scores), truth, np.broadcast_to(of_label, scores.shape))
    return bins.table(names.to_list())
