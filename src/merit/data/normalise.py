"""The columns of a shop → ours, as expressions on lazy frames.

Nothing is dropped here: a row that cannot be used keeps its place and gets a `problem`, in words. A column that already
has our type costs nothing. Reasons quote the offending value, and values are masked before they are turned into text,
so that a column of good rows pays for no text at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta

import polars as pl

from merit.core.errors import DataError
from merit.core.types import Event
from merit.data import times
from merit.data.schema import EVENT_NAMES, EVENTS, FILE, INTERACTION_NAMES, ITEM_NAMES, MAX_ID_BYTES, ROW, ParseOptions

_TEXT = pl.List(pl.String)
_ENTITIES = {"&amp;": "&", "&quot;": '"', "&#39;": "'", "&#039;": "'", "&lt;": "<", "&gt;": ">", "&nbsp;": " "}
UNKNOWN_EVENT = "event '{}' is not known (source.events can say what it means)"
_PLACE = (pl.col(FILE).alias("file"), pl.col(ROW).cast(pl.UInt64).alias("row"))
_QUOTED = r""""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'"""  # the members of a list written as JSON or Python text


@dataclass(frozen=True)
class Raw:
    """One column as it was given."""

    theirs: str
    expr: pl.Expr
    dtype: pl.DataType
    text: bool
    """The format has no types (CSV, JSON): ids need tidying."""


def interactions(
    frame: pl.LazyFrame, mapping: Mapping[str, str], file: str, options: ParseOptions, text: bool = False
) -> pl.LazyFrame:
    """The interactions of one scan; `file` is named in messages."""
    raw = _raws(frame, mapping, text)
    _require_types(raw, file)
    at, zone = raw["timestamp"], options.time_zone
    order = _id(raw["order_id"]) if "order_id" in raw else pl.lit(None, pl.String)
    parsed = _renamed(frame, raw).with_columns(
        user_id=_id(raw["user_id"]),
        item_id=_id(raw["item_id"]),
        timestamp=times.instants(at.expr, at.dtype, zone, options.time_formats),
        event=_event(raw.get("event"), options, file),
        order_id=pl.when(order != "").then(order),
    )
    problems = [*_id_problems("user_id", raw["user_id"]), *_id_problems("item_id", raw["item_id"])]
    problems += _time_problems(at, options)
    if event := raw.get("event"):
        given = event.expr.is_not_null()
        problems += [_say("event is empty", ~given), _quote(UNKNOWN_EVENT, event, pl.col("event").is_null() & given)]
    return parsed.select(
        *("user_id", "item_id", "timestamp", "event", "order_id", _first(problems), *_PLACE),
        times.zones(at.expr, at.dtype, zone).alias("zone"),
        _original(raw, tuple(INTERACTION_NAMES)),
    )


def items(
    frame: pl.LazyFrame,
    mapping: Mapping[str, str],
    extra_tags: Sequence[str],
    file: str,
    options: ParseOptions,
    text: bool = False,
    further: Mapping[str, Sequence[str]] | None = None,
) -> pl.LazyFrame:
    """The items of one scan. `extra_tags`: further columns whose text becomes tags. `further`: columns whose text is
    `text` and `brand`, which only the tagger reads."""
    raw = _raws(frame, mapping, text)
    extra = _raws(frame, {f"extra {name}": name for name in extra_tags}, text)
    named = {f"{ours} {theirs}": theirs for ours, columns in (further or {}).items() for theirs in columns}
    more = _raws(frame, named, text)
    _require_types(raw, file)
    tagged = [raw["tags"], *extra.values()] if "tags" in raw else [*extra.values()]
    lists = [tag_list(column, options.tag_separator) for column in tagged]
    parsed = _renamed(frame, raw | extra | more).with_columns(
        item_id=_id(raw["item_id"]),
        title=tidy(_text(raw["title"])).fill_null(""),
        tags=clean_tags(pl.concat_list(lists)) if lists else pl.lit([], _TEXT),
        vertical=_vertical(raw.get("vertical"), options.tag_separator),
    )
    too_long = f"{{}} has {{}} characters, more than {options.max_title_chars} (source.max_title_chars)"
    title, tag = pl.col("title").str.len_chars(), pl.col("tags").list.eval(pl.element().str.len_chars()).list.max()
    problems = _id_problems("item_id", raw["item_id"])
    for name, length in (("title", title), ("a tag", tag)):
        problems.append(pl.format(too_long, pl.lit(name), pl.when(length > options.max_title_chars).then(length)))
    return parsed.select(
        *("item_id", "title", "tags", "vertical", _first(problems), *_PLACE, _original(raw, tuple(ITEM_NAMES))),
        **{ours: _together(more, ours) for ours in ("text", "brand")},
    )


