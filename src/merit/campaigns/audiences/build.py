"""audience: a model and a request → who is addressed, in which arm, and what to expect; then a file to send.

    model = merit.load("runs/demo")
    asked = request.read(Path("spring.toml"))
    preview(model, asked).figures                 # nothing is written
    build(model, asked, Path("runs/spring/audience"))
    export(opened(Path("runs/spring/audience")), model, "csv", Path("runs/spring/send"))

The artifact: members.parquet, audience.json (figures), request.json (give it to `build` again), index.html.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import polars as pl
from safetensors.numpy import load_file

from merit.campaigns import tables
from merit.campaigns.audiences import export as exports
from merit.campaigns.audiences import lookalike, overlap
from merit.campaigns.audiences.audience import (
    ARMS,
    Audience,
    AudienceProvenance,
    AudienceSummary,
    ResolvedInterest,
    ScoredUsers,
    compose,
    require_enough,
)
from merit.campaigns.audiences.combine import CombinedScores, Reals, combined
from merit.campaigns.audiences.eligibility import Mask, waterfall
from merit.campaigns.audiences.export import Form
from merit.campaigns.audiences.forecast import ReliabilityBins
from merit.campaigns.audiences.overlap import TREATED, Overlap
from merit.campaigns.audiences.report import audience_page
from merit.campaigns.audiences.request import SMALLEST, AudienceRequest
from merit.campaigns.audiences.rules import Attribute
from merit.core import artifacts
from merit.core.artifacts import Artifact
from merit.core.config import Frozen
from merit.core.errors import ConfigError, DataError, MissingArtifact, PolicyError
from merit.core.ragged import column_lists
from merit.core.types import Floats, Ints
from merit.data.sources import files
from merit.evaluation import calibration
from merit.labels import policy
from merit.labels.space import LabelSpace
from merit.privacy import audit, pseudonyms
from merit.privacy.hidden import Hidden
from merit.report import page
from merit.retrieval import mlp, store
from merit.retrieval.exact import Exact

AUDIENCE, EXPORT = "audience", "audience-export"
EVERYONE = "all"
BLOCK = 65_536  # user vectors at a time


class Model(Protocol):
    """What is asked of a `merit.Model`. It stands behind the stages, so they cannot import it."""

    artifact: Artifact
    labels: LabelSpace

    def visible(self) -> Any:
        """The users who may be told of now, and their rows among the stored ones."""
        ...

    def interest(self, text: str) -> Any:
        """What a text means; blocked ones are refused."""
        ...

    def audience_scores(self, interest: Any, exact: bool = False) -> Reals:
        """(stored users,): probabilities, those who are hidden included."""
        ...


Scores = Callable[[Any], Reals]  # an interest → the probability of all users, those who are hidden included


def preview(model: Model, request: AudienceRequest, scores: Scores | None = None) -> Audience:
    """Everything about an audience, and nothing written. Refused where `build` would refuse.

    `scores` may stand in for exact ones, to be faster.
    """
    _require_harmless(model, request)
    everybody = model.visible()  # asked once: who is hidden may change meanwhile
    users = everybody.users["user_id"]
    if request.lookalike:
        scored = _looked_alike(model, everybody, request)
    else:
        scored = _wanted(model, everybody.rows, request, scores or partial(model.audience_scores, exact=True))
    eligible, steps = waterfall(request.rules, users, partial(_had, model, everybody.users), request.as_of)
    if request.lookalike and scored.seeds is not None and not request.lookalike.with_seeds:
        eligible = eligible & ~scored.seeds
    origin = AudienceProvenance(
        model=model.artifact.manifest.hash,
        label_version=model.labels.version,
        users=len(users),
        tables={str(place): _hashes(place) for place in _tables(request)},
    )
    made = compose(request, users, scored, eligible, steps, origin)
    return replace(made, rows=everybody.rows[made.rows])


def build(model: Model, request: AudienceRequest, out: Path) -> Artifact:
    """The audience as an artifact. The same model, tables and request give the same bytes."""
    made = preview(model, request)
    with artifacts.writing(
        out,
        AUDIENCE,
        config=request,
        parents={"model": model.artifact},
        inputs={str(place): files.fingerprint(tables.find(place, "table ="), place) for place in _tables(request)},
    ) as draft:
        made.members.write_parquet(draft.path / "members.parquet")
        for name, values in (("audience", made.figures), ("request", request)):
            (draft.path / f"{name}.json").write_text(values.model_dump_json(indent=1) + "\n", encoding="utf-8")
        (draft.path / "index.html").write_text(page.render(audience_page(made.figures)), encoding="utf-8")
        draft.summary |= {"members": made.figures.members, **made.figures.arms}
    return artifacts.load(out, AUDIENCE)


def opened(folder: Path) -> Artifact:
    """A finished audience, or the command that makes one."""
    if not (folder / artifacts.MANIFEST).exists():
        raise MissingArtifact(
            f"{folder} holds no finished audience. Make one with `merit audience build MODEL --request FILE --out …`."
        )
    return artifacts.load(folder, AUDIENCE)


def load_summary(audience: Artifact) -> AudienceSummary:
    """As they were when the audience was built; users erased since then still count."""
    return AudienceSummary.model_validate_json(audience.file("audience.json").read_text(encoding="utf-8"))


def model_folder(audience: Artifact, given: Path | None) -> Path:
    """The model to judge an export by: the one given, or the one the audience was made with, if it is still there."""
    parent = audience.manifest.parents["model"]
    place = given or audience.path.parent / parent.path
    if given is None and not (place / artifacts.MANIFEST).exists():
        raise MissingArtifact(f"The model of {audience.path} is no longer at {place}. Name one with --model FOLDER.")
    return place


def export(
    audience: Artifact, model: Model, form: Form, out: Path, arm: str = TREATED, log: Path | None = None, **by: str
) -> Artifact:
    """Members as a file with a manifest: those to be contacted, or another arm, or "all" of them.

    Interests are judged once more, by this model's label space: what was blocked since is not sent. The audit log is
    beside the audience, or in the folder `log`; `by` tells it who asked.
    """
    figures = load_summary(audience)
    _require_harmless(model, figures.request)
    for each in figures.interests:
        model.interest(each.text)
    if arm not in (*ARMS, EVERYONE):
        raise ConfigError(f"There is no arm '{arm}'. Choose one of {', '.join((*ARMS, EVERYONE))}.")
    members = _members(audience, model)
    chosen = members if arm == EVERYONE else members.filter(pl.col("arm") == arm)
    rows = int(chosen.select(pl.len()).collect(engine="streaming").item())
    require_enough(rows, ())
    config = ExportConfig(form=form, arm=arm)
    with artifacts.writing(out, EXPORT, config=config, parents={"audience": audience}) as draft:
        exports.WRITERS[form](chosen, draft.path / f"audience.{form}")
        draft.summary |= {"rows": rows, "arm": arm}
        if form == "csv":
            draft.summary["ids marked against formulas"] = exports.marked(chosen)
        facts = {"audience": audience.manifest.hash, "arm": arm, "form": form, "rows": rows}
        sent = artifacts.hash_file(draft.path / f"audience.{form}")
        audit.append(log or audience.path.parent, "export", **facts, sha256=sent, **by)  # first: none goes unlogged
    return artifacts.load(out, EXPORT)


def _members(audience: Artifact, model: Model | None = None) -> pl.LazyFrame:
    """Without those who are being erased."""
    gone = Hidden(audience.path.parent).users() | (model.visible().hidden if model else frozenset())
    return pl.scan_parquet(audience.file("members.parquet")).filter(~pl.col("user_id").is_in(list(gone)))


class ExportConfig(Frozen):
    """What the manifest of an export says of how it was asked for."""

    form: Form
    arm: str


def overlaps(folders: Sequence[Path]) -> list[Overlap]:
    """Audiences two by two."""
    found = {str(folder): opened(folder) for folder in folders}
    if len(found) < 2:
        raise ConfigError("An overlap needs at least two audiences, each named once.")
    return overlap.overlaps({name: _members(each).select("user_id", "arm").collect() for name, each in found.items()})


# --- scores ----------------------------------------------------------------------------------------------------------


def _wanted(model: Model, rows: Ints, request: AudienceRequest, scores: Scores) -> ScoredUsers:
    meant = [model.interest(each.text) for each in request.interests]
    weights = [each.weight for each in request.interests]
    texts = [each.text for each in meant]
    if len(set(texts)) < len(texts):
        twice = next(text for text in texts if texts.count(text) > 1)
        raise ConfigError(f"Two of the interests are names of '{twice}'. Name it once.")
    told = [
        ResolvedInterest(
            text=each.text,
            label=each.label,
            nearest=each.nearest,
            similarity=round(each.similarity, 4),
            far=each.far,
            weight=weight,
        )
        for each, weight in zip(meant, weights, strict=True)
    ]
    found = combined(
        ((_of(scores(each), rows), weight) for each, weight in zip(meant, weights, strict=True)), request.combine
    )
    return ScoredUsers(found, tuple(told), _kept(model))


def _of(everybody: Reals, rows: Ints) -> Reals:
    return everybody if len(everybody) == len(rows) else everybody[rows]


def _kept(model: Model) -> ReliabilityBins:
    """How the model's probabilities did among test users."""
    bins = calibration.by_bin(pl.read_parquet(model.artifact.file("propensity") / "reliability.parquet"))
    return ReliabilityBins(*(bins[name].to_numpy() for name in ("low", "promised", "true")))


