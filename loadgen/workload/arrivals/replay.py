"""The instants of a trace again: as they were, faster, over and over, stretched or thinned to a rate."""

from __future__ import annotations

import numpy as np

from loadgen.laws import Replay
from loadgen.scenario import ScenarioError
from loadgen.workload import streams
from loadgen.workload.arrivals.stream import Instants, Sources, Stream, refuse_far

_ROWS_A_TIME = 65_536


class ReplayStream(Stream):
    """Row by row; place p of the stream of candidates is row p % n of the trace, in its cycle p // n.

    A cycle is as long as the trace and one mean gap more, so that looping keeps its rate.
    """

    def __init__(self, law: Replay, seed: int, purpose: str, due_ns: Instants) -> None:
        n = len(due_ns)
        if not n:
            raise ScenarioError("load.trace: has no rows to replay")
        if law.loop and _rate_rps(due_ns) is None:
            raise ScenarioError(
                "load.arrivals.loop: the trace's rows are all due at once: there is no gap to loop"
            )
        self._factor, self._kept = _scaling(law, due_ns)
        self._due_ns, self._loop = due_ns, law.loop
        self._cycle_ns = float(due_ns[-1] - due_ns[0]) * n / max(1, n - 1) * self._factor
        self._seed, self._purpose = seed, purpose
        self._place = 0

    def take(self, n: int) -> Instants:
        return self.take_rows(n)[0]

    def take_rows(self, n: int) -> tuple[Instants, Sources]:
        due_ns, sources, found = [np.empty(0, np.int64)], [np.empty(0, np.int32)], 0
        while found < n and (self._loop or self._place < len(self._due_ns)):
            place = self._candidates(n - found)
            due_ns.append(self._at(place))
            sources.append((place % len(self._due_ns)).astype(np.int32))
            found += len(place)
        return np.concatenate(due_ns), np.concatenate(sources)

    def _candidates(self, n: int) -> Instants:
        """The next places that are kept, `n` at most."""
        end = self._place + min(n, _ROWS_A_TIME) if self._kept == 1 else self._place + _ROWS_A_TIME
        end = end if self._loop else min(end, len(self._due_ns))
        place = np.arange(self._place, end)
        if self._kept < 1:
            u = streams.uniforms(self._seed, f"{self._purpose}/thin", self._place, len(place))
            place = place[u < self._kept][:n]
        self._place = int(place[-1]) + 1 if len(place) == n else end
        return place

    def _at(self, place: Instants) -> Instants:
        cycle, row = np.divmod(place, len(self._due_ns))
        due_ns = np.rint(cycle * self._cycle_ns + self._due_ns[row] * self._factor)
        refuse_far(float(due_ns[-1]) if len(due_ns) else 0.0)
        return due_ns.astype(np.int64)


def _rate_rps(due_ns: Instants) -> float | None:
    """Gaps over span, as of any plan; None where all rows are due at once."""
    span_ns = int(due_ns[-1] - due_ns[0])
    return (len(due_ns) - 1) * 1e9 / span_ns if span_ns else None


def _scaling(law: Replay, due_ns: Instants) -> tuple[float, float]:
    """By what the instants are multiplied, and the share of rows that is kept."""
    if law.rate_rps is None:
        return 1 / law.speed_up, 1.0
    if (own_rps := _rate_rps(due_ns)) is None:
        raise ScenarioError(
            "load.arrivals.rate: the trace's rows are all due at once: they have no rate to scale"
        )
    if law.scale == "stretch":
        return own_rps / law.rate_rps, 1.0
    kept = law.rate_rps / (own_rps * law.speed_up)
    if kept > 1:
        raise ScenarioError(
            f"load.arrivals.rate: thinning cannot add to the trace's {own_rps * law.speed_up:.6g}/s: "
            "ask for less, or use scale: stretch"
        )
    return 1 / law.speed_up, kept
