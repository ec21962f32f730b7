"""Where the loads that meet the SLOs end: bracketed, bisected, then judged on either side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import exp, log

from loadgen.probe import Probe

_HALVINGS = 10  # below a thousandth of the load to start from nothing is sought
_LARGEST = 1e6
_STRIDES = (2, 4, 8, 16, 32)  # from the crossing outwards, in steps of the resolution


class Spent(Exception):
    """As many runs were made as there may be."""


def crossing(probes: Sequence[Probe]) -> tuple[Probe | None, Probe | None]:
    """The highest load that meets the SLOs below all that do not, and the lowest of those."""
    by_load = sorted(probes, key=lambda p: p.load)
    missed = next((place for place, p in enumerate(by_load) if not p.meets), len(by_load))
    below = by_load[missed - 1] if missed else None
    return below, by_load[missed] if missed < len(by_load) else None


def between(low: Probe, high: Probe) -> float:
    """The load between two at which the excess would be 0, were it linear in the logarithm of the load."""
    a, b = log(low.load), log(high.load)
    if low.excess is None or high.excess is None or low.excess == high.excess:
        return exp((a + b) / 2)
    return exp(a + (b - a) * -low.excess / (high.excess - low.excess))


@dataclass(slots=True)
class Search:
    """Chooses loads and has them probed (`take`: a load, and how many runs of it), until both edges stand.

    `whole`: loads are whole numbers. `told` hears of every probe, with all there are by then.
    """

    take: Callable[[float, int], Probe]
    start: float
    resolution: float
    repeats: int
    most_runs: int
    whole: bool
    told: Callable[[Probe, Sequence[Probe]], None]
    probes: dict[float, Probe] = field(default_factory=dict)

    def run(self) -> None:
        """Raises Spent, and whatever `take` does."""
        if self._bracket():
            self._narrow()
            self._decide("PASS", -1)
            self._decide("FAIL", +1)
            self._narrow()  # repeats may have moved the crossing

    # --- one load -------------------------------------------------------------------------------------------

    def _at(self, load: float, runs: int = 1) -> Probe:
        load = max(1.0, round(load)) if self.whole else float(f"{load:.5g}")
        known = self.probes.get(load)
        while known is None or known.runs < runs:
            if sum(p.runs for p in self.probes.values()) >= self.most_runs:
                raise Spent
            known = self.probes[load] = self.take(load, 1 + (known.runs if known else 0))
            self.told(known, [*self.probes.values()])
            if known.verdict == "INVALID" and known.runs == 1:
                runs = max(runs, 2)  # maybe the machine hiccuped
        return known

    # --- the crossing ---------------------------------------------------------------------------------------

    def _bracket(self) -> bool:
        """Find a load that meets the SLOs and one that does not; False where either is not to be had."""
        load = self._at(self.start).load
        while crossing([*self.probes.values()])[1] is None:
            if load >= _LARGEST:
                return False
            load = self._at(min(2 * load, _LARGEST)).load
        while crossing([*self.probes.values()])[0] is None:
            if load <= self.start / 2**_HALVINGS or (self.whole and load <= 1):
                return False
            load = self._at(load / 2).load
        return True

    def _narrow(self) -> None:
        """Until what meets them and what does not are neighbours."""
        for turn in range(1, 1000):
            low, high = crossing([*self.probes.values()])
            if low is None or high is None or self._are_near(low.load, high.load):
                return
            self._at(self._inside(low, high, bisect=turn % 3 == 0))

    def _are_near(self, low: float, high: float) -> bool:
        return high <= low * (1 + self.resolution) * (1 + 1e-9) or (self.whole and high - low <= 1)

    def _inside(self, low: Probe, high: Probe, *, bisect: bool) -> float:
        """Where the crossing should be, but at least a step from either, so that the two may soon be one apart."""
        middle = (low.load * high.load) ** 0.5
        step = 1 + 0.9 * self.resolution
        if self.whole:
            guess = middle if bisect else between(low, high)
            return min(max(round(guess), low.load + 1), high.load - 1)
        if bisect or high.load <= low.load * step * step:
            return middle
        return min(max(between(low, high), low.load * step), high.load / step)

    # --- the edges ------------------------------------------------------------------------------------------

    def _decide(self, verdict: str, towards: int) -> None:
        """Go outwards from the crossing to the first load with that verdict, then repeat the one before it."""
        low, high = crossing([*self.probes.values()])
        if low is None or high is None:
            return
        last = low if towards < 0 else high
        for stride in _STRIDES:
            if last.verdict in (verdict, "INVALID"):
                return
            next_load = between(low, high) * (1 + self.resolution) ** (towards * stride)
            if (next_load - last.load) * towards <= 0:
                continue
            if self._known_beyond(verdict, last.load, next_load, towards):
                break
            probe = self._at(next_load)
            if probe.verdict == verdict:
                break
            last = probe
        while last.verdict == "UNRESOLVED" and last.runs < self.repeats:
            last = self._at(last.load, last.runs + 1)

    def _known_beyond(self, verdict: str, start: float, end: float, towards: int) -> bool:
        """Whether a load between the two has the verdict already."""
        inner, outer = sorted((start * towards, end * towards))
        return any(p.verdict == verdict and inner < p.load * towards <= outer for p in self.probes.values())
