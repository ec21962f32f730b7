"""Arrivals against their declared law: drawn by it they pass, broken as other tools break them they fail."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from loadgen.laws import Constant, Poisson
from loadgen.run import Run
from loadgen.stats.law import declared, departures
from tests.records import ok, run_of

POISSON = {"kind": "poisson", "rate": "20/s"}


def arrivals(
    law: dict[str, Any], due_s: NDArray[np.float64], lag_s: NDArray[np.float64] | float = 0.0
) -> Run:
    started = np.broadcast_to(np.round(due_s + lag_s, 6), due_s.shape).tolist()
    rows = [
        ok(i, due, started_s=sent, gaps_us=[])
        for i, (due, sent) in enumerate(zip(due_s.tolist(), started, strict=True))
    ]
    return run_of(rows, scenario={"load": {"arrivals": law}})


def suspicious(run: Run) -> list[str]:
    law = declared(run)
    assert law is not None
    return [found.test for found in departures(run, law) if found.p < 1e-4]


def drawn(law: dict[str, Any], seed: int, n: int = 400) -> NDArray[np.float64]:
    rng = np.random.default_rng(seed)
    shape = law.get("burstiness", 1.0)
    gaps = np.full(n, 1 / 20) if law["kind"] == "constant" else rng.gamma(shape, 1 / (20 * shape), n)
    return np.round(np.cumsum(gaps), 6)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(
    "law",
    [
        POISSON,
        {"kind": "gamma", "rate": "20/s", "burstiness": 0.1},
        {"kind": "gamma", "rate": "20/s", "burstiness": 5.0},
        {"kind": "constant", "rate": "20/s"},
    ],
    ids=["poisson", "bursty", "smooth", "constant"],
)
def test_arrivals_drawn_by_their_law_and_sent_a_little_late_pass(law: dict[str, Any], seed: int) -> None:
    """A client's own lag of some hundred microseconds is no departure, not even where gaps are as short."""
    lag_s = np.random.default_rng(seed + 100).exponential(3e-4, 400)
    assert suspicious(arrivals(law, drawn(law, 1000 + seed), lag_s)) == []


def test_equal_gaps_are_not_poisson() -> None:
    """A clockwork declared as Poisson is found out by its gaps and its too even counts."""
    found = suspicious(arrivals(POISSON, np.arange(400) / 20))
    assert "Kolmogorov-Smirnov on the gaps" in found
    assert "dispersion of counts per 5 gaps" in found


def test_generators_that_share_a_seed_are_not_poisson() -> None:
    """Gaps repeated eight times over keep their distribution; the counts are eight times too uneven."""
    found = suspicious(
        arrivals(POISSON, np.round(np.cumsum(np.repeat(np.diff(drawn(POISSON, 1, 101)), 8)), 6))
    )
    assert "correlation of successive gaps" in found
    assert "dispersion of counts per 20 gaps" in found


def test_a_schedule_that_slips_is_not_at_its_rate() -> None:
    """Each wait half too long: 13/s is not 20/s."""
    assert "Kolmogorov-Smirnov on the gaps" in suspicious(arrivals(POISSON, drawn(POISSON, 2) * 1.5))


def test_exponential_gaps_are_not_constant() -> None:
    """Random gaps declared as constant are found out."""
    constant = {"kind": "constant", "rate": "20/s"}
    assert suspicious(arrivals(constant, drawn(POISSON, 3))) == ["gaps off by over half of one"]


def test_few_rows_say_nothing() -> None:
    """Below fifty rows no law is judged."""
    run = arrivals(POISSON, np.arange(49) / 20)
    law = declared(run)
    assert law is not None
    assert departures(run, law) == []


@pytest.mark.parametrize(
    "scenario", [{}, {"load": {"arrivals": None}}, {"load": {"arrivals": {"kind": "burst"}}}]
)
def test_bursts_and_written_rows_declare_no_law(scenario: dict[str, Any]) -> None:
    """There is nothing to hold them against."""
    assert declared(run_of([], scenario=scenario)) is None


@pytest.mark.parametrize("stretch", [0.7, 1.0, 1.4])
def test_p_values_are_those_of_the_textbook_tests(stretch: float) -> None:
    """Each against SciPy's own test of the same hypothesis on the same gaps."""
    started = np.round(drawn(POISSON, 5) * stretch, 6)
    gaps = np.diff(started)
    p = {
        found.test: found.p
        for found in departures(arrivals(POISSON, started), Poisson(kind="poisson", rate_rps=20))
    }
    assert p["Kolmogorov-Smirnov on the gaps"] == pytest.approx(
        stats.kstest(gaps * 20, "expon").pvalue, rel=0.06
    )
    counts = np.histogram(started, 80)[0]
    chi2 = stats.chisquare(counts)
    assert p["dispersion of counts per 5 gaps"] == pytest.approx(2 * min(chi2.pvalue, 1 - chi2.pvalue))
    r = stats.pearsonr(gaps[1:], gaps[:-1])
    assert p["correlation of successive gaps"] == pytest.approx(r.pvalue, abs=0.02)
    uneven = departures(arrivals(POISSON, started), Constant(kind="constant", rate_rps=20))[0]
    strays = int((np.abs(gaps * 20 - 1) > 0.5).sum())
    assert uneven.p == pytest.approx(stats.binomtest(strays, len(gaps), 0.01, "greater").pvalue)
