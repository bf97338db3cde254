"""experiment: a design frozen before launch → an assignment → outcomes analysed; and several campaigns pooled."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import date, datetime
from pathlib import Path
from typing import Any

import polars as pl
from pydantic import Field

from merit.campaigns.experiments import power, statistics
from merit.campaigns.experiments.analysis import Analysis, analyse
from merit.campaigns.experiments.assign import sample_ratio, with_arms
from merit.campaigns.experiments.checks import AnalysisContext
from merit.campaigns.experiments.design import ExperimentDesign
from merit.campaigns.experiments.lift import Lift, published
from merit.campaigns.experiments.outcomes import Outcomes, tabulate
from merit.campaigns.experiments.pooled_report import pool_page, pool_sentence
from merit.campaigns.experiments.pooling import Mixture, pool
from merit.campaigns.experiments.report import lift_page
from merit.campaigns.tables import column_in, find, repeated, scans
from merit.campaigns.words import share, signed
from merit.core import artifacts
from merit.core.artifacts import Artifact
from merit.core.config import Frozen, build
from merit.core.errors import ConfigError, DataError, MissingArtifact
from merit.data.sources import files
from merit.privacy import pseudonyms
from merit.report import page

DESIGN, ASSIGNMENT, LIFT, POOLED = "experiment-design", "assignment", "lift", "pooled-lift"
MAKERS = {
    DESIGN: "merit experiment design DESIGN.toml --out FOLDER",
    ASSIGNMENT: "merit experiment assign DESIGN --users TABLE --out FOLDER",
    LIFT: "merit experiment analyze DESIGN --table TABLE --out FOLDER",
}


def opened(folder: Path, kind: str) -> Artifact:
    """A finished artifact of the kind, or the command that makes one."""
    if not (folder / artifacts.MANIFEST).exists():
        raise MissingArtifact(f"{folder} holds no finished {kind}. Make one with `{MAKERS[kind]}`.")
    return artifacts.load(folder, kind)


def freeze(design: ExperimentDesign, out: Path) -> Artifact:
    """Write a design down, once. Its folder says when, and its hash says what."""
    if (out / artifacts.MANIFEST).exists():
        had = opened(out, DESIGN)
        if design_of(had) == design:
            return had  # with its first date
        raise ConfigError(
            f"{out} holds another design, frozen {had.manifest.created}. A design is not changed after it was written "
            "down: give the new one another --out, and its own salt."
        )
    with artifacts.writing(out, DESIGN, config=design) as draft:
        (draft.path / "design.json").write_text(design.model_dump_json(indent=1) + "\n", encoding="utf-8")
        needed = power.users_needed(design.minimum_effect, design.outlook, design.rule)
        draft.summary |= {"users needed": needed, "window": f"{design.start} to {design.end}"}
    return artifacts.load(out, DESIGN)


def design_of(artifact: Artifact) -> ExperimentDesign:
    """As it was frozen; from its file, where arms are in their order."""
    text = artifact.file("design.json").read_text(encoding="utf-8")
    return build(ExperimentDesign, json.loads(text), origin=str(artifact.path))


def power_tables(artifact: Artifact) -> list[tuple[str, list[str], list[tuple[Any, ...]]]]:
    """What the design can see, for the terminal: title, columns, rows."""
    design = design_of(artifact)
    chance = share(design.power, 0)
    needed = power.by_lift(design.minimum_effect, design.outlook, design.rule)
    rows = [(signed(lift), users, "–" if days is None else days) for lift, users, days in needed.iter_rows()]
    tables = [(f"To ship in {chance} of tests, if the lift is", ["lift", "users, all arms", "days"], rows)]
    if design.outlook.users_per_day:
        weeks = power.by_week(design.outlook, design.rule)
        rows = [(week, users, signed(lift)) for week, users, lift in weeks.iter_rows()]
        tables += [(f"What {chance} of tests find after", ["weeks", "users, all arms", "lift"], rows)]
    return tables


def assign_users(design: Artifact, users: Path, out: Path) -> Artifact:
    """An arm for every user of a table, by the design's salt and shares."""
    agreed = design_of(design)
    if agreed.salt is None:
        raise ConfigError(f"{design.path} has no salt: its users are assigned elsewhere. Freeze a design with a salt.")
    found = find(users, "--users")
    with artifacts.writing(
        out, ASSIGNMENT, config=agreed, parents={"design": design}, inputs={"users": files.fingerprint(found, users)}
    ) as draft:
        file = draft.path / "assignment.parquet"
        with files.reading(found):
            ids = pl.concat([_ids(frame, agreed.user, name) for frame, name in scans(found, users)])
            _refuse_bad_ids(ids, agreed.user, users)
            with_arms(ids, agreed.user, agreed.arms, agreed.salt).rename({"arm": agreed.arm}).sink_parquet(file)
        counted = pl.scan_parquet(file).group_by(agreed.arm).len().collect(engine="streaming")
        arms = {str(name): int(number) for name, number in counted.iter_rows()}
        draft.summary |= {"users": sum(arms.values()), **{name: arms.get(name, 0) for name in agreed.arms}}
        draft.summary["sample ratio p"] = round(sample_ratio(arms, agreed.arms), 4)
    return artifacts.load(out, ASSIGNMENT)