def _looked_alike(model: Model, everybody: Any, request: AudienceRequest) -> ScoredUsers:
    asked = request.lookalike
    assert asked is not None
    place = tables.find(asked.table, "lookalike.table =")
    with files.reading(place):
        frames = [
            (frame, tables.column_in(frame, asked.user, file)) for frame, file in tables.scans(place, asked.table)
        ]
        ids = pl.concat([frame.select(pseudonyms.column(asked.user)) for frame, _ in frames])
        given = ids.unique().collect(engine="streaming").to_series()
    seeds = everybody.users["user_id"].is_in(given.implode()).to_numpy()
    if seeds.sum() < SMALLEST:
        raise PolicyError(
            f"Fewer than {SMALLEST} users of {asked.table} are known to the model: users like so few are a description "
            "of them. Give more seeds, with ids as in the model."
        )
    vectors = store.read(model.artifact.file("users"), _layers(model).users).vectors

    def blocks() -> Iterator[Floats]:
        vectors.check()
        return (vectors.take(everybody.rows[start : start + BLOCK]) for start in range(0, len(seeds), BLOCK))

    scores = lookalike.likeness(blocks, seeds)
    return ScoredUsers(
        CombinedScores(scores, scores, scores), seeds=seeds, separation=lookalike.separation(blocks, seeds)
    )


