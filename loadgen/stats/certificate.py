"""Were requests sent as planned, and did they arrive by the law that the scenario declares?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from pydantic import TypeAdapter

from loadgen.laws import Arrivals, Batches, Closed, Constant, Poisson, Renewal
from loadgen.records import Floats, Outcome, Records
from loadgen.run import Run
from loadgen.stats import uniform
from loadgen.stats.clumps import lag_beyond_place_s, mostly_together, places
from loadgen.stats.limits import LIMITS
from loadgen.stats.metrics import span_s
from loadgen.stats.summary import ArrivalsVerdict, Certificate
from loadgen.units import about
from loadgen.workload import arrivals, streams

_INSTANT_S = 10e-6  # instants are whole microseconds
_MOST_BLURRED = 0.9

_arrivals: TypeAdapter[Arrivals] = TypeAdapter(Arrivals)


def declared(run: Run) -> Arrivals | None:
    """The law of the scenario's arrivals; None where rows were written out."""
    asked = run.asked("load", "arrivals")
    return None if asked is None else _arrivals.validate_python(asked)


def certify(run: Run) -> Certificate:
    """Holds the instants at which measured rows started against the plan, and against the declared law."""
    punctual, law = _punctuality(run.records), declared(run)
    untested, p_values = _against(law, run)
    p = min(1.0, min(p_values.values()) * len(p_values)) if p_values else None
    is_odd = p is not None and p < LIMITS.arrivals_p
    verdict: ArrivalsVerdict = "not tested" if untested else "as asked"
    if isinstance(law, Closed):
        verdict = "closed"
    elif is_odd or punctual.is_late:
        verdict = "departs"
    found = untested or _words(law, p_values, p)
    said = [punctual.words(), found]
    if is_odd or verdict in ("closed", "not tested"):
        said.reverse()
    return Certificate(
        verdict=verdict,
        text=f"{verdict}: {'; '.join([*said, *_not_pure(law, run)])}",
        sent=punctual.sent,
        on_time=punctual.on_time,
        tolerance_s=punctual.tolerance_s,
        lag_p99_s=punctual.p99_s,
        lag_max_s=punctual.max_s,
        p_values=p_values,
        p=p,
    )


# --- the plan -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Punctuality:
    sent: int
    late: int
    tolerance_s: float
    p99_s: float | None
    max_s: float | None
    due: str = "due"

    @property
    def on_time(self) -> float | None:
        return 1 - self.late / self.sent if self.sent else None

    @property
    def is_late(self) -> bool:
        """One row late in a short run may be a hiccup of the machine."""
        return self.late > max(1.0, (1 - LIMITS.on_time) * self.sent)

    def words(self) -> str:
        if self.on_time is None or self.p99_s is None or self.max_s is None:
            return "no request is known to have been sent"
        rows, tolerance = f"{self.on_time:.1%} of {self.sent:,} requests", about(self.tolerance_s)
        bound = f", fewer than {LIMITS.on_time:.1%}" if self.is_late else ""
        late = "late" if self.due == "due" else "after due"
        spread = f"p99 {about(self.p99_s)}, most {about(self.max_s)} {late}"
        return f"{rows} started within {tolerance} of {self.due}{bound} ({spread})"


def _punctuality(r: Records) -> _Punctuality:
    rows = r.measured & ~np.isnan(r.started_s)
    ready_s, started_s = r.ready_s[rows], r.started_s[rows]
    lag_s = np.abs(span_s(started_s, ready_s))
    n = len(lag_s)
    if not n:
        return _Punctuality(0, 0, LIMITS.tolerance_s, None, None)
    tolerance_s = max(LIMITS.tolerance_s, LIMITS.tolerance_of_gap * float(np.ptp(ready_s)) / max(n - 1, 1))
    late = lag_beyond_place_s(ready_s, started_s, lag_s) > tolerance_s
    p99_s, due = float(np.quantile(lag_s, 0.99)), "due"
    if mostly_together(places(ready_s, started_s)):
        due = f"their turn, {about(LIMITS.next_s)} apart where due together"
    return _Punctuality(n, int(late.sum()), tolerance_s, p99_s, float(lag_s.max()), due)


# --- the law ------------------------------------------------------------------------------------------------


