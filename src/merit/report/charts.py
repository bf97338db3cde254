"""Charts as SVG text: one theme, no script, no request, and a text alternative in each.

Without vl-convert, which draws them (the extra `charts`), the text alternative stands in the place of the picture.

The background is transparent and all text takes the colour of the page around it (`currentColor`), so a chart reads
in light, in dark and on paper. Series colours are of middle lightness for the same reason, from the palette of Okabe
and Ito, which colour-blind readers can tell apart.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from html import escape
from typing import Any, Literal, NewType

import altair as alt
import polars as pl

from merit.core import extras

PALETTE = ("#2a7ab9", "#d55e00", "#009e73", "#b5659b", "#8a8f98")
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
WIDTH, HEIGHT = 400, 220  # small, so that a phone shows the text nearly at its own size
Svg = NewType("Svg", str)  # only this file makes one, so a page may print it unescaped
Format = Literal["count", "percent", "number", "date"]
FORMATS: dict[Format, str] = {"count": "~s", "percent": ".0%", "number": "~g", "date": "%b %Y"}

INK = dict.fromkeys(("labelColor", "titleColor", "domainColor", "tickColor", "gridColor"), "currentColor")
THEME: dict[str, Any] = {
    "background": None,
    "font": FONT,
    "view": {"stroke": None},
    "range": {"category": list(PALETTE)},
    "axis": {
        **INK,
        "gridOpacity": 0.13,
        "domainOpacity": 0.4,
        "tickOpacity": 0.4,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": 600,
        "titlePadding": 10,
        "labelLimit": 190,
    },
    "legend": {
        "labelColor": "currentColor",
        "titleColor": "currentColor",
        "labelFontSize": 12,
        "orient": "top",
        "columnPadding": 22,
    },
    "text": {"color": "currentColor", "fontSize": 12},
    "bar": {"color": PALETTE[0]},
    "line": {"color": PALETTE[0], "strokeWidth": 2.2},
    "area": {"color": PALETTE[0]},
    "point": {"color": PALETTE[0], "filled": True},
}


def bars(frame: pl.DataFrame, category: str, value: str, *, description: str, form: Format = "count") -> Svg:
    """Horizontal bars in the order of the frame, each with its value: for names."""
    base = alt.Chart(frame).encode(
        y=alt.Y(f"{_field(category)}:N", sort=None, title=None, axis=alt.Axis(ticks=False, domain=False)),
        x=alt.X(f"{_field(value)}:Q", title=None, axis=alt.Axis(grid=False, labels=False, ticks=False, domain=False)),
    )
    words = alt.Text(f"{_field(value)}:Q", format={"count": ",", "percent": ".1%", "number": ".3~g"}[form])
    text = base.mark_text(align="left", dx=5).encode(text=words)
    return svg((base.mark_bar() + text).properties(width=WIDTH - 130, height=alt.Step(22)), description)


def columns(
    frame: pl.DataFrame, category: str, value: str, *, description: str, x: str, y: str, form: Format = "count"
) -> Svg:
    """Vertical bars in the order of the frame: for bins, so also a histogram of binned counts."""
    base = alt.Chart(frame).encode(
        x=alt.X(
            f"{_field(category)}:N", sort=None, title=x, axis=alt.Axis(labelAngle=_angle(frame[category]), ticks=False)
        ),
        y=alt.Y(f"{_field(value)}:Q", title=y, axis=_axis(form)),
    )
    return svg(base.mark_bar(width={"band": 0.86}), description)


def curve(
    frame: pl.DataFrame,
    x: str,
    y: str,
    *,
    description: str,
    x_title: str = "",
    y_title: str = "",
    log: bool = False,
    x_form: Format = "count",
    area: bool = False,
) -> Svg:
    """A line over numbers or dates; both axes may be logarithmic."""
    kind, scale = "T" if x_form == "date" else "Q", alt.Scale(type="log") if log else alt.Scale()
    chart = alt.Chart(frame).encode(
        x=alt.X(f"{_field(x)}:{kind}", title=x_title or None, scale=scale, axis=_axis(x_form, log)),
        y=alt.Y(f"{_field(y)}:Q", title=y_title or None, scale=scale, axis=_axis("count", log)),
    )
    return svg(chart.mark_area(line=True, opacity=0.25) if area else chart.mark_line(), description)


def _field(name: str) -> str:
    """Altair's shorthand reads these characters as syntax."""
    return re.sub(r"([:.\[\]])", r"\\\1", name)


def _axis(form: Format, log: bool = False) -> alt.Axis:
    """Every tick is formatted by itself: Vega's own ticks share a unit, so that zero becomes "0k"."""
    tick = f"format(datum.value, '{FORMATS[form]}')"
    if log:  # one label a decade: more cannot be read
        return alt.Axis(values=[10.0**power for power in range(-6, 10)], labelExpr=tick)
    if form == "date":
        return alt.Axis(format=FORMATS[form], tickCount=5, grid=False, labelFlush=False)
    return alt.Axis(labelExpr=tick, tickCount=5, domain=False)


def _angle(names: pl.Series) -> int:
    """Names lie flat where there is room."""
    longest = int(names.cast(pl.String).str.len_chars().max() or 0)  # type: ignore[arg-type]
    return 0 if longest * len(names) < WIDTH / 9 else -35


def on_white(svg: Svg) -> str:
    """A file of its own, which no page lends colours to."""
    with extras.needed_by("A chart in a file"):
        import vl_convert  # noqa: F401
    head, rest = svg.split(">", 1)
    paper = '<rect width="100%" height="100%" fill="#ffffff"/>'
    return f"{head}>{paper}{rest}".replace("currentColor", "#33373d")


def svg(chart: alt.Chart | alt.LayerChart | alt.HConcatChart, description: str) -> Svg:
    """The chart in the common theme, with a description for those who cannot see it."""
    if isinstance(chart.data, pl.DataFrame) and chart.data.is_empty():
        return Svg("")  # empty axes say less than the sentence that the page has for this
    if extras.missing("charts"):
        return Svg(f'<p class="note">{escape(description)} (To draw this: {escape(extras.install_line("charts"))})</p>')
    import vl_convert  # 84 MB that nothing but pictures needs

    spec = chart.to_dict()
    spec["config"] = THEME
    if "hconcat" not in spec:  # its panels have sizes of their own
        spec = {"width": WIDTH, "height": HEIGHT} | spec
    drawn = vl_convert.vegalite_to_svg(spec, allowed_base_urls=[])  # a chart never fetches anything
    prefix = blake2b((description + drawn).encode(), digest_size=4).hexdigest()  # ids are unique on the whole page
    drawn = re.sub(r'(id="|url\(#)((?:clip|gradient_?)\d+)', rf"\g<1>{prefix}-\g<2>", drawn)
    head, rest = drawn[drawn.index("<svg") :].split(">", 1)
    return Svg(f'{head} role="img" aria-label="{escape(description)}"><title>{escape(description)}</title>{rest}')
