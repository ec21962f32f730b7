"""What every test run says at its end: how many tests there are, ran, and were left out."""

from __future__ import annotations

import os

import hypothesis
import pytest

# Any example may be slow on a busy machine; where a change is judged, examples are the same each time.
hypothesis.settings.register_profile("local", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "local")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    stats = terminalreporter.stats
    ran = sum(len(stats.get(kind, [])) for kind in ("passed", "failed", "xfailed", "xpassed"))
    left_out = len(stats.get("deselected", []))
    terminalreporter.write_line(
        f"collected {ran + left_out + len(stats.get('skipped', []))}, ran {ran}, deselected {left_out} "
        "(marked slow: they take seconds of real time; run them with: python -m pytest -m slow)"
    )