def _against(law: Arrivals | None, run: Run) -> tuple[str, dict[str, float]]:
    """Why the law cannot be tested, or else the p-value of each test."""
    if isinstance(law, Closed):
        return "arrivals follow the answers", {}
    if law is None:
        return "rows written out have no law", {}
    if run.header.shard is not None:
        return "the law is that of all shards together", {}
    r = run.records
    if (r.measured & (r.has(Outcome.UNSENT) | ~np.isnan(r.slot_s))).any():
        return "a bound on what is in flight held some back", {}
    rows = r.measured & ~np.isnan(r.started_s) & ~(r.turn > 1)  # the law is of new sessions
    started_s, lag_s = np.sort(r.started_s[rows]), (r.started_s - r.due_s)[rows]
    if isinstance(law, Batches):
        started_s = _first_of_each(r.due_s[rows], r.started_s[rows])
    if len(started_s) < LIMITS.law_from:
        return f"fewer than {LIMITS.law_from} arrivals say nothing of a law", {}
    if isinstance(law, Constant):
        return "", {"gaps off by over half of one": _uneven(np.diff(started_s) * _rate_rps(law, run))}
    u = _residuals(law, run, started_s)
    if u is None:
        return f"{law.kind.replace('_', ' ')} arrivals have no law of their gaps", {}
    gaps_s, blur_s = np.diff(started_s), max(float(np.quantile(lag_s, 0.99)), _INSTANT_S)
    blurred = float(u[gaps_s <= blur_s].max(initial=0.0))
    if blurred > _MOST_BLURRED:
        return f"gaps are no longer than the client's own lag ({about(blur_s)})", {}
    return "", uniform.p_values(_redrawn_below(blurred, u))


def _residuals(law: Arrivals, run: Run, started_s: Floats) -> Floats | None:
    """Uniform and independent where the instants follow the law; None where that cannot be told."""
    if run.asked("load", "rescale"):
        if not isinstance(law, Renewal):
            return None
        law = law.model_copy(update={"rate_rps": _rate_rps(law, run)})
    started_ns = np.rint(started_s * 1e6).astype(np.int64) * 1000
    return arrivals.residuals(law, run.asked("seed") or 0, started_ns)


def _redrawn_below(bound: float, u: Floats) -> Floats:
    """Numbers up to `bound` are gaps that the client's own lag blurs: they are drawn anew, below it.

    Uniform numbers stay uniform, and what the lag did to them is gone.
    """
    drawn = streams.uniforms(0, "certificate", 0, len(u))
    return np.clip(np.where(u <= bound, drawn * bound, u), 1e-15, 1 - 1e-15)


def _first_of_each(due_s: Floats, started_s: Floats) -> Floats:
    """When the first of the rows due together was started: the law is of batches."""
    order = np.lexsort((started_s, due_s))
    firsts = np.unique(due_s[order], return_index=True)[1]
    return np.sort(started_s[order][firsts])


def _rate_rps(law: Constant | Renewal, run: Run) -> float:
    if not run.asked("load", "rescale"):
        return law.rate_rps
    window_s = run.header.window_end_s - run.header.window_start_s
    count: int = run.asked("load", "num_requests") or run.asked("load", "num_sessions")
    return count / window_s


def _uneven(gaps: Floats) -> float:
    """The chance that at least this many gaps, in units of the mean one, stray so far if 1 in 100 may."""
    from scipy.special import betainc

    n, off = len(gaps), int((np.abs(gaps - 1) > 0.5).sum())
    return float(betainc(off, n - off + 1, 0.01)) if off else 1.0


def _words(law: Arrivals | None, p_values: dict[str, float], p: float | None) -> str:
    assert law is not None
    assert not isinstance(law, Closed)
    worst, tests = min(p_values, key=p_values.__getitem__), len(p_values)
    of = (
        f"p = {p:.2g}"
        if tests == 1
        else f"p = {p:.2g} ({tests} times the least of {tests} tests: Bonferroni)"
    )
    if p is not None and p < LIMITS.arrivals_p:
        return (
            f"they are not {arrivals.describe(law)}: {worst} has {of}; the limit is {LIMITS.arrivals_p:.0e}"
        )
    return f"nothing speaks against {arrivals.describe(law)}, {of}"


def _not_pure(law: Arrivals | None, run: Run) -> list[str]:
    if not run.asked("load", "rescale"):
        return []
    what = "the Poisson process given its count" if isinstance(law, Poisson) else "stretched to fit"
    return [f"rescaled, so no longer the pure process but {what}"]
