"""What two tables hold, what is wrong with them, and what is missing before examples can be made of them."""

from __future__ import annotations

from datetime import datetime, timedelta

import polars as pl
from rich.table import Table
from rich.text import Text

from merit.core.config import Frozen
from merit.data import validate
from merit.data.schema import SourceTables
from merit.data.sources.files import reading
from merit.data.validate import INTERACTION, BadRow, BadRows, IndexedTables, UnknownEvents
from merit.privacy import contacts
from merit.privacy.contacts import Contacts

FEW_EVENTS = 3  # below, a user has nothing to predict from
GAP = timedelta(days=7)  # between a history and its target
SHOWN = 5  # bad rows shown of each table

_SUSPECTS = {  # what may look alarming in a text, and why it is not (or is)
    "control tokens": (
        r"</?s>|\[(?:SEP|CLS|MASK|PAD|INST)\]|<\|[^|<>]{1,40}\|>|<(?:pad|unk|bos|eos|sep|end)>",
        "look like control tokens of a language model. They are kept: text from items never becomes a control token.",
    ),
    "emoji": (r"\p{Extended_Pictographic}", "hold emoji. They are kept."),
    "right-to-left": (r"[\p{Arabic}\p{Hebrew}\x{202B}\x{202E}\x{2067}]", "hold right-to-left text. It is kept."),
    "undecodable": (r"\x{FFFD}", "hold characters that were lost in an earlier conversion (�). Export them as UTF-8."),
}


class Report(Frozen):
    """The result of `merit data check`."""

    names: dict[str, str]
    rows: BadRows
    users: int
    events: dict[str, int]
    first: datetime | None
    last: datetime | None
    zones: dict[str, int]
    """How times were written → rows. "(assumed)" where the tables do not say."""
    orders: int
    repeated_interactions: int
    """Rows equal to an earlier one. They are kept: buying two is legal."""
    tags: int
    verticals: int
    items_without_tags: int
    items_without_title: int
    items_never_seen: int
    users_with_few_events: int
    users_with_short_span: int
    users_ready: int
    """With enough events over enough days for an example."""
    contacts: tuple[Contacts, ...]
    """Items that seem to hold e-mail addresses or phone numbers: how many, and where."""
    missing: tuple[str, ...]
    """What has to be mended before examples can be made, in sentences."""
    notes: tuple[str, ...]
    unknown_events: UnknownEvents
    bad: tuple[BadRow, ...]
    """The first of each table, but for those of unknown events."""


def examine(tables: SourceTables) -> Report:
    """A description of both tables, read once. Only unreadable files raise: bad rows are what the report is about."""
    both = validate.index(tables)
    items, valid, at = both.items, both.interactions, pl.col("timestamp")
    queries = [
        both.row_counts(),
        valid.group_by("event").agg(pl.len(), at.min().alias("first"), at.max().alias("last")),
        valid.group_by("user_id").agg(pl.len(), (at.max() - at.min()).alias("span")),
        valid.select(pl.col("item").n_unique(), pl.col("order_id").drop_nulls().n_unique()),
        valid.select(pl.len() - pl.struct(*INTERACTION).hash().n_unique()),
        both.indexed.group_by("zone").len().sort("len", descending=True),
        validate.event_counts(both.indexed),
    ]
    with reading(tables.files):
        counts, events, users, seen, repeated, zones, unknown = pl.collect_all(queries, engine="streaming")
    rows = both.bad_rows(counts)
    few, short, contact = pl.col("len") < FEW_EVENTS, pl.col("span") < GAP, contacts.find(items)
    report = Report(
        names=tables.names,
        rows=rows,
        users=users.height,
        events=dict(events.select("event", "len").sort("event").iter_rows()),
        first=events["first"].min(),
        last=events["last"].max(),
        zones={str(zone): int(count) for zone, count in zones.iter_rows()},
        orders=seen.item(0, 1),
        repeated_interactions=repeated.item(),
        tags=items["tags"].explode().drop_nulls().n_unique(),
        verticals=items["vertical"].n_unique(),
        items_without_tags=int((items["tags"].list.len() == 0).sum()),
        items_without_title=int((items["title"] == "").sum()),
        items_never_seen=items.height - seen.item(0, 0),
        users_with_few_events=users.filter(few).height,
        users_with_short_span=users.filter(~few & short).height,
        users_ready=users.filter(~few & ~short).height,
        contacts=contact,
        missing=(),
        notes=tuple(_notes(items, users["user_id"], contact)),
        unknown_events=validate.most_frequent(unknown),
        bad=_first_bad(both, rows.bad_interactions - int(unknown["rows"].sum())),
    )
    return report.model_copy(update={"missing": _missing(report, tables.max_bad_share)})


def _first_bad(both: IndexedTables, bad: int) -> tuple[BadRow, ...]:
    frames = [both.bad_items.select("file", "row", "problem").head(SHOWN)]
    if bad:
        others = both.indexed.filter(validate.unknown_event(pl.col("problem")).is_null())
        frames.append(validate.first_bad(others, both.source.files, SHOWN))
    return tuple(BadRow(file=file, row=row, reason=reason) for file, row, reason in pl.concat(frames).iter_rows())


