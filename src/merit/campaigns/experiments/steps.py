"""experiment: a design frozen before launch → an assignment → outcomes analysed; and several campaigns pooled."""

from __future__ import annotations

import json
from collections.abc import Sequence
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
from merit.campaigns.experiments.outcomes import tabulate
from merit.campaigns.experiments.pooling import Mixture, pool, pool_page, pool_sentence
from merit.campaigns.experiments.report import lift_page
from merit.campaigns.tables import duplicates, scanning
from merit.core import artifacts
from merit.core.artifacts import Artifact
from merit.core.config import Frozen, load
from merit.core.errors import ConfigError, DataError
from merit.data.sources import files
from merit.privacy import pseudonyms
from merit.report import page
from merit.report.page import share, signed, signed_interval

DESIGN, ASSIGNMENT, LIFT, POOLED = "experiment-design", "assignment", "lift", "pooled-lift"
PUBLISHED = ("campaign", "lift", "low", "high")


# --- design ----------------------------------------------------------------------------------------------------------


def freeze(design: ExperimentDesign, out: Path) -> Artifact:
    """The design as an artifact, written once: its manifest says when, and its hash says what."""
    if (out / artifacts.MANIFEST).exists():
        frozen = artifacts.load(out, DESIGN)
        if design_of(frozen) == design:
            return frozen  # with its first date
        raise ConfigError(
            f"{out} holds another design, frozen {frozen.manifest.created}. A design is not changed after it was "
            "written down: give the new one another --out, and its own salt."
        )
    with artifacts.writing(out, DESIGN, config=design) as draft:
        (draft.path / "design.json").write_text(design.model_dump_json(indent=1) + "\n", encoding="utf-8")
        needed = power.users_needed(design.minimum_effect, design.outlook, design.rule)
        draft.summary |= {"users needed": needed, "window": f"{design.start} to {design.end}"}
    return artifacts.load(out, DESIGN)


@artifacts.opens
def design_of(artifact: Artifact) -> ExperimentDesign:
    """The design as it was frozen; from its file, where arms are in their order."""
    return load(ExperimentDesign, artifact.file("design.json"))


def power_tables(artifact: Artifact) -> list[tuple[str, list[str], list[tuple[Any, ...]]]]:
    """What the design can detect, for the terminal: title, columns, rows."""
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


# --- assignment ------------------------------------------------------------------------------------------------------


def assign_users(design: Artifact, users: Path, out: Path) -> Artifact:
    """An arm for every user of a table, by the design's salt and shares."""
    agreed = design_of(design)
    if agreed.salt is None:
        raise ConfigError(f"{design.path} has no salt: its users are assigned elsewhere. Freeze a design with a salt.")
    inputs = {"users": files.fingerprint(files.find(users, "--users PATH"), users)}
    with artifacts.writing(out, ASSIGNMENT, config=agreed, parents={"design": design}, inputs=inputs) as draft:
        file = draft.path / "assignment.parquet"
        user = pseudonyms.column(agreed.user)
        with scanning(users, "--users", [agreed.user], lambda frame, _: frame.select(user)) as ids:
            _check_ids(ids, agreed.user, users)
            with_arms(ids, agreed.user, agreed.arms, agreed.salt).rename({"arm": agreed.arm}).sink_parquet(file)
        counts = pl.scan_parquet(file).group_by(agreed.arm).len().collect(engine="streaming")
        arms = {str(name): int(number) for name, number in counts.iter_rows()}
        draft.summary |= {"users": sum(arms.values()), **{name: arms.get(name, 0) for name in agreed.arms}}
        draft.summary["sample ratio p"] = round(sample_ratio(arms, agreed.arms), 4)
    return artifacts.load(out, ASSIGNMENT)


def _check_ids(ids: pl.LazyFrame, user: str, table: Path) -> None:
    missing = pl.col(user).is_null() | (pl.col(user) == "")
    rows, empty = ids.select(pl.len(), missing.sum()).collect(engine="streaming").row(0)
    if not rows or empty:
        fault = f"has {empty:,} empty values of '{user}'" if rows else "has no rows"
        raise DataError(f"{table} {fault}. One row per user, with an id, is needed.")
    twice = duplicates(ids, user)
    if not twice.is_empty():
        raise DataError(
            f"{table}: {twice.height:,} users come more than once, {twice[user].min()!r} among them. One row per user "
            "is needed: drop the repetitions."
        )


# --- analysis --------------------------------------------------------------------------------------------------------


def analyse_campaign(
    design: Artifact,
    out: Path,
    table: Path | None = None,
    given: Path | None = None,
    assignment: Artifact | None = None,
    until: date | None = None,
) -> Artifact:
    """Outcomes (a table of users, or `given` statistics of one) → figures, a decision and a page."""
    if (table is None) == (given is None):
        raise ConfigError("Name the outcomes with --table, or their statistics with --statistics: one of the two.")
    agreed, inputs = design_of(design), {}
    if table:
        outcomes = tabulate(agreed, table)
        inputs["table"] = files.fingerprint(files.find(table, "--table PATH"), table)
    elif given:
        outcomes = statistics.read(given, agreed)
        inputs["statistics"] = files.fingerprint([given], given)
    frozen = datetime.fromisoformat(design.manifest.created).date()
    if assignment and assignment.manifest.parents["design"].hash != design.manifest.hash:
        raise ConfigError(f"{assignment.path} was assigned by another design than {design.path}. Name its own.")
    assigned = int(assignment.manifest.summary["users"]) if assignment else None
    analysis = analyse(agreed, outcomes, AnalysisContext(until=until, frozen_on=frozen, assigned=assigned))
    parents = {"design": design} | ({"assignment": assignment} if assignment else {})
    with artifacts.writing(out, LIFT, config=agreed, parents=parents, inputs=inputs) as draft:
        (draft.path / "lift.json").write_text(analysis.model_dump_json(indent=1) + "\n", encoding="utf-8")
        statistics.write(draft.path / "statistics.json", outcomes)
        html = page.render(lift_page(analysis, page.provenance(design.manifest)))
        (draft.path / "index.html").write_text(html, encoding="utf-8")
        posterior = analysis.posterior
        draft.summary |= {"verdict": analysis.verdict, "lift": posterior.lift, "P(lift > 0)": posterior.above_zero}
    return artifacts.load(out, LIFT)


