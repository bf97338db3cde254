"""The page of an audience: who it is, how it came about, what to expect of it, and how to build it again.

html = page.render(audience_page(audience.figures))

The page carries no date of its own, so that an audience built again has the same page to the last byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from merit.campaigns.audiences.audience import AudienceSummary
from merit.campaigns.audiences.forecast import EDGES, Forecast, merged
from merit.campaigns.audiences.overlap import TREATED
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
    "any": "Users who want at least one of the interests, taken as independent of each other in one person.",
    "all": "Users who want every one of the interests, taken as independent of each other in one person.",
    "weighted": "An offer about one of the interests, drawn by weight: the chance that it finds a buyer.",
}
MEANING = (
    "A probability is the chance that the user's next purchase, a week or more after the end of the model's data, "
    "carries the interest."
)
LONGEST = 22  # characters of a name beside a bar; the table below has the whole
ROUGH = 100  # a count that would give a small step away is told to the nearest so many


def audience_page(told: AudienceSummary) -> Page:
    """Figures of at least 50 users only, as everywhere."""
    sections = (
        *([Section("What to know first", told.notes)] if told.notes else []),
        _asked_section(told),
        _waterfall_section(told),
        *([_forecast_section(told, told.forecast)] if told.forecast else []),
        _arm_section(told),
        _again_section(told),
    )
    return Page(told.request.name, sentence(told), sections, _tiles(told))


def sentence(told: AudienceSummary) -> str:
    """What a manager should take home."""
    contacted = _contacted(told)
    who = f"{count(told.members)} of {count(told.eligible)} eligible users"
    sent = f", {count(contacted)} of whom are contacted" if contacted and contacted < told.members else ""
    ahead = told.forecast
    if ahead is None:
        return f"{who}{sent}: those most like the {count(told.seeds or 0)} seeds."
    return (
        f"{who}{sent}. {_few(ahead.conversions)} conversions are expected among them, with or without the contact "
        f"({count(ahead.low)} to {count(ahead.high)})."
    )


def public_summary(told: AudienceSummary) -> dict[str, Any]:
    """The same for other programs, as silent about fewer than 50 users as the page."""
    ahead = told.forecast
    return {
        "name": told.request.name,
        "sentence": sentence(told),
        "members": told.members,
        "waterfall": waterfall_table(told).to_dicts(),
        "forecast": ahead.model_dump(exclude=None if _contacted(told) else {"users", "cost"}) if ahead else None,
        "sizes": [each.model_dump() for each in told.sizes if each.users >= SMALLEST_CELL],
        "separation": told.separation,
        "notes": list(told.notes),
    }


def _tiles(told: AudienceSummary) -> tuple[Tile, ...]:
    contacted = _contacted(told)
    tiles = [
        Tile("Members", count(told.members), f"{percent(told.members / told.eligible)} of the eligible"),
        Tile("Contacted", count(contacted) if contacted else WITHHELD),
    ]
    if ahead := told.forecast:
        tiles += [
            Tile("Expected conversions", _few(ahead.conversions), f"{count(ahead.low)} to {count(ahead.high)}"),
            Tile("Least likely member", _share(told.lowest)),
        ]
        if ahead.value is not None:
            cost = f"after {_money(ahead.cost or 0)} of contacts" if contacted else "after the contacts"
            tiles.append(Tile("Expected value", _money(ahead.value), cost))
    elif told.separation is not None:
        tiles.append(Tile("Seeds found by seeds", percent(told.separation, 0), "50 % would be chance"))
    return tuple(tiles)


def _asked_section(told: AudienceSummary) -> Section:
    request = told.request
    if request.lookalike:
        text = f"Users like those of {request.lookalike.table}: {request.lookalike.about}."
        scale = (
            "Likeness is a place between everybody (0) and the mean seed (1) in the model's own space. It is no "
            "probability, so no conversions are promised."
        )
        return Section("What was asked for", (text, scale))
    rows = [
        (each.text, each.weight, "listed" if each.label >= 0 else each.nearest, each.similarity)
        for each in told.interests
    ]
    frame = pl.DataFrame(rows, schema=["interest", "weight", "nearest label", "similarity"], orient="row")
    kept = frame if request.combine == "weighted" else frame.drop("weight")
    how = (COMBINED[request.combine],) if len(told.interests) > 1 else ()
    return Section("What was asked for", (*how, MEANING), tables=(Table("Interests", kept, wide=True),))


def _waterfall_section(told: AudienceSummary) -> Section:
    text = "Rules apply from top to bottom; each takes from those whom the rules before it have left."
    note = f"A rule that takes fewer than {SMALLEST_CELL} users is told together with its neighbours."
    forms: dict[str, Format] = {"removed": "count", "left": "count"}
    frame = waterfall_table(told)
    shown = Table("From all users to the audience", frame, forms, note, wide=True)
    exact = pl.col("left").str.replace_all(",", "").cast(pl.Int64, strict=False)  # a rough count is not drawn
    step = pl.concat_str(pl.int_range(1, pl.len() + 1), pl.lit(". "), "step")  # names may begin alike, bars may not
    short = pl.when(step.str.len_chars() > LONGEST).then(step.str.head(LONGEST - 1) + "…").otherwise(step)
    left = frame.select(step=short, users=exact).drop_nulls()
    says = "; ".join(f"{step}: {users:,}" for step, users in left.iter_rows())
    drawn = Chart("Users left", charts.bars(left, "step", "users", says=f"Users left after each step. {says}."))
    return Section("Who may be addressed", (text,), charts=(drawn,), tables=(shown,))


def waterfall_table(told: AudienceSummary) -> pl.DataFrame:
    """step, removed, left; nothing about fewer than 50 users, nor anything it could be worked out from."""
    steps = [(step.rule, step.removed) for step in told.waterfall]
    without = told.origin.users - sum(removed for _, removed in steps)
    if without > told.eligible:
        steps.append(("the seeds themselves", without - told.eligible))
    rows, left = [], told.origin.users
    for rules, removed in _together(steps):
        left -= removed
        rows.append((rules, count(removed) if removed >= SMALLEST_CELL else TOO_FEW, count(left)))
    hidden = any(removed == TOO_FEW for _, removed, _ in rows)  # then all rules together take so few
    start = f"about {ROUGH * round(told.origin.users / ROUGH):,}" if hidden else count(told.origin.users)
    rows = [("users of the model", "", start), *rows, (f"size: {_size(told.request)}", "", count(told.members))]
    return pl.DataFrame(rows, schema=["step", "removed", "left"], orient="row")


def _together(steps: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """Neighbouring steps as one until it takes at least 50 users; the last ones join those before them."""
    made: list[tuple[list[str], int]] = []
    for rule, removed in steps:
        if made and made[-1][1] < SMALLEST_CELL:
            made[-1] = ([*made[-1][0], rule], made[-1][1] + removed)
        else:
            made.append(([rule], removed))
    if len(made) > 1 and made[-1][1] < SMALLEST_CELL:
        rules, removed = made.pop()
        made[-1] = ([*made[-1][0], *rules], made[-1][1] + removed)
    return [(" · ".join(rules), removed) for rules, removed in made]


def _forecast_section(told: AudienceSummary, ahead: Forecast) -> Section:
    texts = [
        f"The interval holds chance, and that probabilities like these may be off by {percent(ahead.doubt, 0)}, as "
        "measured among test users. It does not hold a world that changes.",
        "These are buyers, not buyers won: many would have bought without being asked. What the contact brings is "
        "told by the control, afterwards.",
    ]
    if ahead.most - ahead.least > 0.01 * ahead.conversions:
        texts.append(
            f"How the interests go together in one person is not known. Whatever it is, the conversions add up to no "
            f"fewer than {_few(ahead.least)} and no more than {_few(ahead.most)}."
        )
    return Section(
        "What to expect",
        texts,
        charts=(
            Chart("Eligible users by probability", _bars(told.eligible_histogram)),
            Chart("Members by probability", _bars(told.member_histogram)),
        ),
        tables=(_size_table(told),),
    )


def _size_table(told: AudienceSummary) -> Table:
    rows = [(f"{each.percent:g} %", each.users, each.lowest, each.conversions, each.gain) for each in told.sizes]
    names = ["best of the eligible", "users", "least likely", "conversions", "value less cost"]
    frame = pl.DataFrame(rows, schema=names, orient="row")
    valued = told.request.economics is not None and told.request.economics.value_per_conversion is not None
    shown = large_enough(frame if valued else frame.drop(names[4]))
    shown = shown.with_columns(pl.col(names[2]).map_elements(_share, return_dtype=pl.String))
    note = "Before holdout and control are taken out."
    return Table("Other sizes", shown, {names[2]: "count"}, note, wide=True)


def _arm_section(told: AudienceSummary) -> Section:
    lots = {"holdout": told.request.holdout, "control": told.request.control}
    rows = [
        (name, users, "" if not (lot := lots.get(name)) else f"{percent(lot.share)} by salt {lot.salt}")
        for name, users in told.arms.items()
        if users or lots.get(name)
    ]
    frame = suppress(
        pl.DataFrame(rows, schema=["arm", "users", "drawn"], orient="row"), keep=("arm", "drawn"), partition=True
    )
    if _contacted(told) is None:
        known = pl.when(pl.col("arm") == TREATED).then(pl.lit(WITHHELD)).otherwise("users")
        frame = frame.with_columns(users=known)
    text = (
        "Arms follow from the hash of the user's id and the salt, and from nothing else. The holdout is addressed by "
        "no campaign with its salt; the control is left out of this one, to tell what it brings."
    )
    return Section("Who is contacted", (text,), tables=(Table("Arms", frame),))


def _again_section(told: AudienceSummary) -> Section:
    rows = [("model", told.origin.model), ("version of the label space", f"{told.origin.label_version}")]
    rows += [("request", digest(told.request))]
    rows += [(f"{place}/{name}", sha) for place, each in told.origin.tables.items() for name, sha in each.items()]
    frame = pl.DataFrame(rows, schema=["what", "hash"], orient="row")
    text = (
        "The same model, tables and request give the same audience to the last byte: merit audience build MODEL "
        "--request request.json --out FOLDER, with the request.json beside this page."
    )
    return Section("How to build it again", (text,), tables=(Table("Made from", frame, wide=True),))


def _bars(counts: Sequence[int]) -> Svg:
    """Neighbouring bins are joined until each holds 50 users."""
    bins = merged(counts, SMALLEST_CELL)
    frame = pl.DataFrame(
        [(f"{_edge(first)} to {_edge(last)}", users) for first, last, users in bins],
        schema={"probability": pl.String, "users": pl.Int64},
        orient="row",
    )
    says = "; ".join(f"{name}: {users:,}" for name, users in frame.iter_rows())
    return charts.bars(frame, "probability", "users", says=f"Users by probability. {says}.")


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
            return (
                f"a budget of {_money(size.budget)}, {number(economics.cost_per_contact if economics else 0)} a contact"
            )
        case "value":
            return "everybody expected to bring more than a contact costs"


def _contacted(told: AudienceSummary) -> int | None:
    """How many are contacted; None where that, or the rest of the members, is too few to be told."""
    contacted = told.arms[TREATED]
    back = told.members - contacted
    return contacted if contacted >= SMALLEST_CELL and (not back or back >= SMALLEST_CELL) else None


def _share(value: float) -> str:
    """Three figures: interests are rare, and none of them is impossible."""
    return f"{100 * value:.3g} %" if value >= 1e-5 else "<0.001 %"


def _few(value: float) -> str:
    return count(value) if value >= 10 else f"{value:.1f}"


def _money(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.2f}"
