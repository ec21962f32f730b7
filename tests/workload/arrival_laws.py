"""Laws of arrivals for these tests, and what is measured of the instants they give."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from loadgen.laws import Arrivals
from loadgen.workload import arrivals

S = 10**9
SEEDS, ROWS = 20, 10_000  # 200,000 arrivals of each law
WINDOWS = (8, 64)  # in mean gaps

_arrivals: TypeAdapter[Any] = TypeAdapter(Arrivals)


def law(kind: str, **keys: Any) -> Any:
    """As YAML would have it."""
    return _arrivals.validate_python({"kind": kind, **keys}, by_name=False)


def points(**rate_at: float) -> list[dict[str, Any]]:
    """points(_0=1, _10=30): 1/s at 0 and 30/s at 10 s."""
    return [{"at": f"{at[1:]}s", "rate": rate} for at, rate in rate_at.items()]


STATES = [
    {"rate": 1, "dwell": "1s"},
    {"rate": 30, "dwell": "300ms"},
    {"rate": 100, "dwell": "100ms"},
]
STEPS = points(_0=0, _2=30)
LAWS = {
    "constant": law("constant", rate=7.3),
    "poisson": law("poisson", rate=50),
    "gamma, burstiness 0.25": law("gamma", rate=50, burstiness=0.25),
    "gamma, burstiness 4": law("gamma", rate=50, burstiness=4),
    "gamma, cv 1.5": law("gamma", rate=50, cv=1.5),
    "weibull, shape 0.7": law("weibull", rate=50, shape=0.7),
    "weibull, shape 3": law("weibull", rate=50, shape=3),
    "burst": law("burst", size=3, every="2s"),
    "batches, fixed by the clock": law("batches", size=5, every="1s"),
    "batches, geometric by the clock": law("batches", size=5, sizes="geometric", every="1s"),
    "batches, fixed at random": law("batches", size=5, batch_rate=3),
    "batches, geometric at random": law("batches", size=5, sizes="geometric", batch_rate=3),
    "on/off": law("on_off", rate=50, on_for="300ms", off_for="500ms"),
    "on/off, fixed times": law("on_off", rate=50, off_rate=1, on_for="300ms", off_for="500ms", dwell="fixed"),
    "mmpp": law("mmpp", states=STATES),
    "steps": law("steps", points=points(_0=1, _10=30, _60=8)),
    "steps, repeated": law("steps", points=STEPS, every="4s"),
    "curve": law("curve", points=points(_0=0, _10=30, _15=5)),
    "curve, repeated": law("curve", points=points(_0=0, _2=30, _3=0), repeat=True),
    "ramp": law("ramp", **{"from": 1}, to=50, over="60s"),
    "sine": law("sine", rate=50, amplitude=0.8, period="2s", phase=0.3),
    "sine to zero": law("sine", rate=50, amplitude=1, period="2s"),
    "stages": law(
        "stages",
        repeat=True,
        stages=[
            {"arrivals": {"kind": "poisson", "rate": 10}, "duration": "5s"},
            {"arrivals": {"kind": "on_off", "rate": 50, "on_for": "2s", "off_for": "3s"}, "num_requests": 20},
            {"arrivals": {"kind": "sine", "rate": 9, "amplitude": 0.8, "period": "2s"}, "duration": "7s"},
        ],
    ),
}
RESCALED = [name for name, one in LAWS.items() if arrivals.residuals(one, 1, np.arange(2)) is not None]


class Measured(NamedTuple):
    """Over SEEDS runs: the mean of each figure, and the sd of that mean as the runs' scatter tells it.

    Figures: rate_rps, gap_cv, lag1, dispersion in each of WINDOWS; nan where not defined.
    """

    mean: NDArray[np.float64]
    sd: NDArray[np.float64]


def measured(one: Any) -> Measured:
    runs = np.array([_figures(arrivals.stream(one, seed).take(ROWS)) for seed in range(SEEDS)])
    return Measured(runs.mean(axis=0), runs.std(axis=0, ddof=1) / SEEDS**0.5)


def rescaled_gaps(one: Any, seed: int, n: int = ROWS) -> NDArray[np.float64]:
    """Gaps on the scale on which they are exponential of mean 1, if the instants follow the law."""
    u = arrivals.residuals(one, seed, arrivals.stream(one, seed).take(n))
    assert u is not None
    return -np.log1p(-u)


def _figures(due_ns: NDArray[np.int64]) -> list[float]:
    gaps_s = np.diff(due_ns) / 1e9
    rate_rps = len(gaps_s) / gaps_s.sum()
    return [
        rate_rps,
        gaps_s.std() / gaps_s.mean(),
        lag1(gaps_s),
        *(_dispersion(due_ns, w / rate_rps) for w in WINDOWS),
    ]


def lag1(gaps: NDArray[np.float64]) -> float:
    """nan for equal gaps."""
    off = gaps - gaps.mean()
    return float(off[1:] @ off[:-1] / (off @ off)) if off.std() > 1e-6 * gaps.mean() else np.nan


def _dispersion(due_ns: NDArray[np.int64], window_s: float) -> float:
    window = ((due_ns - due_ns[0]) / 1e9 / window_s + 0.137).astype(np.int64)
    counts = np.bincount(window)[1:-1]  # the first and the last are cut short
    return float(counts.var(ddof=1) / counts.mean())