def _ids(frame: pl.LazyFrame, user: str, file: str) -> pl.LazyFrame:
    column_in(frame, user, file)
    return frame.select(pseudonyms.column(user))


def _refuse_bad_ids(ids: pl.LazyFrame, user: str, users: Path) -> None:
    nobody = pl.col(user).is_null() | (pl.col(user) == "")
    rows, empty = ids.select(pl.len(), nobody.sum()).collect(engine="streaming").row(0)
    if not rows or empty:
        told = f"has {empty:,} empty values of '{user}'" if rows else "has no rows"
        raise DataError(f"{users} {told}. One row per user, with an id, is needed.")
    twice = repeated(ids, user)
    if not twice.is_empty():
        raise DataError(
            f"{users}: {twice.height:,} users come more than once, {twice[user].min()!r} among them. One row per user "
            "is needed: drop the repetitions."
        )


def analyse_campaign(
    design: Artifact,
    out: Path,
    table: Path | None = None,
    given: Path | None = None,
    assignment: Artifact | None = None,
    until: date | None = None,
) -> Artifact:
    """Outcomes (a table of users, or `given` statistics of one) → figures, a decision and a page."""
    agreed = design_of(design)
    outcomes, inputs = _outcomes(agreed, table, given)
    known = AnalysisContext(
        until=until,
        frozen_on=datetime.fromisoformat(design.manifest.created).date(),
        assigned=_assigned(assignment, design) if assignment else None,
    )
    told = analyse(agreed, outcomes, known)
    parents = {"design": design} | ({"assignment": assignment} if assignment else {})
    with artifacts.writing(out, LIFT, config=agreed, parents=parents, inputs=inputs) as draft:
        (draft.path / "lift.json").write_text(told.model_dump_json(indent=1) + "\n", encoding="utf-8")
        statistics.write(draft.path / "statistics.json", outcomes)
        html = page.render(lift_page(told, page.provenance(design.manifest)))
        (draft.path / "index.html").write_text(html, encoding="utf-8")
        found = told.posterior
        draft.summary |= {"verdict": told.verdict, "lift": found.lift, "P(lift > 0)": found.above_zero}
    return artifacts.load(out, LIFT)


def _outcomes(design: ExperimentDesign, table: Path | None, given: Path | None) -> tuple[Outcomes, dict[str, Any]]:
    if table and not given:
        return tabulate(design, table), {"table": files.fingerprint(find(table, "--table"), table)}
    if given and not table:
        return statistics.read(given, design), {"statistics": files.fingerprint([given], given)}
    raise ConfigError("Name the outcomes with --table, or their statistics with --statistics: one of the two.")


def _assigned(assignment: Artifact, design: Artifact) -> int:
    if assignment.manifest.parents["design"].hash != design.manifest.hash:
        raise ConfigError(f"{assignment.path} was assigned by another design than {design.path}. Name its own.")
    return int(assignment.manifest.summary["users"])


def analysis_of(artifact: Artifact) -> Analysis:
    """From lift.json, with the design that was agreed on."""
    return Analysis.model_validate_json(artifact.file("lift.json").read_text(encoding="utf-8"))


def headline(told: Analysis) -> list[tuple[str, str]]:
    """The figures of an analysis for the terminal."""
    found, plain = told.posterior, told.plain
    if told.verdict == "blocked":
        return [("verdict", told.verdict), ("sample ratio p", f"{told.sample_ratio:.3g}")]
    return [
        ("verdict", told.verdict),
        ("lift", f"{signed(found.lift)} ({signed(found.low)} to {signed(found.high)})"),
        ("without covariates", f"{signed(plain.lift)} ({signed(plain.low)} to {signed(plain.high)})"),
        ("P(lift > 0)", share(found.above_zero)),
        (f"P(lift > {signed(told.design.minimum_effect)})", share(found.above_minimum)),
        ("expected loss of shipping", share(told.loss_of_shipping, 3)),
        ("expected loss of not shipping", share(told.loss_of_keeping, 3)),
        ("variance removed", share(told.variance_removed)),
        ("sample ratio p", f"{told.sample_ratio:.3g}"),
    ]


