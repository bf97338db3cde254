"""Times as shops write them → instants in UTC.

A time without a zone is read in the zone the settings name. Where a clock goes back, the hour that exists twice is
read as its first occurrence; where it goes forward, a time in the skipped hour never was and becomes null.
Epoch numbers tell their unit by their size: the ranges of plausible seconds, milli-, micro- and nanoseconds do not
meet. Numbers such as 20240131 are dates: as seconds they would lie in August 1970, before any shop log.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

INSTANT = pl.Datetime("ms", "UTC")
ASSUMED = "(assumed)"
EPOCH = "UTC (epoch numbers)"

_UNITS_PER_SECOND = {"ms": 10**3, "us": 10**6, "ns": 10**9}
_YEAR_1, _YEAR_9999 = -62_135_596_800, 253_402_300_799  # in seconds; polars panics on years chrono cannot hold
_ISO = (
    r"^(\d{4})[-/](\d\d)[-/](\d\d)"  # 1 2 3: date
    r"(?:[T ](\d\d:\d\d)(:\d\d)?([.,]\d+)?"  # 4 5 6: time, seconds, fraction
    r"\s*(Z|z|UTC|GMT|[+-]\d\d(?::?\d\d)?)?)?$"  # 7: zone
)


def readable(dtype: pl.DataType) -> bool:
    """Whether a column of this type can hold times at all."""
    return dtype.is_numeric() or isinstance(dtype, pl.Datetime | pl.Date | pl.String | pl.Null)


def instants(raw: pl.Expr, dtype: pl.DataType, zone: str, formats: Sequence[str] = ()) -> pl.Expr:
    """`raw` as `Datetime("ms", "UTC")`; null where it is not a time. `formats`: further forms of texts, in `zone`."""
    if dtype == INSTANT or isinstance(dtype, pl.Null):
        return raw.cast(INSTANT)
    if isinstance(dtype, pl.Datetime):
        if dtype.time_zone:
            return raw.dt.convert_time_zone("UTC").dt.cast_time_unit("ms")
        safe = raw if zone == "UTC" else within_calendar(raw, dtype)
        return _place(safe.dt.cast_time_unit("ms"), zone)
    if isinstance(dtype, pl.Date):
        return _place(raw.cast(pl.Datetime("ms")), zone)
    if isinstance(dtype, pl.String):
        return pl.coalesce(_from_text(raw, zone), *(_written(raw, form, zone) for form in formats))
    return _from_number(raw, zone)


def zones(raw: pl.Expr, dtype: pl.DataType, zone: str) -> pl.Expr:
    """In which zone each time was written, for the report."""
    assumed = pl.lit(f"{zone} {ASSUMED}")
    if isinstance(dtype, pl.Datetime):
        return pl.lit(dtype.time_zone) if dtype.time_zone else assumed
    if isinstance(dtype, pl.String):
        written = raw.str.strip_chars().str.extract(_ISO, 7)
        number = raw.str.contains(r"^\s*-?\d+(\.\d+)?\s*$")
        return pl.when(number).then(pl.lit(EPOCH)).otherwise(written.fill_null(assumed))
    return assumed if isinstance(dtype, pl.Date) else pl.lit(EPOCH)


def within_calendar(raw: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """`raw` where it lies in the years 1 to 9999, else null: others cannot be printed or moved between zones."""
    if not isinstance(dtype, pl.Datetime):
        return raw
    unit = _UNITS_PER_SECOND[dtype.time_unit]
    low, high = max(_YEAR_1 * unit, -(2**63)), min(_YEAR_9999 * unit, 2**63 - 1)
    return pl.when(raw.to_physical().is_between(low, high)).then(raw)


def _place(naive: pl.Expr, zone: str) -> pl.Expr:
    """A wall-clock time in `zone` as an instant."""
    if zone == "UTC":
        return naive.dt.replace_time_zone("UTC")
    placed = naive.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")
    return placed.dt.convert_time_zone("UTC")


def _from_number(raw: pl.Expr, zone: str) -> pl.Expr:
    day = pl.when(raw.is_between(1900_01_01, 2100_12_31)).then(raw).cast(pl.Int64, strict=False).cast(pl.String)
    return pl.coalesce(_place(day.str.to_datetime("%Y%m%d", strict=False, time_unit="ms"), zone), _from_epoch(raw))


def _from_epoch(raw: pl.Expr) -> pl.Expr:
    size = raw.abs()
    milliseconds = (
        pl.when(size < 10**11)
        .then((raw.cast(pl.Float64) * 1000).round().cast(pl.Int64, strict=False))  # doubles are exact up to 2**53
        .when(size < 10**14)
        .then(raw.cast(pl.Int64, strict=False))
        .when(size < 10**17)
        .then(raw.cast(pl.Int64, strict=False) // 1000)
        .otherwise(raw.cast(pl.Int64, strict=False) // 10**6)
    )
    return milliseconds.cast(INSTANT)


def _from_text(raw: pl.Expr, zone: str) -> pl.Expr:
    """The common forms first: each slower reader sees only what the ones before could not read."""
    plain = _place(raw.str.to_datetime("%Y-%m-%d %H:%M:%S", strict=False, time_unit="ms"), zone)
    rest = pl.when(plain.is_null()).then(raw.str.strip_chars())
    aware = rest.str.to_datetime("%Y-%m-%dT%H:%M:%S%.f%#z", strict=False, time_unit="ms")
    last = pl.when(aware.is_null()).then(rest)
    number = pl.when(last.str.contains(r"^-?\d+(\.\d+)?$")).then(last).cast(pl.Float64, strict=False)
    whole = last.cast(pl.Int64, strict=False)  # a double would round nanoseconds
    return pl.coalesce(plain, aware, _from_iso(last, zone), _from_number(whole, zone), _from_number(number, zone))


def _written(raw: pl.Expr, form: str, zone: str) -> pl.Expr:
    text = raw.str.strip_chars()
    has_clock = "%H" in form
    at = text.str.to_datetime(form, strict=False, time_unit="ms") if has_clock else text.str.to_date(form, strict=False)
    return _place(at.cast(pl.Datetime("ms")), zone)


def _from_iso(text: pl.Expr, zone: str) -> pl.Expr:
    """Any ISO 8601 form: date only, without seconds, with a comma, zone as Z, UTC, +02, +0200, +02:00."""
    part = text.str.extract_groups(_ISO).struct.field
    fraction = part("6").fill_null("").str.replace(",", ".", literal=True)
    clock = part("4").fill_null("00:00") + part("5").fill_null(":00") + fraction
    wall = part("1") + "-" + part("2") + "-" + part("3") + " " + clock
    offset = part("7").str.replace(r"Z|z|UTC|GMT", "+00:00")
    aware = (wall + offset).str.to_datetime("%Y-%m-%d %H:%M:%S%.f%#z", strict=False, time_unit="ms")
    naive = pl.when(offset.is_null()).then(wall).str.to_datetime("%Y-%m-%d %H:%M:%S%.f", strict=False, time_unit="ms")
    return pl.coalesce(aware, _place(naive, zone))
