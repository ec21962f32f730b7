"""Did the server keep up, or do the figures depend on how long one measured?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from loadgen.records import Floats, Outcome, Records
from loadgen.run import Run
from loadgen.stats.flow import in_flight, window_s

BLOCKS = 20
FEWEST_ROWS = 50
ENOUGH_ROWS = 400  # by then a queue at 0.85 of its capacity and one at 1.15 are told apart, 19 times in 20
GROWING = 0.04  # a share of what comes; at a load of 1.15, in the mean 0.13 of it is left over
SURELY, ERRORS = 0.01, 2.5  # so much, by so many standard errors, is growth however small or short it is
BURSTY = (
    2.0  # of the counts of Poisson arrivals in blocks the variance is as many times the mean, 1 in 200 times
)


def overloaded(run: Run) -> bool | None:
    """Whether load came faster than it was dealt with; None for a burst, or where there is too little to say.

    True where requests take longer and longer over the window, where rejection is steady, or where the
    requests in flight sit at the scenario's own bound.
    """
    window, r = window_s(run), run.records
    if window is None or r.measured.sum() < FEWEST_ROWS:
        return None
    return _refusing(r, *window) or _at_bound(run) or _piling_up(r)


def _piling_up(r: Records) -> bool | None:
    """Whether requests are left over; None where it looks so, and might be chance."""
    rows = np.flatnonzero(r.offered & ~r.has(Outcome.REJECTED, Outcome.UNSENT) & ~np.isnan(r.ended_s))
    if len(rows) < FEWEST_ROWS:
        return None
    share, error = left_over(r, rows[np.lexsort((r.index[rows], r.due_s[rows]))])
    told = len(rows) / burstiness(r.due_s[rows])
    if told < len(rows):
        error = max(error, told**-0.5)
    if share - ERRORS * error > SURELY:
        return True
    return False if share <= GROWING else True if told >= ENOUGH_ROWS else None


def burstiness(due_s: Floats) -> float:
    """How many arrivals tell as much of a load as one of Poisson arrivals; 1 where they may be such.

    What a window happens to be asked for is off the load by sqrt((D + 1) / n) of it, where arrivals have D
    times the variance of Poisson ones, by their counts in blocks, and answers that of exponential ones. A
    queue that grew by no more than that is no sign of overload.
    """
    counts = np.histogram(due_s, BLOCKS)[0]
    dispersion = float(counts.var(ddof=1) / counts.mean())
    return (dispersion + 1) / 2 if dispersion > BURSTY else 1.0


def left_over(r: Records, rows: NDArray[np.intp]) -> tuple[float, float]:
    """The share of what comes that is not dealt with meanwhile, and its standard error. `rows`: by due.

    At a load of L times what can be served, each second of arrivals takes L seconds to serve: who comes a
    second later waits L - 1 longer, and 1 - 1/L of what comes is left over, whoever is served first. L - 1 is
    the slope of how long requests take (their median in each block of rows) against when they were due; the
    outstanding ones grow by that times their rate. While a queue only fills up, it is 0.

    A queue forgets slowly, so what is left of the blocks beside a line is no measure of the error. It is that
    of a random walk with the blocks' own steps: right where the queue grows, too large where it does not.
    """
    took_s = (r.ended_s - r.due_s)[rows]
    middle_s = np.array([np.median(block) for block in np.array_split(took_s, BLOCKS)])
    due_s = np.array([block.mean() for block in np.array_split(r.due_s[rows], BLOCKS)])
    off_s, span_s = due_s - due_s.mean(), due_s[-1] - due_s[0]
    if span_s <= 0:
        return 0.0, 0.0
    slope = max(0.0, float(off_s @ middle_s / (off_s @ off_s)))
    error = float(np.std(np.diff(middle_s), ddof=1)) * np.sqrt(BLOCKS - 1) / span_s
    return slope / (1 + slope), error / (1 + slope) ** 2


def _refusing(r: Records, start: float, end: float) -> bool:
    """As many of the window's last half are rejected as may be left over at most, some in each half of that.

    A bounded queue fills up first, and refuses from then on.
    """
    quarters = np.linspace(start, end, 5)[2:]
    rejected = r.measured & r.has(Outcome.REJECTED)
    refused, due = (np.histogram(r.due_s[rows], quarters)[0] for rows in (rejected, r.measured))
    return bool(refused.all() and refused.sum() > GROWING * due.sum())


def _at_bound(run: Run) -> bool:
    bounds = [run.asked("load", name) for name in ("max_concurrency", "max_in_flight")]
    mean = in_flight(run)[1] or 0.0
    return any(bound is not None and mean >= 0.95 * bound for bound in bounds)