class PoolConfig(Frozen):
    """What is assumed of campaigns before they are looked at together."""

    spread: float | None = Field(None, gt=0)
    """Scale of the half-normal prior on the standard deviation between campaigns. None: from the campaigns."""


def pool_campaigns(folders: Sequence[Path], table: Path | None, out: Path, config: PoolConfig) -> Artifact:
    """Analysed campaigns, and others known from a table → what they say together, and the prior for the next."""
    parents = {str(folder): opened(folder, LIFT) for folder in folders}
    lifts = _lifts(parents.values()) | (published_lifts(table) if table else {})
    found = pool(list(lifts.values()), config.spread)
    with artifacts.writing(out, POOLED, config=config, parents=parents) as draft:
        figures = {
            "sentence": pool_sentence(len(lifts), found),
            "campaigns": {name: asdict(lift) for name, lift in lifts.items()},
            "one lift for all": _figures(found.fixed),
            "mean of lifts": _figures(found.common),
            "each in the light of all": {name: _figures(lift) for name, lift in zip(lifts, found.each, strict=True)},
            "spread": found.spread,
            "spread_prior_scale": found.scale,
            "alike": found.alike,
            "next_prior": found.following.model_dump(),
        }
        (draft.path / "pooled.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
        (draft.path / "index.html").write_text(page.render(pool_page(lifts, found)), encoding="utf-8")
        draft.summary |= {
            "campaigns": len(lifts),
            "mean lift": found.common.value,
            "P(mean lift > 0)": found.common.above(),
        }
    return artifacts.load(out, POOLED)


def _lifts(analysed: Iterable[Artifact]) -> dict[str, Lift]:
    told = [(analysis_of(artifact), artifact) for artifact in analysed]
    lifts = {each.design.name: Lift(each.effect, each.effect_sd) for each, _ in told}
    if blocked := [artifact.path for each, artifact in told if each.verdict == "blocked"]:
        raise DataError(f"{blocked[0]} came to no decision because its comparison is broken. Leave it out of the pool.")
    if len(lifts) < len(told):
        raise DataError("Two of these campaigns have one name: is one of them given twice? Each counts once.")
    return lifts


def published_lifts(table: Path) -> dict[str, Lift]:
    """From a table with the columns campaign, lift, low, high; lifts as fractions, ends of 95 % intervals."""
    found = find(table, "--table")
    with files.reading(found):
        frame = pl.concat([_published(scan, name) for scan, name in scans(found, table)]).collect()
    if frame["campaign"].n_unique() < frame.height:
        raise DataError(f"{table} names a campaign twice. Each counts once.")
    if frame.null_count().transpose().sum().item():
        raise DataError(f"{table} has values that are no numbers, or none at all. Write lifts as 0.0023 for 0.23 %.")
    return {name: published(lift, low, high) for name, lift, low, high in frame.iter_rows()}


def _published(frame: pl.LazyFrame, file: str) -> pl.LazyFrame:
    for name in ("campaign", "lift", "low", "high"):
        column_in(frame, name, file)
    return frame.select(
        pl.col("campaign").cast(pl.String), pl.col("lift", "low", "high").cast(pl.Float64, strict=False)
    )


def _figures(lift: Lift | Mixture) -> dict[str, float]:
    low, high = lift.interval()
    return {"lift": lift.value, "low": low, "high": high, "above_zero": lift.above()}


def pooled_lines(artifact: Artifact) -> list[str]:
    """What pooled campaigns say, for the terminal."""
    told = json.loads(artifact.file("pooled.json").read_text(encoding="utf-8"))
    fixed, prior = told["one lift for all"], told["next_prior"]
    return [
        told["sentence"],
        f"If all had one lift: {signed(fixed['lift'])} ({signed(fixed['low'])} to {signed(fixed['high'])}), "
        f"P(lift > 0) = {fixed['above_zero']:.3f}.",
        f"For the next design: prior = {{ mean = {prior['mean']:.6f}, sd = {prior['sd']:.6f} }}",
    ]
