"""The two-table contract: which columns we need, what others call them, and what their events mean."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Any, get_args
from zoneinfo import ZoneInfo

import polars as pl
from pydantic import AfterValidator, Field

from merit.core.config import Frozen
from merit.core.errors import ConfigError, DataError
from merit.core.types import Event

EVENTS = pl.Enum(get_args(Event))
MAX_ID_BYTES = 512  # no shop has longer ids; a longer one is a whole file read as one field
ROW, FILE = "merit row", "merit file"  # added by the readers; no table has columns of these names

# Ours → what others call it, best first. Compared without case, spaces, dashes and underscores.
INTERACTION_NAMES: dict[str, tuple[str, ...]] = {
    "user_id": (
        *("customer_id", "household_id", "household_key", "visitor_id", "user_pseudo_id", "reviewer_id", "client_id"),
        *("member_id", "uid", "user", "customer", "visitor"),
    ),
    "item_id": ("product_id", "parent_asin", "asin", "sku", "article_id", "stock_code", "item", "product"),
    "timestamp": (
        *("event_timestamp", "transaction_timestamp", "event_time", "unix_review_time", "created_at", "datetime"),
        *("time", "ts", "invoice_date", "order_date", "purchase_date", "event_date", "date", "t_dat"),
    ),
    "event": ("event_name", "event_type", "action", "behavior", "behaviour", "interaction", "type"),
    "order_id": ("basket_id", "transaction_id", "invoice", "invoice_no", "invoice_id", "order"),
}
ITEM_NAMES: dict[str, tuple[str, ...]] = {
    "item_id": INTERACTION_NAMES["item_id"],
    "title": ("item_name", "product_name", "product_title", "prod_name", "name", "description"),
    "tags": ("labels", "categories", "keywords", "category"),
    "vertical": ("department", "main_category", "main_cat", "item_category", "category"),
}
OPTIONAL = {"event", "order_id", "tags", "vertical"}

# GA4's names and other common ones. A review or a rating implies a purchase on the sites that publish them.
EVENT_NAMES: dict[str, Event] = {
    **dict.fromkeys(("view", "view_item", "product_view", "pageview", "page_view", "detail", "impression"), "view"),
    **dict.fromkeys(("view_item_list", "view_promotion", "pv", "views"), "view"),
    **dict.fromkeys(("click", "select_item", "select_promotion", "clicks", "select_content"), "click"),
    **dict.fromkeys(("cart", "add_to_cart", "addtocart", "add_to_wishlist", "fav", "favorite", "wishlist"), "cart"),
    **dict.fromkeys(("basket", "add_to_basket", "view_cart", "begin_checkout", "checkout"), "cart"),
    **dict.fromkeys(("add_shipping_info", "add_payment_info"), "cart"),
    **dict.fromkeys(("purchase", "purchases", "purchased", "buy", "bought", "order", "orders", "sale"), "purchase"),
    **dict.fromkeys(("transaction", "ecommerce_purchase", "in_app_purchase", "review", "rating"), "purchase"),
}


@dataclass(frozen=True)
class SourceTables:
    """Two normalised tables, still lazy, and where they came from."""

    interactions: pl.LazyFrame
    """user_id, item_id, timestamp, event, order_id, problem, file, row; and for reports only: zone, original."""
    items: pl.LazyFrame
    """item_id, title, tags, vertical, problem, file, row, original."""
    inputs: dict[str, Any]
    """Fingerprints: table → relative file name → [bytes, mtime_ns]."""
    names: dict[str, str]
    """Where "interactions" and "items" came from, for messages."""
    max_bad_share: float = 0.001
    files: tuple[Path, ...] = ()
    """Every raw file, so that a reading error can be traced to one."""


def _time_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ValueError("not a time zone; write one such as UTC or Europe/Berlin") from None
    return name


class ParseOptions(Frozen):
    """How values are read."""

    time_zone: Annotated[str, AfterValidator(_time_zone)] = "UTC"
    """Of times that are written without one."""
    time_formats: tuple[str, ...] = Field((), exclude_if=lambda value: not value)
    """Further ways that times are written, such as "%d.%m.%Y %H:%M", tried where no other fits. Not guessed: 03.04. is
    in March or in April."""
    default_event: Event | None = None
    """What every row is, in a table without an event column. Never guessed: a view is no purchase."""
    events: dict[str, Event] = {}
    """Further names of events, theirs → ours."""
    tag_separator: Annotated[str, Field(min_length=1)] = "|"
    """Between tags given as one text. Not the comma: labels such as "Creams, Gels & Lotions" hold it."""
    max_title_chars: Annotated[int, Field(ge=1)] = 2000
    """A longer title is a bad row: no shop writes one, and it would fill a prompt by itself."""
    earliest: date = date(1990, 1, 1)
    """No shop log is older; epoch zero and swapped units land before it."""
    latest: date | None = None
    """The last plausible day. Without it: two days from now."""


def resolve(
    columns: Sequence[str], names: Mapping[str, tuple[str, ...]], given: Mapping[str, str], where: str, setting: str
) -> dict[str, str]:
    """Our names → theirs, for one file. What `given` names must exist; the rest is recognised by name."""
    if unknown := set(given) - set(names):
        raise ConfigError(f"{setting}.{min(unknown)}: no such column of ours. Known: {', '.join(names)}.")
    mapping: dict[str, str] = {}
    for ours, aliases in names.items():
        wanted = (given[ours],) if ours in given else (ours, *aliases)
        if theirs := matching(columns, wanted):
            mapping[ours] = theirs
        elif ours in given:
            raise DataError(_missing({ours: wanted}, mapping, columns, where, setting))
    absent = {ours: (ours, *names[ours]) for ours in names if ours not in mapping.keys() | OPTIONAL}
    if absent:
        raise DataError(_missing(absent, mapping, columns, where, setting))
    return mapping


def resolve_extra(
    columns: Sequence[str], extra: Sequence[str], where: str, setting: str = "source.extra_tags"
) -> list[str]:
    """Their names of the further item columns."""
    matches = {name: matching(columns, (name,)) for name in extra}
    if absent := next((name for name, theirs in matches.items() if theirs is None), None):
        near = difflib.get_close_matches(absent, columns, n=1, cutoff=0.3)
        value = "THEIRS" if setting.endswith("column") else '["THEIRS"]'
        raise DataError(
            f"{where} has no column '{absent}' ({setting}). Columns found: {', '.join(columns[:30])}."
            f"{f' Nearest: {near[0]}.' if near else ''} Mend it with --set '{setting}={value}'."
        )
    return [theirs for theirs in matches.values() if theirs]


def matching(columns: Sequence[str], wanted: Sequence[str]) -> str | None:
    """The first wanted name that is a column; without one, the first that is a column but for case and punctuation."""
    plain = {_plain(name): name for name in reversed(columns)}
    exact = next((name for name in wanted if name in columns), None)
    return exact or next((plain[_plain(name)] for name in wanted if _plain(name) in plain), None)


def _plain(name: str) -> str:
    return "".join(character for character in name.casefold() if character.isalnum())


def _missing(
    absent: Mapping[str, tuple[str, ...]], taken: Mapping[str, str], columns: Sequence[str], where: str, setting: str
) -> str:
    """All columns that are missing at once, with a guess for each among those without a meaning."""
    free = [name for name in map(str, columns) if name not in taken.values()]
    missing, remedies, hints = [], [], []
    for ours, wanted in absent.items():
        near = difflib.get_close_matches(ours, free, n=1, cutoff=0.3)
        missing.append(f"for '{ours}'" if wanted[0] == ours else f"'{wanted[0]}' (asked for as '{ours}')")
        remedies.append(shlex.join(["--set", f"{setting}.{ours}={near[0] if near else 'THEIRS'}"]))
        hints += near
    shown = ", ".join(columns[:30]) + (", …" if len(columns) > 30 else "")
    nearest = f" Nearest: {', '.join(hints)}." if hints else ""
    return (
        f"{where} has no column {' nor '.join(missing)}. Columns found: {shown or 'none'}.{nearest} "
        f"Say which one it is with {' '.join(remedies)}."
    )