def _together(columns: Mapping[str, Raw], ours: str) -> pl.Expr:
    """The texts of several columns of one meaning as one, set apart; null where there are none."""
    texts = [tidy(_text(column)) for name, column in columns.items() if name.startswith(f"{ours} ")]
    return pl.concat_str(texts, separator=" | ", ignore_nulls=True) if texts else pl.lit(None, pl.String)


def tidy(text: pl.Expr) -> pl.Expr:
    """One line without control characters, doubled spaces or the entities of a web page."""
    return text.str.replace_many(_ENTITIES).str.replace_all(r"[\s\p{Cc}]+", " ").str.strip_chars()


def clean_tags(tags: pl.Expr) -> pl.Expr:
    """Tidy, without empty ones or repetitions, in the order given; never null."""
    kept = tags.list.eval(tidy(pl.element())).list.eval(pl.element().filter(pl.element() != ""))
    return kept.list.unique(maintain_order=True).fill_null(pl.lit([], _TEXT))


def tag_list(raw: Raw, separator: str) -> pl.Expr:
    """A list of texts from a list, nested lists, a list written as text, or texts joined by a separator."""
    dtype = raw.dtype
    if isinstance(dtype, pl.List) and isinstance(dtype.inner, pl.List):
        joined = raw.expr.list.eval(pl.element().cast(_TEXT).list.join("\x1f"))
        return joined.list.join("\x1f").str.split("\x1f").fill_null(pl.lit([], _TEXT))
    if isinstance(dtype, pl.List):
        return raw.expr.cast(_TEXT).fill_null(pl.lit([], _TEXT))
    text = _text(raw)
    bare = pl.element().str.replace(r"(?s)^.(.*).$", "${1}").str.replace_all(r"\\[nrt]", " ")
    members = text.str.extract_all(_QUOTED).list.eval(bare.str.replace_all(r"\\(.)", "${1}"))
    written = text.str.contains(r"""^\s*\[.*["'].*\]\s*$""")
    return pl.when(written).then(members).otherwise(text.str.split(separator)).fill_null(pl.lit([], _TEXT))


def _raws(frame: pl.LazyFrame, mapping: Mapping[str, str], text: bool) -> dict[str, Raw]:
    schema = frame.collect_schema()
    return {ours: Raw(theirs, pl.col(f"raw {ours}"), schema[theirs], text) for ours, theirs in mapping.items()}


def _renamed(frame: pl.LazyFrame, raw: Mapping[str, Raw]) -> pl.LazyFrame:
    return frame.select(ROW, FILE, *[pl.col(column.theirs).alias(f"raw {ours}") for ours, column in raw.items()])


def _require_types(raw: Mapping[str, Raw], file: str) -> None:
    """Refuse a whole column that can never hold what is needed, rather than quarantine every row of it."""
    for ours, column in raw.items():
        dtype = column.dtype
        texts = isinstance(dtype, pl.String | pl.Categorical | pl.Enum | pl.Binary | pl.Null)
        if ours == "timestamp":
            needed, fits = "times", times.readable(dtype)
        elif ours in ("tags", "vertical"):
            needed, fits = "lists of text, or text", texts or isinstance(dtype, pl.List)
        else:
            needed, fits = "text or whole numbers", texts or dtype.is_numeric()
        if not fits:
            setting = "item_columns" if "title" in raw else "columns"
            raise DataError(
                f"{file}: column '{column.theirs}' holds {dtype}, but {ours} needs {needed}. "
                f"Name another column with --set source.{setting}.{ours}=THEIRS, or convert it."
            )


def _text(raw: Raw, where: pl.Expr | None = None) -> pl.Expr:
    """The value as text, where `where` holds."""
    value = times.within_calendar(raw.expr, raw.dtype)
    value = value if where is None else pl.when(where).then(value)
    if isinstance(raw.dtype, pl.List):
        return pl.when(value.is_not_null()).then(pl.struct(tags=value).struct.json_encode())
    return value if isinstance(raw.dtype, pl.String) else value.cast(pl.String)


def _quote(template: str, raw: Raw, where: pl.Expr) -> pl.Expr:
    """A reason with the offending value in it, shortened; null where all is well."""
    return pl.format(template, _text(raw, where).str.slice(0, 60))


def _first(problems: list[pl.Expr]) -> pl.Expr:
    """The first reason, harmless to print: a quoted value may hold line breaks or terminal commands."""
    return pl.coalesce(problems).str.replace_all(r"\p{Cc}", " ").alias("problem")


def _say(sentence: str, where: pl.Expr) -> pl.Expr:
    return pl.when(where).then(pl.lit(sentence))