def _ids(frame: pl.LazyFrame, user: str, file: str) -> pl.LazyFrame:
    tables.column_in(frame, user, file)
    return frame.select(pl.col(user).cast(pl.String))


def _layers(model: Model) -> Exact:
    return Exact.of(mlp.load(load_file(model.artifact.file("mlp.safetensors"))))


# --- eligibility -----------------------------------------------------------------------------------------------------


def _had(model: Model, users: pl.DataFrame, texts: Sequence[str]) -> Mask:
    numbers, had = model.labels.find(list(texts)), column_lists(users["history"])
    if unknown := [text for text, number in zip(texts, numbers.tolist(), strict=True) if number < 0]:
        raise DataError(f"The history knows labels, and '{unknown[0]}' is none. Name a label of the model.")
    owner = np.repeat(np.arange(len(had)), had.lengths())
    return np.bincount(owner[np.isin(had.values, numbers)], minlength=len(had)) > 0


def _require_harmless(model: Model, request: AudienceRequest) -> None:
    """Attributes, seeds and labels that were had before can give away what an interest may not."""
    rules = [rule for rule in request.rules if isinstance(rule, Attribute)]
    texts = [text for rule in rules for text in (rule.column.replace("_", " "), *rule.among, *rule.not_among)]
    texts += [request.lookalike.about] if request.lookalike else []
    texts += [text for rule in request.rules for text in getattr(rule, "interests", ())]
    if not texts:
        return
    known = policy.load(model.artifact.file("labels") / "policy.toml")
    for text, verdict in zip(texts, policy.by_words(texts, known), strict=True):
        if verdict:
            raise PolicyError(
                f"'{text}' is blocked by the sensitive-interest policy: {verdict.category}, by the word "
                f"'{verdict.matched}'. People are not chosen by it (docs/policy.md)."
            )


def _tables(request: AudienceRequest) -> list[Path]:
    """Every table the request names, once."""
    named = [getattr(rule, "table", None) for rule in request.rules]
    named += [request.lookalike.table] if request.lookalike else []
    return sorted({place for place in named if place})


def _hashes(place: Path) -> dict[str, str]:
    root = place if place.is_dir() else place.parent
    return {file.relative_to(root).as_posix(): artifacts.hash_file(file) for file in tables.find(place, "table =")}
