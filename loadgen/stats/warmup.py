"""Where a run settled, for `warmup: auto`: what came before is no measurement but warm-up."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
from numpy.typing import NDArray

from loadgen.plan import Phase
from loadgen.records import Floats, Outcome
from loadgen.run import Run
from loadgen.stats.metrics import span_s
from loadgen.stats.summary import Finding, Warmup

RULE = "MSER-5 of E2E, capped at twice its median"
BATCH = 5
FEWEST_ROWS = 50


def settled(run: Run) -> Run:
    """The run as it counts: with `warmup: auto` its first rows are warm-up; else the run itself."""
    return settle(run)[0]


def settle(run: Run) -> tuple[Run, Warmup | None]:
    """`settled`, and what was found, None where the scenario does not ask. Of a settled run, the same again.

    The series is the E2E of ok requests in order of due. The window starts with the first row that counts.
    """
    if run.asked("load", "warmup") != "auto":
        return run, None
    r = run.records
    rows = r.phase != Phase.TAIL  # the plan itself has no warm-up then
    answered = np.flatnonzero(rows & r.has(Outcome.OK) & ~np.isnan(r.last_token_s))
    answered = answered[np.lexsort((r.index[answered], r.due_s[answered]))]
    cut = cut_of(span_s(r.last_token_s, r.due_s)[answered]) if len(answered) >= FEWEST_ROWS else None
    if not cut:
        return run, Warmup(rule=RULE, rows=0, settled=None if cut is None else True)
    from_s = float(r.due_s[answered[cut]])
    early = rows & (r.due_s < from_s)
    phase = np.where(rows, np.where(early, Phase.WARMUP, Phase.MEASURED), r.phase).astype(np.uint8)
    header = msgspec.structs.replace(run.header, window_start_s=from_s)
    found = Warmup(rule=RULE, rows=int(early.sum()), settled=cut < most(len(answered)))
    return replace(run, header=header, records=replace(r, phase=phase)), found


def cut_of(series_s: Floats) -> int:
    """How many to leave out so that the mean of the rest has the least standard error, at most `most`.

    White's MSER-5, of the means of batches of five; here what is above twice the median of the last half
    counts as that. A start is left out that is low all along, as of an empty queue, or far higher, as of a
    cold server: one of three times the latencies in two of three runs where these vary as exponential ones
    do, and always where they vary less. Without the cap so is a burst that happens to be early, and the mean
    of a steady queue comes out 5 to 14 % too small; with it, 1 % at most.
    `series_s`: in whole microseconds, in order of time.
    """
    n = len(series_s) // BATCH * BATCH
    whole = np.rint(series_s[:n] * 1e6)
    batches = np.minimum(whole, np.floor(2 * np.median(whole[n // 2 :]))).reshape(-1, BATCH).sum(axis=1)
    off = batches - np.rint(np.median(batches))  # whole numbers: what is constant has no error at all
    left = np.arange(len(off), 0, -1)
    squares = _sums_to_the_end(off**2) - _sums_to_the_end(off) ** 2 / left
    return BATCH * int(np.argmin((squares / left**2)[: most(n) // BATCH + 1]))


def most(n: int) -> int:
    """The most that may be left out of `n`: half of the whole batches."""
    return n // BATCH // 2 * BATCH


def _sums_to_the_end(values: Floats) -> NDArray[np.float64]:
    return np.cumsum(values[::-1])[::-1]


def findings(found: Warmup | None) -> list[Finding]:
    """What a reader must know of it."""
    if found is None or found.settled:
        return []
    if found.settled is None:
        text = (
            f"fewer than {FEWEST_ROWS} requests were answered: too few to tell a warm-up by, so none is cut"
        )
        return [_warning(text, "ask for more requests, or say how long the warm-up is")]
    text = (
        f"the run never settled: by {RULE} half of it or more is warm-up; the figures are of the other half"
    )
    return [_warning(text, "measure longer; a load above capacity never settles: lower the rate")]


def _warning(text: str, remedy: str) -> Finding:
    return Finding(name="warmup", effect="warning", text=text, remedy=remedy)
