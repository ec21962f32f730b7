"""A plan drawn: one description, as an SVG picture or as a page that needs no network."""

from __future__ import annotations

import html
import json
import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

from loadgen.report.figures import clean
from loadgen.report.plan_bars import Bars

if TYPE_CHECKING:
    import altair as alt

HEIGHT = 180
SVG_LINE = 140  # characters of a line above the charts
_COLOURS = ["#4c78a8", "#f58518", "#54a24b", "#b279a2", "#e45756", "#72b7b2", "#9d755d", "#eeca3b"]
_LAW = "#222222"
_OPEN = "window.vegaEmbed = vegaEmbed;"
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ font: 16px/1.45 system-ui, sans-serif; color: #222;
  margin: 1.5rem auto; padding: 0 1rem; max-width: 70rem; overflow-wrap: anywhere; }}
main {{ display: grid; gap: 1.5rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); }}
figure {{ margin: 0; min-width: 0; }}
figure > div {{ width: 100%; }}
</style>
</head>
<body>
<h1>{title}</h1>
{sentences}
<main>{figures}</main>
<script>{library}</script>
<script>
const specs = {specs};
specs.forEach((spec, i) => vegaEmbed("#chart" + i, spec, {{actions: false, renderer: "svg"}}));
</script>
</body>
</html>
"""


def svg(title: str, sentences: list[str], shown: list[Bars]) -> str:
    """All charts in one picture, two beside each other."""
    import altair as alt
    import vl_convert

    charts = [_chart(bars).properties(width=420) for bars in shown]
    lines = [line for said in sentences for line in textwrap.wrap(said, SVG_LINE)]
    whole = alt.concat(*charts, columns=2).properties(title=alt.Title(clean(title), subtitle=lines))
    drawn: str = vl_convert.vegalite_to_svg(_plain(whole))
    return drawn


def page(title: str, sentences: list[str], shown: list[Bars]) -> str:
    """A whole HTML document, as wide as the window allows."""
    import vl_convert

    specs = [_plain(_chart(bars).properties(width="container")) for bars in shown]
    return _PAGE.format(
        title=html.escape(clean(title)),
        sentences="\n".join(f"<p>{html.escape(said)}</p>" for said in sentences),
        figures="".join(f'<figure><div id="chart{i}"></div></figure>' for i in range(len(specs))),
        library=vl_convert.javascript_bundle(_OPEN).replace("</script", r"<\/script"),
        specs=json.dumps(specs).replace("</", r"<\/"),
    )


def _plain(chart: Any) -> dict[str, Any]:
    spec: dict[str, Any] = chart.to_dict()
    spec["config"] = {
        "background": "white",
        "font": "system-ui, sans-serif",
        "axis": {"gridColor": "#e6e6e6"},
    }
    return spec


def _chart(bars: Bars) -> alt.LayerChart | alt.FacetChart:
    import altair as alt

    x = alt.X("from:Q", title=bars.x, scale=alt.Scale(type="log" if bars.is_log else "linear", nice=False))
    y = alt.Y("to_height:Q", title=bars.y)
    drawn = (
        alt.Chart(alt.InlineData(_rows(bars)))
        .mark_bar(binSpacing=0)
        .encode(x=x, x2="to:Q", y=y, y2="from_height:Q")
    )
    if len(bars.heights) > 1:
        colours = alt.Scale(domain=list(bars.heights), range=_COLOURS)
        drawn = drawn.encode(
            color=alt.Color("class:N", scale=colours, title=None, legend=alt.Legend(orient="top"))
        )
    layers = [drawn]
    if bars.law is not None:
        line = alt.Chart(alt.InlineData(_law(bars))).mark_line(color=_LAW, interpolate="step-after")
        layers.append(line.encode(x=x, y=y))
    words = [bars.title, "line: the law in the mean"] if bars.law is not None else [bars.title]
    title = alt.Title(words[0], subtitle=words[1:], anchor="start")
    return alt.layer(*layers).properties(height=HEIGHT, title=title)


def _rows(bars: Bars) -> list[dict[str, Any]]:
    """Each bar of each class, which stands on those of the classes before it."""
    edges, tops = bars.edges.tolist(), np.cumsum(list(bars.heights.values()), axis=0)
    return [
        {"class": name, "from": low, "to": high, "from_height": top - height, "to_height": top}
        for (name, heights), top_of in zip(bars.heights.items(), tops.tolist(), strict=True)
        for low, high, height, top in zip(edges, edges[1:], heights.tolist(), top_of, strict=False)
        if height
    ]


def _law(bars: Bars) -> list[dict[str, Any]]:
    """A step over every bar, to the end of the last one."""
    assert bars.law is not None
    heights = bars.law.tolist()
    ends = zip(bars.edges.tolist(), [*heights, heights[-1]], strict=True)
    return [{"from": edge, "to_height": height} for edge, height in ends]
