"""The page of an audience: who it is, how it came about, what to expect of it, and how to build it again.

html = page.render(audience_page(audience.figures))

The page carries no date of its own, so that an audience built again has the same page to the last byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from merit.campaigns.audiences.audience import TREATED, AudienceSummary
from merit.campaigns.audiences.diagnosis import Diagnosis, ResolvedWindow
from merit.campaigns.audiences.forecast import EDGES, Forecast, merged
from merit.campaigns.audiences.request import AudienceRequest
from merit.core.config import digest
from merit.report import charts
from merit.report.charts import Svg
from merit.report.page import (
    SMALLEST_CELL,
    TOO_FEW,
    WITHHELD,
    Chart,
    Format,
    Page,
    Section,
    Table,
    Tile,
    count,
    large_enough,
    number,
    percent,
    suppress,
)

COMBINED = {
    "any": "Users who want at least one of the interests, taken as independent of each other in one user.",
    "all": "Users who want every one of the interests, taken as independent of each other in one user.",
    "weighted": "An offer about one of the interests, drawn by weight: the chance that it finds a buyer.",
}
PROBABILITY_NOTE = (
    "A probability is the chance that the user's next purchase, a week or more after the end of the model's data, "
    "carries the interest."
)
LONGEST = 22  # characters of a name beside a bar; the table below has the whole
ROUGH = 100  # a count that would give a small step away is rounded to a multiple of this


def audience_page(summary: AudienceSummary) -> Page:
    """The page of an audience; figures of at least 50 users only, as everywhere."""
    sections = (
        *([Section("What to know first", summary.notes)] if summary.notes else []),
        _request_section(summary),
        _waterfall_section(summary),
        *([_diagnosis_section(summary.diagnosis)] if summary.diagnosis else []),
        *([_forecast_section(summary, summary.forecast)] if summary.forecast else []),
        _arm_section(summary),
        _rebuild_section(summary),
    )
    return Page(summary.request.name, sentence(summary), sections, _tiles(summary))


def sentence(summary: AudienceSummary) -> str:
    """The result for a manager."""
    contacted = _contacted(summary)
    members = f"{count(summary.members)} of {count(summary.eligible)} eligible users"
    members += f", {count(contacted)} of whom are contacted" if contacted and contacted < summary.members else ""
    forecast, diagnosis = summary.forecast, summary.diagnosis
    if diagnosis and diagnosis.added is not None:
        return (
            f"{members}: those whom a contact makes buy most often. {_few(diagnosis.added)} more buyers are expected "
            f"if all of them are contacted, beside those who buy anyway."
        )
    if forecast is None:
        return f"{members}: those most like the {count(summary.seeds or 0)} seeds."
    return (
        f"{members}. {_few(forecast.conversions)} conversions are expected among them, with or without the contact "
        f"({count(forecast.low)} to {count(forecast.high)})."
    )


def public_summary(summary: AudienceSummary) -> dict[str, Any]:
    """The same for other programs, as silent about fewer than 50 users as the page."""
    exclude = None if _contacted(summary) else {"users", "cost"}
    return {
        "name": summary.request.name,
        "sentence": sentence(summary),
        "members": summary.members,
        "waterfall": waterfall_table(summary).to_dicts(),
        "forecast": summary.forecast.model_dump(exclude=exclude) if summary.forecast else None,
        "sizes": [size.model_dump() for size in summary.sizes if size.users >= SMALLEST_CELL],
        "separation": summary.separation,
        **({"window": summary.window.model_dump(mode="json")} if summary.window else {}),
        **({"diagnosis": summary.diagnosis.model_dump()} if summary.diagnosis else {}),
        "notes": list(summary.notes),
    }


def _tiles(summary: AudienceSummary) -> tuple[Tile, ...]:
    contacted, diagnosis = _contacted(summary), summary.diagnosis
    tiles = [
        Tile("Members", count(summary.members), f"{percent(summary.members / summary.eligible)} of the eligible"),
        Tile("Contacted", count(contacted) if contacted else WITHHELD),
    ]
    if forecast := summary.forecast:
        between = f"{count(forecast.low)} to {count(forecast.high)}"
        tiles += [
            Tile("Expected conversions", _few(forecast.conversions), between),
            Tile("Least likely member", _share(summary.lowest or 0)),
        ]
        if forecast.value is not None:
            cost = f"after {_money(forecast.cost or 0)} of contacts" if contacted else "after the contacts"
            tiles.append(Tile("Expected value", _money(forecast.value), cost))
    elif diagnosis and diagnosis.added is not None:
        tiles.append(Tile("Expected additional buyers", _few(diagnosis.added), "if all members are contacted"))
    elif summary.separation is not None:
        tiles.append(Tile("Seeds found by seeds", percent(summary.separation, 0), "50 % would be chance"))
    if diagnosis:
        tiles.append(Tile("Bought before", percent(diagnosis.bought_before, 0), "of the members"))
    return tuple(tiles)


def _request_section(summary: AudienceSummary) -> Section:
    request = summary.request
    if request.lookalike:
        text = f"Users like those of {request.lookalike.table}: {request.lookalike.about}."
        scale = (
            "Likeness is a place between the mean of all users (0) and the mean of the seeds (1) in the model's vector "
            "space. It is no probability, so no conversions are promised."
        )
        return Section("Request", (text, scale))
    rows = [
        (interest.text, interest.weight, "listed" if interest.label >= 0 else interest.nearest, interest.similarity)
        for interest in summary.interests
    ]
    frame = pl.DataFrame(rows, schema=["interest", "weight", "nearest label", "similarity"], orient="row")
    frame = frame if request.combine == "weighted" else frame.drop("weight")
    how = (COMBINED[request.combine],) if len(summary.interests) > 1 else ()
    shown = (Table("Interests", frame, wide=True),) if rows else ()
    if not summary.window:
        return Section("Request", (*how, PROBABILITY_NOTE), tables=shown)
    return Section("Request", (*_window_texts(summary.window),), tables=(*shown, *_product_tables(summary.window)))


def _window_texts(window: ResolvedWindow) -> tuple[str, ...]:
    return (
        f"A probability is the chance of at least one purchase from {window.start} to {window.last} ({window.days} "
        "days), whether the user shops in these days or not.",
    )


def _product_tables(window: ResolvedWindow) -> tuple[Table, ...]:
    rows = [(part.name, part.products, part.unknown, part.blocked) for part in window.products]
    frame = pl.DataFrame(rows, schema=["products", "known", "unknown to the model", "blocked"], orient="row")
    return (Table("Lists and rules of products", frame, wide=True),) if rows else ()


def _diagnosis_section(diagnosis: Diagnosis) -> Section:
    """Which question the order of users answers, and how much of what it promises would come anyway."""
    rows = [
        ("members who bought these products before", percent(diagnosis.bought_before, 0)),
        ("members who bought nothing of their categories", percent(diagnosis.new_to_category, 0)),
    ]
    if diagnosis.added is not None and diagnosis.expected is not None:
        rows += [
            ("expected buyers, contacted or not", _few(diagnosis.expected)),
            ("expected buyers that contacting all members adds", _few(diagnosis.added)),
        ]
    frame = pl.DataFrame(rows, schema=["what", "figure"], orient="row")
    text = f"This order answers: {diagnosis.question} Histories go back a year at most."
    return Section("What this ranking answers", (text,), tables=(Table("Members", frame),))


def _waterfall_section(summary: AudienceSummary) -> Section:
    text = "Rules apply from top to bottom; each takes from those whom the rules before it have left."
    note = f"A rule that takes fewer than {SMALLEST_CELL} users is shown together with its neighbours."
    forms: dict[str, Format] = {"removed": "count", "left": "count"}
    frame = waterfall_table(summary)
    shown = Table("From all users to the audience", frame, forms, note, wide=True)
    exact = pl.col("left").str.replace_all(",", "").cast(pl.Int64, strict=False)  # a rough count is not drawn
    step = pl.concat_str(pl.int_range(1, pl.len() + 1), pl.lit(". "), "step")  # names may begin alike, bars may not
    short = pl.when(step.str.len_chars() > LONGEST).then(step.str.head(LONGEST - 1) + "…").otherwise(step)
    left = frame.select(step=short, users=exact).drop_nulls()
    chart = Chart("Users left", _bars(left, "Users left after each step"))
    return Section("Who may be addressed", (text,), charts=(chart,), tables=(shown,))


def waterfall_table(summary: AudienceSummary) -> pl.DataFrame:
    """step, removed, left; nothing about fewer than 50 users, nor anything it could be worked out from."""
    steps = [(step.rule, step.removed) for step in summary.waterfall]
    without = summary.origin.users - sum(removed for _, removed in steps)
    if without > summary.eligible:
        steps.append(("the seeds themselves", without - summary.eligible))
    rows, left = [], summary.origin.users
    for first, end, removed in merged([removed for _, removed in steps], SMALLEST_CELL, whole=True):
        rule, left = " · ".join(rule for rule, _ in steps[first:end]), left - removed
        rows.append((rule, count(removed) if removed >= SMALLEST_CELL else TOO_FEW, count(left)))
    hidden = any(removed == TOO_FEW for _, removed, _ in rows)  # then all rules together take so few
    start = f"about {ROUGH * round(summary.origin.users / ROUGH):,}" if hidden else count(summary.origin.users)
    rows = [("users of the model", "", start), *rows, (f"size: {_size(summary.request)}", "", count(summary.members))]
    return pl.DataFrame(rows, schema=["step", "removed", "left"], orient="row")


def _forecast_section(summary: AudienceSummary, forecast: Forecast) -> Section:
    texts = [
        f"The interval holds chance, and that probabilities like these may be off by {percent(forecast.doubt, 0)}, as "
        "measured among test users. It does not hold a world that changes.",
        "These are buyers, not buyers won: many would have bought without being contacted. What the contact brings is "
        "measured by the control, afterwards.",
    ]
    if forecast.most - forecast.least > 0.01 * forecast.conversions:
        texts.append(
            f"How the interests go together in one user is not known. Whatever it is, the conversions add up to no "
            f"fewer than {_few(forecast.least)} and no more than {_few(forecast.most)}."
        )
    return Section(
        "What to expect",
        texts,
        charts=(
            Chart("Eligible users by probability", _histogram(summary.eligible_histogram)),
            Chart("Members by probability", _histogram(summary.member_histogram)),
        ),
        tables=(_size_table(summary),),
    )


def _size_table(summary: AudienceSummary) -> Table:
    rows = [(f"{size.percent:g} %", size.users, size.lowest, size.conversions, size.gain) for size in summary.sizes]
    names = ["best of the eligible", "users", "least likely", "conversions", "value less cost"]
    frame = pl.DataFrame(rows, schema=names, orient="row")
    economics = summary.request.economics
    valued = economics is not None and economics.value_per_conversion is not None
    frame = large_enough(frame if valued else frame.drop(names[4]))
    frame = frame.with_columns(pl.col(names[2]).map_elements(_share, return_dtype=pl.String))
    return Table("Other sizes", frame, {names[2]: "count"}, "Before holdout and control are taken out.", wide=True)


def _arm_section(summary: AudienceSummary) -> Section:
    parts = {"holdout": summary.request.holdout, "control": summary.request.control}
    drawn = {name: f"{percent(part.share)} by salt {part.salt}" for name, part in parts.items() if part}
    rows = [(name, users, drawn.get(name, "")) for name, users in summary.arms.items() if users or name in drawn]
    frame = pl.DataFrame(rows, schema=["arm", "users", "drawn"], orient="row")
    frame = suppress(frame, keep=("arm", "drawn"), partition=True)
    if _contacted(summary) is None:
        frame = frame.with_columns(users=pl.when(pl.col("arm") == TREATED).then(pl.lit(WITHHELD)).otherwise("users"))
    text = (
        "Arms follow from the hash of the user's id and the salt, and from nothing else. The holdout is addressed by "
        "no campaign with its salt; the control is left out of this one, to measure what it brings."
    )
    return Section("Who is contacted", (text,), tables=(Table("Arms", frame),))


def _rebuild_section(summary: AudienceSummary) -> Section:
    rows = [("model", summary.origin.model), ("version of the label space", f"{summary.origin.label_version}")]
    rows += [("request", digest(summary.request))]
    rows += [
        (f"{place}/{name}", sha) for place, hashes in summary.origin.tables.items() for name, sha in hashes.items()
    ]
    frame = pl.DataFrame(rows, schema=["what", "hash"], orient="row")
    text = (
        "The same model, tables and request give the same audience to the last byte: merit audience build MODEL "
        "--request request.json --out FOLDER, with the request.json beside this page."
    )
    return Section("How to build it again", (text,), tables=(Table("Made from", frame, wide=True),))


def _histogram(counts: Sequence[int]) -> Svg:
    """Neighbouring bins are joined until each holds 50 users."""
    rows = [(f"{_edge(first)} to {_edge(last)}", users) for first, last, users in merged(counts, SMALLEST_CELL)]
    schema = {"probability": pl.String, "users": pl.Int64}
    return _bars(pl.DataFrame(rows, schema=schema, orient="row"), "Users by probability")


def _bars(frame: pl.DataFrame, title: str) -> Svg:
    values = "; ".join(f"{name}: {users:,}" for name, users in frame.iter_rows())
    return charts.bars(frame, frame.columns[0], "users", description=f"{title}. {values}.")


def _edge(place: int) -> str:
    return "0" if place == 0 else f"{100 * EDGES[place]:.2g} %"


def _size(request: AudienceRequest) -> str:
    size, economics = request.size, request.economics
    match size.by:
        case "count":
            return f"{size.users:,} users"
        case "percentile":
            return f"the best {size.percent:g} % of the eligible"
        case "probability":
            most = f", at most {percent(size.at_most, 2)}" if size.at_most < 1 else ""
            return f"at least {percent(size.at_least, 2)} likely{most}"
        case "budget":
            cost = number(economics.cost_per_contact if economics else 0)
            return f"a budget of {_money(size.budget)}, {cost} a contact"
        case "value":
            return "all who are expected to bring more than a contact costs"


def _contacted(summary: AudienceSummary) -> int | None:
    """How many are contacted; None where that, or the rest of the members, is too few to be shown."""
    contacted = summary.arms[TREATED]
    others = summary.members - contacted
    return contacted if contacted >= SMALLEST_CELL and (not others or others >= SMALLEST_CELL) else None


def _share(value: float) -> str:
    """Three figures: interests are rare, and none of them is impossible."""
    return f"{100 * value:.3g} %" if value >= 1e-5 else "<0.001 %"


def _few(value: float) -> str:
    return count(value) if value >= 10 else f"{value:.1f}"


def _money(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.2f}"