@artifacts.opens
def analysis_of(artifact: Artifact) -> Analysis:
    """The analysis of a lift artifact, with the design that was agreed on."""
    return Analysis.model_validate_json(artifact.file("lift.json").read_text(encoding="utf-8"))


def headline(analysis: Analysis) -> list[tuple[str, str]]:
    """The figures of an analysis for the terminal."""
    posterior, plain = analysis.posterior, analysis.plain
    verdict, ratio = ("verdict", analysis.verdict), ("sample ratio p", f"{analysis.sample_ratio:.3g}")
    if analysis.verdict == "blocked":
        return [verdict, ratio]
    return [
        verdict,
        ("lift", signed_interval(*posterior.interval)),
        ("without covariates", signed_interval(*plain.interval)),
        ("P(lift > 0)", share(posterior.above_zero)),
        (f"P(lift > {signed(analysis.design.minimum_effect)})", share(posterior.above_minimum)),
        ("expected loss of shipping", share(analysis.loss_of_shipping, 3)),
        ("expected loss of not shipping", share(analysis.loss_of_keeping, 3)),
        ("variance removed", share(analysis.variance_removed)),
        ratio,
    ]


# --- pooling ---------------------------------------------------------------------------------------------------------


class PoolConfig(Frozen):
    """What is assumed of campaigns before they are looked at together."""

    spread: float | None = Field(None, gt=0)
    """Scale of the half-normal prior on the standard deviation between campaigns. None: from the campaigns."""


def pool_campaigns(folders: Sequence[Path], table: Path | None, out: Path, config: PoolConfig) -> Artifact:
    """Analysed campaigns, and others from a table of published lifts → their common lift, and the next prior."""
    parents = {str(folder): artifacts.load(folder, LIFT) for folder in folders}
    analyses = [analysis_of(artifact) for artifact in parents.values()]
    if blocked := [path for path, analysis in zip(parents, analyses, strict=True) if analysis.verdict == "blocked"]:
        raise DataError(f"{blocked[0]} came to no decision because its comparison is broken. Leave it out of the pool.")
    lifts = {analysis.design.name: Lift(analysis.effect, analysis.effect_sd) for analysis in analyses}
    if len(lifts) < len(analyses):
        raise DataError("Two of these campaigns have one name: is one of them given twice? Each counts once.")
    lifts |= published_lifts(table) if table else {}
    pooled = pool(list(lifts.values()), config.spread)
    with artifacts.writing(out, POOLED, config=config, parents=parents) as draft:
        figures = {
            "sentence": pool_sentence(len(lifts), pooled),
            "campaigns": {name: asdict(lift) for name, lift in lifts.items()},
            "one lift for all": _figures(pooled.fixed),
            "mean of lifts": _figures(pooled.common),
            "each, pooled": dict(zip(lifts, map(_figures, pooled.shrunk), strict=True)),
            "spread": pooled.spread,
            "spread_prior_scale": pooled.scale,
            "alike": pooled.alike,
            "next_prior": pooled.following.model_dump(),
        }
        (draft.path / "pooled.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
        (draft.path / "index.html").write_text(page.render(pool_page(lifts, pooled)), encoding="utf-8")
        common = pooled.common
        draft.summary |= {"campaigns": len(lifts), "mean lift": common.value, "P(mean lift > 0)": common.above()}
    return artifacts.load(out, POOLED)


def published_lifts(table: Path) -> dict[str, Lift]:
    """Lifts from a table with the columns campaign, lift, low, high; as fractions, with the ends of 95 % intervals."""
    columns = (pl.col("campaign").cast(pl.String), pl.col(PUBLISHED[1:]).cast(pl.Float64, strict=False))
    with scanning(table, "--table", PUBLISHED, lambda frame, _: frame.select(*columns)) as lifts:
        rows = lifts.collect()
    if rows["campaign"].n_unique() < rows.height:
        raise DataError(f"{table} names a campaign twice. Each counts once.")
    if rows.null_count().transpose().sum().item():
        raise DataError(f"{table} has values that are no numbers, or none at all. Write lifts as 0.0023 for 0.23 %.")
    return {name: published(lift, low, high) for name, lift, low, high in rows.iter_rows()}


def _figures(lift: Lift | Mixture) -> dict[str, float]:
    low, high = lift.interval()
    return {"lift": lift.value, "low": low, "high": high, "above_zero": lift.above()}


def pooled_lines(artifact: Artifact) -> list[str]:
    """The result of pooled campaigns, for the terminal."""
    figures = json.loads(artifact.file("pooled.json").read_text(encoding="utf-8"))
    fixed, prior = figures["one lift for all"], figures["next_prior"]
    return [
        figures["sentence"],
        f"If all had one lift: {signed_interval(fixed['lift'], fixed['low'], fixed['high'])}, "
        f"P(lift > 0) = {fixed['above_zero']:.3f}.",
        f"For the next design: prior = {{ mean = {prior['mean']:.6f}, sd = {prior['sd']:.6f} }}",
    ]
