"""audience: a model and a request → who is addressed, in which arm, and what to expect; then a file to send.

The artifact: members.parquet, audience.json (figures), request.json (give it to `build` again), index.html.

A lookalike ranks users by their likeness to seeds. Fisher's discriminant over user vectors: w = (Σ + λ)⁻¹ (mean of the
seeds − mean of all). The likeness is the place along w, where the mean of all users is 0 and the mean of the seeds 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from merit.campaigns import tables
from merit.campaigns.audiences.audience import (
    Audience,
    AudienceProvenance,
    AudienceSummary,
    ResolvedInterest,
    ScoredUsers,
    compose,
)
from merit.campaigns.audiences.eligibility import Mask, waterfall
from merit.campaigns.audiences.export import AUDIENCE, require_allowed
from merit.campaigns.audiences.forecast import CombinedScores, Reals, ReliabilityBins, combined
from merit.campaigns.audiences.report import audience_page
from merit.campaigns.audiences.request import AudienceRequest, Lookalike, ProductList
from merit.campaigns.audiences.windows import only_new, window_scores
from merit.core import artifacts
from merit.core.artifacts import Artifact
from merit.core.errors import ConfigError, DataError, PolicyError
from merit.core.ragged import column_lists, owners
from merit.core.types import Floats, Ints
from merit.data.sources import files
from merit.evaluation import calibration
from merit.privacy import pseudonyms
from merit.privacy.floor import SMALLEST
from merit.report import page
from merit.retrieval import store
from merit.retrieval.exact import Exact
from merit.retrieval.model import Model
from merit.retrieval.query import Interest
from merit.retrieval.users import VisibleUsers
from merit.retrieval.windows import WindowQuery

Scorer = Callable[
    [Interest | WindowQuery], Reals
]  # what is scored → the probability of all users, hidden ones included
Blocks = Callable[[], Iterator[Floats]]  # a pass over all user vectors, in blocks: they need not fit in memory
BLOCK = 65_536  # user vectors at a time
RIDGE = 1e-3  # of the mean variance: directions that hardly vary must not decide
DIGITS = 10  # kept of a likeness: the last ones differ between machines, and would shuffle ties


def preview(model: Model, request: AudienceRequest) -> AudienceSummary:
    """The figures of an audience, with noise: for whoever may not see its members. Refused where `build` would be."""
    return choose(model, request).published


def choose(model: Model, request: AudienceRequest, scores: Scorer | None = None) -> Audience:
    """The audience and its exact figures, without writing anything.

    `scores` may replace the exact probabilities, to be faster.
    """
    require_allowed(model, request)
    visible = model.visible()  # once: the hidden users may change meanwhile
    users = visible.users["user_id"]
    scores = scores or partial(model.audience_scores, exact=True)
    if request.lookalike:
        scored = _lookalike_scores(model, visible, request.lookalike)
    else:
        scored = _interest_scores(model, visible.rows, request, scores)
    eligible, steps = waterfall(request.rules, users, partial(_has_label, model, visible.users), request.as_of)
    eligible, new = only_new(request, scored, eligible)
    steps = (*steps, *new)
    if request.lookalike and scored.seeds is not None and not request.lookalike.with_seeds:
        eligible = eligible & ~scored.seeds
    origin = AudienceProvenance(
        model=model.artifact.manifest.hash,
        label_version=model.labels.version,
        users=len(users),
        tables={str(place): _hashes(place) for place in _tables(request)},
    )
    scored = replace(scored, secret=model.artifact.manifest.files["mlp.safetensors"].sha256)
    audience = compose(request, users, scored, eligible, steps, origin)
    return replace(audience, rows=visible.rows[audience.rows])


def build(model: Model, request: AudienceRequest, out: Path) -> Artifact:
    """The audience as an artifact. The same model, tables and request give the same bytes."""
    audience = choose(model, request)
    inputs = {str(place): files.fingerprint(files.find(place, "table = PATH"), place) for place in _tables(request)}
    with artifacts.writing(out, AUDIENCE, config=request, parents={"model": model.artifact}, inputs=inputs) as draft:
        audience.members.write_parquet(draft.path / "members.parquet")
        for name, values in (("audience", audience.figures), ("request", request)):
            (draft.path / f"{name}.json").write_text(values.model_dump_json(indent=1) + "\n", encoding="utf-8")
        (draft.path / "index.html").write_text(page.render(audience_page(audience.figures)), encoding="utf-8")
        draft.summary |= {"members": audience.figures.members, **audience.figures.arms}
        draft.summary["members, published"] = audience.published.members
    return artifacts.load(out, AUDIENCE)


def _has_label(model: Model, users: pl.DataFrame, texts: Sequence[str]) -> Mask:
    """Which users have one of the labels in the history that the model has read."""
    labels, histories = model.labels.find(list(texts)), column_lists(users["history"])
    if unknown := [text for text, label in zip(texts, labels.tolist(), strict=True) if label < 0]:
        raise DataError(f"Histories hold labels, and '{unknown[0]}' is none. Name a label of the model.")
    owner = owners(histories)
    return np.bincount(owner[np.isin(histories.values, labels)], minlength=len(histories)) > 0


def _tables(request: AudienceRequest) -> list[Path]:
    """Every table the request names, once."""
    named = [getattr(rule, "table", None) for rule in request.rules]
    named += [request.lookalike.table] if request.lookalike else []
    named += [part.table for part in request.products if isinstance(part, ProductList)]
    named += [request.uplift.table] if request.uplift else []
    return sorted({place for place in named if place})


def _hashes(place: Path) -> dict[str, str]:
    root = place if place.is_dir() else place.parent
    return {file.relative_to(root).as_posix(): artifacts.hash_file(file) for file in files.find(place, "table = PATH")}


def _interest_scores(model: Model, rows: Ints, request: AudienceRequest, scores: Scorer) -> ScoredUsers:
    interests = [model.interest(interest.text) for interest in request.interests]
    weights = [interest.weight for interest in request.interests]
    texts = [interest.text for interest in interests]
    if len(set(texts)) < len(texts):
        twice = next(text for text in texts if texts.count(text) > 1)
        raise ConfigError(f"Two of the interests are names of '{twice}'. Name it once.")
    resolved = tuple(
        ResolvedInterest(
            text=interest.text,
            label=interest.label,
            nearest=interest.nearest,
            similarity=round(interest.similarity, 4),
            far=interest.far,
            weight=weight,
        )
        for interest, weight in zip(interests, weights, strict=True)
    )
    if request.within:
        return replace(window_scores(model, request, rows, interests, scores), interests=resolved)
    columns = (scores(interest) for interest in interests)
    visible = (column if len(column) == len(rows) else column[rows] for column in columns)
    bins = calibration.by_bin(pl.read_parquet(model.artifact.file("propensity") / "reliability.parquet"))
    low, promised, true = (bins[name].to_numpy() for name in ("low", "promised", "true"))
    reliability = ReliabilityBins(low, promised, true)
    return ScoredUsers(combined(zip(visible, weights, strict=True), request.combine), resolved, reliability)


def _lookalike_scores(model: Model, visible: VisibleUsers, lookalike: Lookalike) -> ScoredUsers:
    user = pseudonyms.column(lookalike.user)
    with tables.scanning(
        lookalike.table, "lookalike.table =", [lookalike.user], lambda frame, _: frame.select(user)
    ) as ids:
        listed = ids.unique().collect(engine="streaming").to_series()
    seeds = visible.users["user_id"].is_in(listed.implode()).to_numpy()
    if seeds.sum() < SMALLEST:
        raise PolicyError(
            f"Fewer than {SMALLEST} users of {lookalike.table} are known to the model: users like so few are a "
            "description of them. Give more seeds, with ids as in the model."
        )
    exact = Exact.read(model.artifact.file("mlp.safetensors"))
    vectors = store.read(model.artifact.file("users"), exact.users).vectors

    def blocks() -> Iterator[Floats]:
        vectors.check()
        return (vectors.take(visible.rows[start : start + BLOCK]) for start in range(0, len(seeds), BLOCK))

    scores = likeness(blocks, seeds)
    return ScoredUsers(CombinedScores(scores, scores, scores), seeds=seeds, separation=separation(blocks, seeds))


def likeness(blocks: Blocks, seeds: Mask) -> Reals:
    """(users,): 0 for the mean of all, 1 for the mean of the seeds."""
    mean, covariance, apart = _moments(blocks, seeds)
    scale = np.trace(covariance) / len(mean)
    if not scale > 0 or not np.abs(apart).max() > 1e-9 * np.sqrt(scale):
        raise DataError("The seeds do not differ from all users in what the model knows. Choose other seeds.")
    direction = np.linalg.solve(covariance + RIDGE * scale * np.eye(len(mean)), apart)
    direction = direction / (direction @ apart)
    return np.concatenate([np.round((block - mean) @ direction, DIGITS) for block in blocks()])


def _moments(blocks: Blocks, seeds: Mask) -> tuple[Reals, Reals, Reals]:
    """The mean of all users, their covariance, and how far the mean of the seeds is from the mean of all."""
    start, sums = 0, []
    for block in (block.astype(np.float64) for block in blocks()):
        sums.append((block.sum(axis=0), block.T @ block, block[seeds[start : start + len(block)]].sum(axis=0)))
        start += len(block)
    total, products, seed_total = (np.sum(parts, axis=0) for parts in zip(*sums, strict=True))
    mean = total / len(seeds)
    return mean, products / len(seeds) - np.outer(mean, mean), seed_total / seeds.sum() - mean


def separation(blocks: Blocks, seeds: Mask) -> float:
    """How well one half of the seeds finds the other: the mean AUC of the held-out half against users who are none."""
    rows, results = np.flatnonzero(seeds), []
    for half in (0, 1):
        used = np.zeros_like(seeds)
        used[rows[half::2]] = True
        scores = likeness(blocks, used)
        results.append(auc(scores[seeds & ~used], scores[~seeds]))
    return float(np.mean(results))


def auc(positives: Reals, negatives: Reals) -> float:
    """The probability that a positive is above a negative, ties counting half."""
    ranked = np.sort(negatives)
    below = np.searchsorted(ranked, positives, side="left") + np.searchsorted(ranked, positives, side="right")
    return float(below.mean() / 2 / max(1, len(negatives)))
