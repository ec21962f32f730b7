"""What every test run says at its end: how many tests there are, ran, and were left out."""

from __future__ import annotations

import os
from collections.abc import Iterator

import hypothesis
import pytest

# Any example may be slow on a busy machine; where a change is judged, examples are the same each time.
hypothesis.settings.register_profile("local", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "local")


@pytest.fixture(scope="session", autouse=True)
def cache_of_our_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads, or writes, what its user keeps: a calibration of this machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


SLOW = pytest.StashKey[int]()


def pytest_deselected(items: list[pytest.Item]) -> None:
    """Count the slow ones: the others were left out by a name or a marker that someone typed."""
    for item in items:
        stash = item.config.stash
        stash[SLOW] = stash.get(SLOW, 0) + ("slow" in item.keywords)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    stats = terminalreporter.stats
    ran = sum(len(stats.get(kind, [])) for kind in ("passed", "failed", "xfailed", "xpassed"))
    left_out = terminalreporter.config.stash.get(SLOW, 0)
    terminalreporter.write_line(
        f"collected {ran + left_out + len(stats.get('skipped', []))}, ran {ran}, deselected {left_out} "
        "(marked slow: they take seconds of real time; run them with: "
        ".venv/bin/python -m pytest -W error -m slow)"
    )
