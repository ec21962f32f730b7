"""One HTML file: words, tables and pictures that can be looked into, offline, in light, dark and print.

Whatever text comes in is shown as text: it is cleaned, escaped, and the page runs no script but its own.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from loadgen.charts.picture import Columns, Picture, spec_of
from loadgen.charts.theme import CONFIG, SHADES, ink
from loadgen.report.figures import clean
from loadgen.report.tables import Column, Table
from loadgen.units import printable

Tone = Literal["good", "bad", "open", "plain"]
TONES: Mapping[str, Tone] = {
    "VALID": "good", "PASS": "good", "BOUNDED": "good",
    "FAIL": "bad", "INVALID": "bad", "ITL INVALID": "bad",
    "IMPORTED": "open", "UNRESOLVED": "open", "OVERLOADED": "open", "WARNING": "open",
}  # fmt: skip
_TALL = 320  # a picture higher than this has a row of the page for itself
_LONGEST = 2000  # characters of a sentence; server text is cut before it comes here
_OPEN = "window.vegaEmbed = vegaEmbed;"


@dataclass(frozen=True, slots=True)
class Headline:
    """A sentence under a word of its own, such as a verdict; and what to do about it."""

    word: str
    said: str
    remedy: str = ""

    @property
    def tone(self) -> Tone:
        return TONES.get(self.word, "plain")


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a page under a heading of its own. `folded`: texts to unfold, by what they are."""

    title: str
    says: Sequence[str | Headline] = ()
    tables: Sequence[Table] = ()
    pictures: Sequence[Picture] = ()
    folded: Mapping[str, str] | None = None


def page(title: str, source: str, headlines: Sequence[Headline], parts: Sequence[Part]) -> str:
    """The whole document. `source`: `measured over HTTP`, `SIMULATED in virtual time` or both."""
    pictures = [picture for part in parts for picture in part.pictures]
    scripts = [_library(), _own("page.js")] if pictures else []
    shown = [part for part in parts if part.says or part.tables or part.pictures or part.folded]
    kind = "source simulated" if "SIMULATED" in source else "source"
    body = [
        f'<header><p class="{kind}">{_text(source)}</p>',
        f"<h1>{_text(title)}</h1>",
        *(_headline(headline, "verdict") for headline in headlines),
        f"{_contents(shown)}</header>" if len(shown) > 1 else "</header>",
        "<main>",
        *map(_part, shown),
        "</main>",
        f'<script type="application/json" id="page-data">{_pictures(pictures)}</script>' if pictures else "",
        *(f"<script>{script}</script>" for script in scripts),
    ]
    return "\n".join([_head(title, scripts), "<body>", *filter(None, body), "</body>", "</html>", ""])


# --- the head -----------------------------------------------------------------------------------------------


def _head(title: str, scripts: Sequence[str]) -> str:
    allowed = " ".join(f"'sha256-{_sha256(script)}'" for script in scripts) or "'none'"
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src {allowed}; base-uri 'none'"
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{_text(title)}</title>",
            f"<style>{_colours()}{_own('page.css')}</style>",
            "</head>",
        ]
    )


