"""A picture that stands alone: whatever its words hold, it is an SVG; inks and dashes tell series apart."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from loadgen.charts.distributions import compared
from loadgen.charts.picture import Picture, sheet, svg
from loadgen.charts.theme import dash, series
from tests.records import ok, run_of

NO_XML = ["\x00", "\x1b[31m", "\x0b", "\x7f\x9b", "\ud800", "\ufffe", "\uffff", "\U0001fffe"]


def picture(word: str) -> Picture:
    """With `word` in its title, its caption, its spec and its data."""
    found = compared("ttft_s", {"a": run_of([ok(i) for i in range(3)])})
    assert found is not None
    data = {
        name: {
            key: [word if isinstance(value, str) else value for value in values] for key, values in of.items()
        }
        for name, of in found.data.items()
    }
    spec = found.spec | {"description": word}
    return replace(found, title=f"t{word}", says=f"s{word}", spec=spec, data=data)


@pytest.mark.parametrize("word", NO_XML, ids=ascii)
def test_no_sign_ends_the_process_or_the_svg(word: str) -> None:
    """Characters that XML forbids are left out, alone and on a sheet: what is drawn can be read again."""
    for drawn in (svg(picture(word)), sheet(f"t{word}", [f"s{word}"], [picture(word)])):
        assert ET.fromstring(drawn).tag.endswith("svg")


def test_seventeen_series_are_told_apart() -> None:
    """By ink and dashes together, measured or simulated; every eighth ink comes again."""
    assert [series(place) for place in (0, 7, 8, 17)] == ["series0", "series7", "series0", "series1"]
    for is_simulated in (False, True):
        looks = {(series(p), *dash(p, is_simulated=is_simulated)) for p in range(17)}
        assert len(looks) == 17
    drawn = compared("ttft_s", {f"v{i}": run_of([ok(0, ttft_s=0.1 + i / 100)]) for i in range(17)})
    assert drawn is not None
    assert len({*drawn.series}) == 17
    assert ET.fromstring(svg(drawn)).tag.endswith("svg")
