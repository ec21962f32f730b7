"""The colours of every picture, by what they stand for: light, dark, and printed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple


class Shade(NamedTuple):
    light: str
    dark: str


SHADES: Mapping[str, Shade] = {
    # what is written and what it stands on
    "ink": Shade("#1f2328", "#e6e9ed"),
    "faint": Shade("#656d76", "#9aa4af"),
    "grid": Shade("#e3e6ea", "#30363d"),
    "paper": Shade("#ffffff", "#14181d"),
    # how a request ended, and how an SLO did
    "ok": Shade("#1a7f64", "#3fb89a"),
    "rejected": Shade("#c77700", "#f0a83a"),
    "failed": Shade("#c5283d", "#ff6b7a"),
    "aborted": Shade("#8b949e", "#6e7781"),
    "offered": Shade("#57606a", "#aab3bd"),
    "slo": Shade("#c5283d", "#ff6b7a"),
    # what an engine did in a step, and a request in its life
    "decode": Shade("#2f6fb7", "#6aa9ee"),
    "prefill": Shade("#7a4fb5", "#b790f0"),
    "wait": Shade("#c9ced4", "#4a525b"),
    "waste": Shade("#f2b8a0", "#8a4630"),
    "unused": Shade("#e9ecef", "#262c33"),
    # variants and metrics, told apart also by those who see few colours (after Okabe and Ito)
    "series0": Shade("#0072b2", "#56b4e9"),
    "series1": Shade("#d55e00", "#ff9a4d"),
    "series2": Shade("#009e73", "#3fcf9f"),
    "series3": Shade("#a04a86", "#e29bcb"),
    "series4": Shade("#8a6d00", "#e6c84f"),
    "series5": Shade("#4a4a4a", "#c4c4c4"),
    "series6": Shade("#2b8cab", "#8fd8f0"),
    "series7": Shade("#7d3c2f", "#d99a8b"),
}
"""The inks: by name, on white and on black."""

_INK = re.compile(r"var\(--([a-z0-9]+)\)")
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # no SVG may hold it
_INKS = 8  # of series


def ink(name: str) -> str:
    """The colour `name` as a page's stylesheet gives it: one drawing serves light, dark and print."""
    assert name in SHADES, name
    return f"var(--{name})"


def series(place: int) -> str:
    """The name of the ink of the `place`-th variant or metric; after eight they come again."""
    return f"series{place % _INKS}"


def dash(place: int, *, is_simulated: bool = False) -> list[int]:
    """The dashes of its line: with the ink, they tell apart even those whose ink has come again."""
    again = place // _INKS
    if is_simulated:
        return [5, 3] + [1, 3] * again
    return [14, 3] + [2, 3] * (again - 1) if again else [1, 0]


def on_white(spec: Any) -> Any:
    """`spec` with every ink as it is on white, and no sign that an SVG cannot hold: it stands alone."""
    match spec:
        case str():
            return _INK.sub(lambda found: SHADES[found[1]].light, _NO_XML.sub("", spec))
        case list():
            return [on_white(each) for each in spec]
        case dict():
            return {key: on_white(each) for key, each in spec.items()}
        case _:
            return spec


CONFIG: dict[str, Any] = {
    "background": "transparent",
    "font": "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif",
    "aria": False,  # the figure around it has a label, and its numbers as a table
    "view": {"stroke": ink("grid")},
    "axis": {
        "labelColor": ink("faint"),
        "titleColor": ink("faint"),
        "titleFontWeight": "normal",
        "domainColor": ink("faint"),
        "tickColor": ink("faint"),
        "gridColor": ink("grid"),
        "labelFontSize": 11,
        "labelSeparation": 5,
        "titleFontSize": 11,
    },
    "legend": {
        "labelColor": ink("ink"),
        "titleColor": ink("faint"),
        "orient": "top",
        "labelFontSize": 11,
        "columns": {"expr": "max(2, floor(width / 90))"},  # as many as a narrow picture has room for
    },
    "header": {"labelColor": ink("ink"), "titleColor": ink("faint")},
    "title": {"color": ink("ink"), "subtitleColor": ink("faint"), "anchor": "start", "fontSize": 13},
    "text": {"color": ink("ink")},
    "rule": {"color": ink("faint")},
}
"""What all pictures have in common, as a Vega-Lite config."""