def _sha256(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _colours() -> str:
    """The inks: light, dark where the reader wants it so, and light again on paper."""
    light = " ".join(f"--{name}: {shade.light};" for name, shade in SHADES.items())
    dark = " ".join(f"--{name}: {shade.dark};" for name, shade in SHADES.items())
    return f":root {{ {light} }}\n@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"


@cache
def _own(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")


@cache
def _library() -> str:
    import vl_convert

    bundle: str = vl_convert.javascript_bundle(_OPEN)
    return bundle.replace("</script", r"<\/script").replace("<!--", r"<\!--")


# --- the body -----------------------------------------------------------------------------------------------


def _text(said: str) -> str:
    return html.escape(clean(said, _LONGEST))


def _anchor(title: str) -> str:
    return "-".join("".join(c if c.isalnum() else " " for c in title.lower()).split())


def _contents(parts: Sequence[Part]) -> str:
    links = (f'<li><a href="#{_anchor(part.title)}">{_text(part.title)}</a></li>' for part in parts)
    return f'<nav aria-label="Contents"><ul>{"".join(links)}</ul></nav>'


def _headline(headline: Headline, kind: str) -> str:
    remedy = f" <i>{_text(headline.remedy)}</i>" if headline.remedy else ""
    word = f"<b>{_text(headline.word)}</b>"
    return f'<p class="{kind} {headline.tone}">{word} {_text(headline.said)}{remedy}</p>'


def _said(said: str | Headline) -> str:
    return f"<p>{_text(said)}</p>" if isinstance(said, str) else _headline(said, "finding")


def _part(part: Part) -> str:
    anchor = _anchor(part.title)
    figures = "\n".join(map(_figure, part.pictures))
    return "\n".join(
        [
            f'<section id="{anchor}" aria-labelledby="{anchor}-title">',
            f'<h2 id="{anchor}-title">{_text(part.title)}</h2>',
            *map(_said, part.says),
            *(_table(table) for table in part.tables),
            f'<div class="pictures">{figures}</div>' if figures else "",
            *(_folded(what, text) for what, text in (part.folded or {}).items()),
            "</section>",
        ]
    )


def _folded(what: str, text: str) -> str:
    shown = html.escape("\n".join(printable(line) for line in text.split("\n")))
    return f"<details><summary>{_text(what)}</summary><pre>{shown}</pre></details>"


def _table(table: Table) -> str:
    head = "".join(
        f'<th scope="col" class="{column.kind}">{_text(column.head)}</th>' for column in table.columns
    )
    rows = "\n".join(f"<tr>{''.join(_cells(table.columns, row))}</tr>" for row in table.rows)
    label = html.escape(clean(table.title), quote=True)
    return "\n".join(
        [
            f'<div class="scroll" tabindex="0" role="region" aria-label="{label}"><table>',
            f"<caption><span>{_text(table.title)}</span></caption><thead><tr>{head}</tr></thead>",
            f"<tbody>{rows}</tbody></table></div>",
            *(f'<p class="note">{_text(note)}</p>' for note in table.notes),
        ]
    )


def _cells(columns: Sequence[Column], row: Sequence[str]) -> Iterator[str]:
    for i, (column, cell) in enumerate(zip(columns, row, strict=True)):
        if i:
            yield f'<td class="{column.kind}">{_text(cell)}</td>'
        else:  # it stays in sight while the others scroll
            yield f'<th scope="row" class="{column.kind}">{_text(cell)}</th>'


def _figure(picture: Picture) -> str:
    label = html.escape(clean(f"{picture.title}. {picture.says}", _LONGEST), quote=True)
    return "\n".join(
        [
            f'<figure id="picture-{picture.name}"{_tall(picture)}>',
            f"<figcaption><h3>{_text(picture.title)}</h3><p>{_text(picture.says)}</p></figcaption>",
            f'<div class="controls">{"".join(_toggles(picture))}{_save(picture)}</div>',
            f'<div class="chart" role="img" aria-label="{label}"></div>',
            f"<details><summary>The numbers</summary>{_table(picture.table)}</details>",
            "</figure>",
        ]
    )


def _tall(picture: Picture) -> str:
    return ' class="tall"' if picture.height > _TALL else ""


def _save(picture: Picture) -> str:
    label = f"Save {_text(picture.title)} as SVG"
    return f'<button type="button" class="save" aria-label="{label}">Save SVG</button>'


def _toggles(picture: Picture) -> Iterator[str]:
    for name, colour in picture.series.items():
        yield (
            f'<button type="button" aria-pressed="true" value="{html.escape(name, quote=True)}" '
            f'style="--swatch: {ink(colour)}">{_text(name)}</button>'
        )


# --- the pictures -------------------------------------------------------------------------------------------


def _pictures(pictures: Sequence[Picture]) -> str:
    """All pictures as JSON that no text in it can end. Data that several share stand there once."""
    data: dict[str, Columns] = {}
    for picture in pictures:
        for name, columns in picture.data.items():
            if data.setdefault(name, columns) != columns:
                raise ValueError(f"two data are called {name}")
    told = {
        "config": CONFIG | {"legend": {"disable": True}},  # the buttons are the legend
        "data": data,
        "pictures": [
            {"name": picture.name, "spec": _toggled(picture), "data": [*picture.data]} for picture in pictures
        ],
    }
    return json.dumps(told, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _toggled(picture: Picture) -> dict[str, Any]:
    """The picture's spec, of which rows can be hidden by series."""
    spec = spec_of(picture)
    if picture.by is None:
        return spec
    hidden = {"name": "hidden", "value": []}
    return _filtered(spec, picture.by) | {"params": [hidden, *spec.get("params", ())]}


def _filtered(spec: dict[str, Any], by: str) -> dict[str, Any]:
    """Without hidden rows, nor a legend of what the buttons say."""
    if "layer" in spec:
        return spec | {"layer": [_filtered(layer, by) for layer in spec["layer"]]}
    visible = {"filter": f"indexof(hidden, datum[{json.dumps(by)}]) < 0"}
    channels = {
        name: channel | {"legend": None} if _tells(channel, by) else channel
        for name, channel in spec.get("encoding", {}).items()
    }
    return spec | {"transform": [visible, *spec.get("transform", ())], "encoding": channels}


def _tells(channel: Any, by: str) -> bool:
    """Whether a channel of a chart would have a legend of the series."""
    return isinstance(channel, dict) and channel.get("field") == by and "scale" in channel
