"""The benchmarks can still be run."""

from __future__ import annotations

import sys

import pytest

from tests.bench import virtual


def test_the_benchmark_of_virtual_time_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """A small one prints what it took and the machine's load."""
    virtual.steady(50)
    assert capsys.readouterr().out.count("us each") == 2


@pytest.mark.skipif(sys.platform != "linux", reason="it pins processes to cores")
def test_the_benchmark_of_served_time_has_scenarios_that_are_right() -> None:
    """Both load, and their plans can be drawn."""
    from loadgen.workload import draw
    from tests.bench import served

    assert [len(draw(served.scenario(batching))) > 50 for batching in ("continuous", "dynamic")] == [
        True,
        True,
    ]
