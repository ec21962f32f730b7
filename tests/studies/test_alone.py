"""A picture of a study, pasted elsewhere without its page, does not look measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.studies.committed import REPORTS


@pytest.mark.parametrize(
    "picture", sorted(REPORTS.glob("*/*.svg")), ids=lambda path: "/".join(path.parts[-2:])
)
def test_every_picture_says_simulated_in_its_title(picture: Path) -> None:
    """As text of the SVG."""
    assert "(SIMULATED)" in picture.read_text(encoding="utf-8")
