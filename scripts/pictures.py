"""Draws the pictures of docs/exposure-bias.md and docs/length-and-recall.md. `python scripts/pictures.py`.

A test draws them again and compares. Three ways to name labels for a user of the planted shop (docs/planted.md):

    oracle      the user's true probabilities, which only a planted shop knows
    own         the labels most frequent in the user's own history
    cascade     the user's most frequent label, and then from label to label by what is bought together
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import altair as alt
import polars as pl

from merit.data.planted import START, PlantedConfig, PlantedShop, ceiling, shop

IMAGES = Path(__file__).parents[1] / "docs" / "images"
USERS = 600
BUDGETS = (1, 2, 3, 5, 10, 15, 20)
CUT, GAP = START + timedelta(days=300), timedelta(days=7)
NAMES = {"oracle": "the truth", "own": "the user's own labels", "cascade": "from label to label"}

Lists = dict[str, list[str]]
Said = dict[str, Lists]
"""Way of naming → user → labels, best first."""


def said(planted: PlantedShop) -> tuple[Said, Lists]:
    """What each way names for every user, and what the users then bought: the labels of each item after the gap."""
    tags = dict(planted.items.select("item_id", "tags").iter_rows())
    own, baskets, bought = defaultdict(Counter), Counter(), defaultdict(list)
    for user, order in _visits(planted, before=True):
        labels = [label for item in order for label in tags[item]]
        own[user].update(labels)
        baskets.update((a, b) for a in sorted(set(labels)) for b in sorted(set(labels)) if a != b)
    for user, order in _visits(planted, before=False):
        bought[user] += [tags[item] for item in order]
    truth = dict(planted.truth.select("user_id", "labels").iter_rows())
    known = [user for user in truth if own[user] and bought[user]]
    ranked = {user: [label for label, _ in own[user].most_common()] for user in known}
    walks = _walks(baskets)
    ways = {
        "oracle": {user: truth[user] for user in known},
        "own": ranked,
        "cascade": {user: walks(ranked[user][0]) for user in known},
    }
    return ways, {user: bought[user] for user in known}  # type: ignore[dict-item]


def _visits(planted: PlantedShop, before: bool) -> Iterator[tuple[str, list[str]]]:
    when = pl.col("timestamp") < CUT if before else pl.col("timestamp") >= CUT + GAP
    orders = (
        planted.interactions.filter(when).drop_nulls("order_id").group_by("user_id", "order_id", maintain_order=True)
    )
    for user, _, items in orders.agg("item_id").iter_rows():
        yield user, items


def _walks(baskets: Counter[tuple[str, str]]) -> Any:
    """From a label to the one most often bought together with it, and on, never twice to the same."""
    beside: dict[str, Counter[str]] = defaultdict(Counter)
    for (a, b), times in baskets.items():
        beside[a][b] = times

    def walk(label: str) -> list[str]:
        path = [label]
        while len(path) < max(BUDGETS):
            ahead = [other for here in reversed(path) for other, _ in beside[here].most_common() if other not in path]
            if not ahead:
                break
            path.append(ahead[0])
        return path

    return walk


def recall(lists: Lists, bought: Any, budget: int) -> float:
    """The mean over users of the share of an item's labels that are among the first so many."""
    shares = [
        sum(len(set(labels) & set(lists[user][:budget])) / len(labels) for labels in items) / len(items)
        for user, items in bought.items()
    ]
    return sum(shares) / len(shares)


def regions_covered(lists: Lists, planted: PlantedShop, budget: int = 5) -> float:
    """Different regions among the first so many labels, the mean over users."""
    region = dict(planted.regions.select("label", "region").iter_rows())
    return sum(len({region[label] for label in labels[:budget]}) for labels in lists.values()) / len(lists)


def lists_picture(planted: PlantedShop, ways: Said, users: int = 10) -> alt.Chart:
    """The first five labels of some users, coloured by region: a cascade is a row of one colour."""
    region = dict(planted.regions.select("label", "region").iter_rows())
    mine = dict(planted.truth.select("user_id", "regions").iter_rows())
    chosen = [user for user in ways["own"] if len(ways["own"][user]) >= 5][:users]
    rows = [
        {
            "way": NAMES[way],
            "user": user,
            "place": place,
            "region": region[label],
            "wanted": region[label] in mine[user],
        }
        for way, lists in ways.items()
        for user in chosen
        for place, label in enumerate(lists[user][:5], start=1)
    ]
    tile = alt.Chart(alt.Data(values=rows)).mark_rect(stroke="white", strokeWidth=2)
    return tile.encode(
        x=alt.X("place:O", title="label", axis=alt.Axis(labelAngle=0)),
        y=alt.Y("user:N", title=None, axis=alt.Axis(labels=False, ticks=False)),
        color=alt.Color("region:N", title="region", scale=alt.Scale(scheme="tableau20")),
        opacity=alt.Opacity(
            "wanted:N", title="of the user's interests", scale=alt.Scale(domain=[True, False], range=[1, 0.35])
        ),
        column=alt.Column("way:N", title=None, sort=[*NAMES.values()]),
    ).properties(width=150, height=200)


def cascade_picture(strengths: tuple[float, ...] = (0.0, 0.3, 0.6, 0.9)) -> alt.Chart:
    """Regions among the first five labels, as labels of a region are bought together ever more often."""
    rows = []
    for strength in strengths:
        planted = shop(PlantedConfig(users=USERS, cascade=strength), seed=7)
        ways, _ = said(planted)
        rows += [
            {"cascade": strength, "way": NAMES[way], "regions": regions_covered(lists, planted)}
            for way, lists in ways.items()
        ]
    return _lines(rows, "cascade", "how strongly a region sticks together", "regions", "regions among five labels")


def length_picture(planted: PlantedShop, ways: Said, bought: Any) -> alt.Chart:
    """Recall by the number of labels."""
    rows = [
        {"labels": budget, "way": NAMES[way], "recall": 100 * recall(lists, bought, budget)}
        for way, lists in ways.items()
        for budget in BUDGETS
    ]
    return _lines(rows, "labels", "labels named", "recall", "recall, points")


def _lines(rows: list[dict[str, Any]], x: str, x_title: str, y: str, y_title: str) -> alt.Chart:
    return (
        alt.Chart(alt.Data(values=rows))
        .mark_line(point=True)
        .encode(
            x=alt.X(f"{x}:Q", title=x_title),
            y=alt.Y(f"{y}:Q", title=y_title, scale=alt.Scale(zero=True)),
            color=alt.Color("way:N", title=None, sort=[*NAMES.values()]),
        )
        .properties(width=420, height=240)
    )


def draw() -> dict[str, alt.Chart]:
    """File name → picture."""
    planted = shop(PlantedConfig(users=USERS, cascade=0.9), seed=7)
    ways, bought = said(planted)
    return {
        "cascade-lists.svg": lists_picture(planted, ways),
        "cascade-regions.svg": cascade_picture(),
        "length-recall.svg": length_picture(planted, ways, bought),
    }


def main() -> None:
    for name, picture in draw().items():
        picture.save(IMAGES / name)
    planted = shop(PlantedConfig(users=USERS, cascade=0.9), seed=7)
    ways, bought = said(planted)
    print(f"{len(bought)} users; ceiling at 10: {100 * ceiling(planted, 10):.1f}")
    for way, lists in ways.items():
        told = [f"{100 * recall(lists, bought, budget):.1f}" for budget in BUDGETS]
        print(f"{NAMES[way]}: {regions_covered(lists, planted):.2f} regions; recall at {BUDGETS}: {', '.join(told)}")


if __name__ == "__main__":
    main()
