"""Did requests really arrive by the law the scenario declares? Poisson, gamma or constant gaps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from loadgen.laws import Constant, Gamma, Poisson
from loadgen.records import Floats
from loadgen.run import Run

FEWEST_ROWS = 50


@dataclass(frozen=True, slots=True)
class Departure:
    """How far the realised arrivals are from the law: the chance of this or worse under it, by one test."""

    test: str
    p: float


def declared(run: Run) -> Poisson | Gamma | Constant | None:
    """The law of the scenario's arrivals; None where it declares none (bursts, rows written out)."""
    arrivals = run.asked("load", "arrivals")
    match (arrivals or {}).get("kind"):
        case "poisson":
            return Poisson.model_validate(arrivals)
        case "gamma":
            return Gamma.model_validate(arrivals)
        case "constant":
            return Constant.model_validate(arrivals)
        case _:
            return None


def departures(run: Run, law: Poisson | Gamma | Constant) -> list[Departure]:
    """The tests that apply to `law`, over the instants the measured rows were started; none below 50 rows."""
    r = run.records
    started = np.sort(r.started_s[r.measured & ~np.isnan(r.started_s)])
    if len(started) < FEWEST_ROWS:
        return []
    gaps = np.diff(started)
    if isinstance(law, Constant):
        return [Departure("gaps off by over half of one", _uneven(gaps * law.rate_rps))]
    lag_s = (r.started_s - r.due_s)[r.measured & ~np.isnan(r.started_s)]
    blur_s = max(float(np.quantile(lag_s, 0.99)), 10e-6)  # instants are whole microseconds
    found = [
        Departure("Kolmogorov-Smirnov on the gaps", _ks(gaps, law, blur_s)),
        Departure("correlation of successive gaps", _lag_one(gaps)),
    ]
    if isinstance(law, Poisson):
        found += [Departure(f"dispersion of counts per {n} gaps", p) for n, p in _dispersions(started)]
    return found


def _uneven(gaps: Floats) -> float:
    """The chance that at least this many gaps, in units of the mean one, stray so far if 1 in 100 may."""
    from scipy.special import betainc

    n, off = len(gaps), int((np.abs(gaps - 1) > 0.5).sum())
    return float(betainc(off, n - off + 1, 0.01)) if off else 1.0


def _ks(gaps: Floats, law: Poisson | Gamma, blur_s: float) -> float:
    """One-sample Kolmogorov-Smirnov, at gaps above `blur_s` only: below it the client's own send lag is seen.

    Fewer places can only make the p-value too large. Stephens' factor makes the limiting law fit n.
    """
    from scipy.special import gammainc, kolmogorov

    shape = law.burstiness if isinstance(law, Gamma) else 1.0
    n, gaps = len(gaps), np.sort(gaps)
    expected = gammainc(shape, shape * law.rate_rps * gaps)
    place, seen = np.arange(n), gaps > blur_s
    off = np.maximum((place + 1) / n - expected, expected - place / n)
    return float(kolmogorov((n**0.5 + 0.12 + 0.11 / n**0.5) * off[seen].max(initial=0.0)))


def _lag_one(gaps: Floats) -> float:
    """Two-sided p of the first autocorrelation, which is normal with variance 1/n for independent gaps."""
    from scipy.special import erfc

    off = gaps - gaps.mean()
    if not off.any():
        return 1.0  # equal gaps have no correlation; the Kolmogorov-Smirnov test sees them
    r = (off[1:] @ off[:-1]) / (off @ off)
    return float(erfc(abs(r) * np.sqrt(len(gaps) / 2)))


def _dispersions(started: Floats) -> list[tuple[int, float]]:
    """Two-sided p of the variance-to-mean ratio of counts (chi-square under Poisson), for several widths."""
    from scipy.special import chdtr, chdtrc

    found = []
    for width in (5, 20, 80):
        bins = len(started) // width
        if bins >= 10:
            counts = np.histogram(started, bins)[0]
            spread = float(np.square(counts - counts.mean()).sum() / counts.mean())
            found.append((width, float(2 * min(chdtrc(bins - 1, spread), chdtr(bins - 1, spread)))))
    return found
