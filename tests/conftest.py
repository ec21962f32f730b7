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
    """No test reads, or writes, what its user keeps: a calibration of this machine, a key."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        for variable in [name for name in os.environ if name.startswith("OPENAI_")]:
            patch.delenv(variable)
        yield


LEFT_OUT = pytest.StashKey[dict[str, int]]()
BY_MARKER = {
    "slow": "they take seconds of real time",
    "browser": "they open pages in a headless Chromium",
    "real": "they start real servers (tests/real/README.md)",
    "torch": "they compute with a real model",
    "ray": "they start Ray clusters (pip install '.[ray]')",
}


def pytest_deselected(items: list[pytest.Item]) -> None:
    """Count those left out by a marker: the others were by a name that someone typed."""
    for item in items:
        counts = item.config.stash.setdefault(LEFT_OUT, dict.fromkeys(BY_MARKER, 0))
        if why := [marker for marker in BY_MARKER if marker in item.keywords]:
            counts[why[-1]] += 1  # what it needs, rather than that it is slow as well


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    stats = terminalreporter.stats
    ran = sum(len(stats.get(kind, [])) for kind in ("passed", "failed", "xfailed", "xpassed"))
    left_out = terminalreporter.config.stash.get(LEFT_OUT, {})
    total = ran + sum(left_out.values()) + len(stats.get("skipped", []))
    terminalreporter.write_line(f"collected {total}, ran {ran}, deselected {sum(left_out.values())}")
    for marker, count in left_out.items():
        if count:
            terminalreporter.write_line(
                f"{count} marked {marker}: {BY_MARKER[marker]}; run them with: "
                f".venv/bin/python -m pytest -W error -m {marker}"
            )
