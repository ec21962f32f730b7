"""A picture of a study, pasted elsewhere without its page, does not look measured."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.studies.committed import MEASURED, REPORTS

MACHINE = r"(OPT-(13B|66B|175B)|GPT-3 of 175B|Mistral-7B|Llama-2-70B|Llama-3-8B) on .*(A100|H100)"
ON_PAPER = "static-vs-continuous/slots-"  # a step is a step there, of no machine
PICTURES = sorted(each for each in REPORTS.glob("*/*.svg") if each.parent.name not in MEASURED)


def text(picture: Path) -> str:
    """What stands in it, its lines joined."""
    drawn = picture.read_text(encoding="utf-8")
    return " ".join(re.findall(r">([^<>]+)</t(?:ext|span)>", drawn))


@pytest.mark.parametrize("picture", PICTURES, ids=lambda path: "/".join(path.parts[-2:]))
def test_every_picture_says_simulated_in_its_title(picture: Path) -> None:
    """As text of the SVG."""
    assert "(SIMULATED)" in picture.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "picture",
    [each for each in PICTURES if ON_PAPER not in str(each)],
    ids=lambda path: "/".join(path.parts[-2:]),
)
def test_every_picture_ends_its_caption_with_model_and_gpu(picture: Path) -> None:
    """Except of what is shown on paper."""
    assert re.search(f"{MACHINE}.*simulated\\.", text(picture))
