"""Prose as it is written in a study's code: blank lines between paragraphs."""

from __future__ import annotations

import re


def sentence(text: str) -> str:
    """On one line."""
    return " ".join(text.split())


def paragraphs(text: str) -> list[str]:
    """Each on one line."""
    return [sentence(each) for each in re.split(r"\n\s*\n", text.strip())]
