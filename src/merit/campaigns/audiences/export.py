"""Finished audiences: opened, written as files for other programs and spreadsheets, and compared with each other.

A cell that begins with =, +, −, @ or a tab is run as a formula by spreadsheets: an id such as =HYPERLINK(…) would send
away what stands beside it. In CSV such a cell gets an apostrophe in front, and every text stands in quotes, so that a
spreadsheet with another separator does not cut a formula out of its middle. Parquet and JSONL keep texts as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from itertools import combinations
from pathlib import Path
from typing import Literal

import polars as pl

from merit.campaigns.audiences.audience import ARMS, TREATED, AudienceSummary, require_enough
from merit.campaigns.audiences.eligibility import Attribute
from merit.campaigns.audiences.products import texts_of_rules
from merit.campaigns.audiences.request import AudienceRequest
from merit.core import artifacts
from merit.core.artifacts import Artifact
from merit.core.config import Frozen
from merit.core.errors import ConfigError, MissingArtifact, PolicyError
from merit.labels import policy
from merit.privacy import audit
from merit.privacy.hidden import Hidden
from merit.report.page import SMALLEST_CELL, TOO_FEW
from merit.retrieval.model import Model

AUDIENCE, EXPORT = "audience", "audience-export"
ALL_ARMS = "all"
Form = Literal["parquet", "csv", "jsonl"]
File = Path | BytesIO
MARK = "'"
# What begins a formula, in the widths that spreadsheets fold together, behind anything a spreadsheet skips or strips.
DANGEROUS = r"^[\s\p{C}\p{Z}]*[=+\-−@＝＋－＠|%'\"]|^[\t\r\n]"


@artifacts.opens
def load_summary(audience: Artifact) -> AudienceSummary:
    """The figures as they were when the audience was built; users erased since then still count."""
    return AudienceSummary.model_validate_json(audience.file("audience.json").read_text(encoding="utf-8"))


def model_folder(audience: Artifact, given: Path | None) -> Path:
    """The model to judge an export by: the given one, or the one the audience was made with, if it is still there."""
    folder = given or audience.path.parent / audience.manifest.parents["model"].path
    if given is None and not (folder / artifacts.MANIFEST).exists():
        raise MissingArtifact(f"The model of {audience.path} is no longer at {folder}. Name one with --model FOLDER.")
    return folder


def require_allowed(model: Model, request: AudienceRequest) -> None:
    """Refuse sensitive attributes, seeds and labels: they can give away what an interest may not."""
    rules = [rule for rule in request.rules if isinstance(rule, Attribute)]
    texts = [text for rule in rules for text in (rule.column.replace("_", " "), *rule.among, *rule.not_among)]
    texts += [request.lookalike.about] if request.lookalike else []
    texts += [text for rule in request.rules for text in getattr(rule, "interests", ())]
    texts += texts_of_rules(request)
    if not texts:
        return
    terms = policy.load(model.artifact.file("labels") / "policy.toml")
    for text, verdict in zip(texts, policy.by_words(texts, terms), strict=True):
        if verdict:
            raise PolicyError(
                f"'{text}' is blocked by the sensitive-interest policy: {verdict.category}, by the word "
                f"'{verdict.matched}'. People are not chosen by it (docs/policy.md)."
            )


class ExportConfig(Frozen):
    """The settings in the manifest of an export."""

    form: Form
    arm: str


def export(
    audience: Artifact, model: Model, form: Form, out: Path, arm: str = TREATED, log: Path | None = None, **by: str
) -> Artifact:
    """Members as a file with a manifest: those to be contacted, or another arm, or "all" of them.

    Interests are checked once more, by this model's label space: what was blocked since is not sent. The audit log is
    beside the audience, or in the folder `log`; `by` says in it who exported.
    """
    chosen, rows = leaving(audience, model, arm)
    with artifacts.writing(
        out, EXPORT, config=ExportConfig(form=form, arm=arm), parents={"audience": audience}
    ) as draft:
        file = draft.path / f"audience.{form}"
        WRITERS[form](chosen, file)
        draft.summary |= {"rows": rows, "arm": arm}
        if form == "csv":
            draft.summary["ids marked against formulas"] = marked(chosen)
        facts = {"audience": audience.manifest.hash, "arm": arm, "form": form, "rows": rows}
        sha256 = artifacts.hash_file(file)
        audit.append(log or audience.path.parent, "export", **facts, sha256=sha256, **by)  # first: none goes unlogged
    return artifacts.load(out, EXPORT)


def leaving(audience: Artifact, model: Model, arm: str = TREATED) -> tuple[pl.LazyFrame, int]:
    """The members of an arm that may leave, and how many: the one door of every export and every sync.

    Refused are an audience with an interest that the policy of this model's label space blocks, and fewer than a
    hundred members. Users who are being erased are not among them.
    """
    summary = load_summary(audience)
    require_allowed(model, summary.request)
    for interest in summary.interests:
        model.interest(interest.text)
    if arm not in (*ARMS, ALL_ARMS):
        raise ConfigError(f"There is no arm '{arm}'. Choose one of {', '.join((*ARMS, ALL_ARMS))}.")
    members = _members(audience, model)
    chosen = members if arm == ALL_ARMS else members.filter(pl.col("arm") == arm)
    rows = int(chosen.select(pl.len()).collect(engine="streaming").item())
    require_enough(rows, ())
    return chosen, rows


def _members(audience: Artifact, model: Model | None = None) -> pl.LazyFrame:
    """Without users who are being erased."""
    hidden = Hidden(audience.path.parent).users() | (model.visible().hidden if model else frozenset())
    return pl.scan_parquet(audience.file("members.parquet")).filter(~pl.col("user_id").is_in(list(hidden)))


def safe(texts: pl.Expr) -> pl.Expr:
    """The texts as cells that no spreadsheet runs. A leading apostrophe is doubled, so the mark can be taken off."""
    return pl.when(texts.str.contains(DANGEROUS)).then(pl.concat_str(pl.lit(MARK), texts)).otherwise(texts)


def unmarked(texts: pl.Expr) -> pl.Expr:
    """The texts that `safe` was given."""
    return texts.str.strip_prefix(MARK)


def marked(members: pl.LazyFrame) -> int:
    """How many ids differ in CSV from what they are."""
    return int(members.select(pl.col("user_id").str.contains(DANGEROUS).sum()).collect(engine="streaming").item())


def _csv(members: pl.LazyFrame, file: File) -> None:
    texts = [name for name, dtype in members.collect_schema().items() if dtype in (pl.String, pl.Enum)]
    safe_texts = members.with_columns(safe(pl.col(name).cast(pl.String)).alias(name) for name in texts)
    safe_texts.sink_csv(file, quote_style="non_numeric")


WRITERS: dict[Form, Callable[[pl.LazyFrame, File], None]] = {
    "parquet": lambda members, file: members.sink_parquet(file),
    "csv": _csv,
    "jsonl": lambda members, file: members.sink_ndjson(file),
}


def load_overlaps(folders: Sequence[Path]) -> pl.DataFrame:
    """The overlaps of audiences that were built into these folders."""
    audiences = {str(folder): artifacts.load(folder, AUDIENCE) for folder in folders}
    if len(audiences) < 2:
        raise ConfigError("An overlap needs at least two audiences, each named once.")
    return overlaps({name: _members(audience).collect() for name, audience in audiences.items()})


def overlaps(audiences: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """The users that every pair of audiences (name → user_id, arm) shares; nothing exact about fewer than 50 users."""
    rows = []
    for (first, one), (second, two) in combinations(audiences.items(), 2):
        shared = one.select("user_id", "arm").join(two.select("user_id", "arm"), on="user_id", suffix="_second")
        both, at_odds = len(shared), int(((shared["arm"] == TREATED) != (shared["arm_second"] == TREATED)).sum())
        parts = (both, len(one) - both, len(two) - both)  # with the sizes known, each part gives the others away
        public = all(part == 0 or part >= SMALLEST_CELL for part in parts)
        roughly = TOO_FEW if both < SMALLEST_CELL else f"all but {TOO_FEW} of the smaller"
        row = {
            "first": first,
            "users": f"{len(one):,}",
            "second": second,
            "users of it": f"{len(two):,}",
            "in both": f"{both:,}" if public else roughly,
            "of the first": f"{100 * both / len(one):.1f} %" if public else "–",
            "of the second": f"{100 * both / len(two):.1f} %" if public else "–",
            "arms at odds": f"{at_odds:,}" if at_odds >= SMALLEST_CELL else TOO_FEW,
        }
        rows.append(row)
    return pl.DataFrame(rows)