def _missing(report: Report, max_bad_share: float) -> tuple[str, ...]:
    rows, span = report.rows, (report.last - report.first) if report.first and report.last else timedelta(0)
    usable = rows.interactions - rows.bad_interactions - rows.unknown_items
    checks = [
        (not rows.interactions, "There are no interactions."),
        (not rows.items, "There are no items."),
        (
            rows.bad_interactions > max_bad_share * rows.interactions or rows.bad_items > max_bad_share * rows.items,
            f"Too many bad rows (more than {max_bad_share:.2%}): mend them, "
            "or allow more with --set source.max_bad_share=….",
        ),
        (
            bool(rows.unknown_items) and not usable,
            "No interaction's item is in the items table: are the ids of both tables written the same way?",
        ),
        (
            bool(usable) and not report.events.get("purchase"),
            "There are no purchases, and examples are made at purchases. If another event means one: "
            "--set source.events.THEIRS=purchase.",
        ),
        (
            bool(usable) and span < GAP + timedelta(days=1),
            f"The interactions span {span.days} days; at least 8 are needed "
            "(a gap of 7 days lies between history and target).",
        ),
        (
            bool(rows.items) and report.tags == 0 and report.items_without_title == rows.items - rows.bad_items,
            "No item has a tag or a title, so there are no interests. "
            "Name columns to take them from: --set 'source.extra_tags=[\"brand\"]'.",
        ),
        (
            bool(usable) and report.users_ready < 3,
            f"Only {report.users_ready} users have {FEW_EVENTS} events over {GAP.days} days; "
            "train, validation and test need one each.",
        ),
    ]
    return tuple(sentence for wrong, sentence in checks if wrong)


def _notes(items: pl.DataFrame, users: pl.Series, contact: tuple[Contacts, ...]) -> list[str]:
    tags = items["tags"].list.join("\n")
    notes = []
    for pattern, sentence in _SUSPECTS.values():
        hit = items["title"].str.contains(pattern) | tags.str.contains(pattern)
        if count := int(hit.sum()):
            file, row = items.filter(hit).sort("file", "row").select("file", "row").row(0)
            notes.append(f"Titles or tags of {count:,} items {sentence} First: {file}, row {row}.")
    single = (items["tags"].list.len() == 1) & tags.str.contains(", ", literal=True)
    if single.sum() > len(single) / 2:
        notes.append(
            "Most items have one tag with commas in it. If these are several tags: --set 'source.tag_separator=\",\"'."
        )
    if len(items) and not (items["tags"].list.len() > 0).any():
        notes.append(
            "No item has a tag. Interests can be read from titles: --set 'tags.sources=[\"mine\"]' (docs/tags.md); "
            "or name columns to take them from: --set 'source.extra_tags=[\"brand\"]'."
        )
    notes += map(contacts.warning, contact)
    if count := int(users.str.contains(contacts.KINDS["e-mail addresses"]).sum()):
        notes.append(
            f"{count:,} user ids seem to be e-mail addresses. Keep them out of the run: --set source.pseudonyms=KEY."
        )
    return notes


def render(report: Report) -> list[Table | Text]:
    """The report for a terminal. Texts from the data are plain `Text`: their brackets are no markup."""
    rows = report.rows
    span = f"{report.first:%Y-%m-%d} to {report.last:%Y-%m-%d}" if report.first and report.last else "none"
    parts: list[Table | Text] = [
        _table(
            f"Interactions: {report.names.get('interactions', '')}",
            {
                "rows": rows.interactions,
                **{f"  {name}": count for name, count in report.events.items() if count},
                "span (UTC)": span,
                **{f"times in {zone}": count for zone, count in report.zones.items()},
                "orders": report.orders,
                "repeated rows (kept)": report.repeated_interactions,
                "unknown items (set aside)": rows.unknown_items,
                "bad rows": rows.bad_interactions,
            },
        ),
        _table(
            f"Items: {report.names.get('items', '')}",
            {
                "rows": rows.items,
                "distinct tags": report.tags,
                "verticals": report.verticals,
                "without tags": report.items_without_tags,
                "without title": report.items_without_title,
                "never seen in interactions": report.items_never_seen,
                "repeated rows (merged)": rows.merged_items,
                "bad rows": rows.bad_items,
            },
        ),
        _table(
            "Users",
            {
                "users": report.users,
                f"fewer than {FEW_EVENTS} events": report.users_with_few_events,
                f"less than {GAP.days} days": report.users_with_short_span,
                "ready for examples": report.users_ready,
            },
        ),
    ]
    parts += [Text(f"Bad row: {bad.file}, row {bad.row}: {bad.reason}", style="yellow") for bad in report.bad]
    if report.unknown_events.words:
        parts.append(Text(validate.describe_events(report.unknown_events), style="yellow"))
    parts += [Text(f"Note: {note}") for note in report.notes]
    parts += [Text(f"Missing: {sentence}", style="bold red") for sentence in report.missing]
    return parts if report.missing else [*parts, Text("Ready: examples can be made of these tables.", style="green")]


def _table(title: str, values: dict[str, int | str]) -> Table:
    table = Table("", "", title=Text(title), title_justify="left", title_style="bold", show_header=False)
    for name, value in values.items():
        table.add_row(Text(name), Text(f"{value:,}" if isinstance(value, int) else value), end_section=False)
    return table