def _original(raw: Mapping[str, Raw], names: tuple[str, ...]) -> pl.Expr:
    """The mapped values as they were given, as text. Only the quarantine asks for it."""
    given = [(_text(raw[ours]) if ours in raw else pl.lit(None, pl.String)).alias(ours) for ours in names]
    return pl.struct(given).alias("original")


def identity(frame: pl.LazyFrame, column: str, text: bool) -> pl.Expr:
    """The ids of another table, read as those of interactions are."""
    return _id(Raw(column, pl.col(column), frame.collect_schema()[column], text))


def _id(raw: Raw) -> pl.Expr:
    if isinstance(raw.dtype, pl.String):
        # A table that went through pandas writes 17850 as 17850.0 wherever one id is missing.
        return raw.expr.str.strip_chars().str.replace(r"^(\d+)\.0$", "${1}") if raw.text else raw.expr
    if raw.dtype.is_float() or raw.dtype.is_decimal():
        whole = raw.expr.cast(pl.Float64).cast(pl.Int64, strict=False)
        return pl.when(whole == raw.expr.cast(pl.Float64)).then(whole).cast(pl.String)
    return raw.expr.cast(pl.String)


def _id_problems(ours: str, raw: Raw) -> list[pl.Expr]:
    value, given = pl.col(ours), raw.expr.is_not_null()
    problems = [
        _quote(f"{ours} {{}} is not a whole number", raw, value.is_null() & given),
        _say(f"{ours} is empty", value.is_null() | (value == "")),
        _say(f"{ours} is longer than {MAX_ID_BYTES} bytes", value.str.len_bytes() > MAX_ID_BYTES),
    ]
    if raw.text:
        broken = value.str.contains("\n", literal=True)
        problems.append(_quote(f"{ours} '{{}}' holds a line break (a quote before it is not closed?)", raw, broken))
    return problems


def _time_problems(raw: Raw, options: ParseOptions) -> list[pl.Expr]:
    value, given = pl.col("timestamp"), raw.expr.is_not_null()
    outside = given & times.within_calendar(raw.expr, raw.dtype).is_null()
    first = datetime.combine(options.earliest, time(), UTC)
    last = datetime.combine(options.latest + timedelta(days=1), time(), UTC) if options.latest else None
    until = last or datetime.now(UTC) + timedelta(days=2)  # two days: clocks and zones of senders may be off
    late = f"is after {options.latest} (source.latest)" if last else f"lies in the future (after {until:%Y-%m-%d})"
    gap = "" if options.time_zone == "UTC" else f", or one that the clocks of {options.time_zone} skipped"
    return [
        _say("timestamp is empty", ~given),
        _say("timestamp lies outside the years 1 to 9999", outside),
        _quote(
            f"timestamp '{{}}' is not a time (ISO 8601 or epoch{gap}; source.time_formats says others)",
            raw,
            value.is_null() & given,
        ),
        _quote(
            f"timestamp '{{}}' is before {options.earliest} (source.earliest)",
            raw,
            value < pl.lit(first, times.INSTANT),
        ),
        _quote(f"timestamp '{{}}' {late}", raw, value >= pl.lit(until, times.INSTANT)),
    ]


def _event(raw: Raw | None, options: ParseOptions, file: str) -> pl.Expr:
    if raw is None:
        if options.default_event is None:
            raise DataError(
                f"{file} has no event column, so it does not say what the rows are. If all are purchases: "
                "--set source.default_event=purchase; if a column tells: --set source.columns.event=THEIRS."
            )
        return pl.lit(options.default_event, EVENTS)
    if raw.dtype == EVENTS and not options.events:
        return raw.expr
    text = _text(raw)
    exact = text.cast(EVENTS, strict=False) if not options.events else pl.lit(None, EVENTS)
    rest = _event_key(pl.when(exact.is_null()).then(text))
    given = pl.Series("given", list(options.events), pl.String).to_frame().select(_event_key(pl.col("given")))["given"]
    meanings: dict[str, Event] = {**EVENT_NAMES, **dict(zip(given, options.events.values(), strict=True))}
    words = {
        event: [word for word in meanings if meanings[word] == event] for event in dict.fromkeys(meanings.values())
    }
    # replace_strict would hold the whole column in memory
    return pl.coalesce(
        exact, *(pl.when(rest.is_in(names)).then(pl.lit(event, EVENTS)) for event, names in words.items())
    )


def _event_key(text: pl.Expr) -> pl.Expr:
    """One word for "Add to Cart" and add-to-cart, in tables and in settings."""
    return text.str.strip_chars().str.to_lowercase().str.replace_all(r"[ -]", "_")


def _vertical(raw: Raw | None, separator: str) -> pl.Expr:
    """One text per item; of a list, the first."""
    if raw is None:
        return pl.lit("other")
    text = tidy(tag_list(raw, separator).list.first())
    return pl.when(text != "").then(text).otherwise(pl.lit("other"))
