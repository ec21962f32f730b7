"""Where the loads that meet the SLOs end: bracketed, bisected, then judged on either side."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from math import exp, log, sqrt

from loadgen.probe import Probe

_HALVINGS = 10  # below a thousandth of the load to start from nothing is sought
_LARGEST = 1e6
_BLIND = 3  # loads that could not be measured, and no other: the rest could not be either
_COARSE = 2  # so much nearer the crossing is looked for by all repeats
_ALONE = 0.1  # so few in flight in the mean hardly ever meet
_STRIDES = (2, 4, 8, 16, 32, 64)  # from the crossing outwards, in steps of the resolution


class Spent(Exception):  # noqa: N818  an end, not an error
    """As many runs were made as there may be."""


def settled(probes: Collection[Probe]) -> list[Probe]:
    """Those that tell most: of as many runs as any, or clear from one. The others showed where to look."""
    most = max((p.runs for p in probes if not p.is_clear), default=0)
    return [p for p in probes if p.runs >= most or p.is_clear]


def crossing(probes: Collection[Probe]) -> tuple[Probe | None, Probe | None]:
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
    told: Callable[[Probe, Collection[Probe]], None]
    probes: dict[float, Probe] = field(default_factory=dict)

    def run(self) -> None:
        """Raises Spent, and whatever `take` does."""
        if self._bracket():
            if self.repeats > 1:  # what one seed says is that seed's luck too: it shows where to look
                self._narrow(1, _COARSE * self.resolution)
            self._narrow(self.repeats, self.resolution)
            self._decide("PASS", -1)
            self._decide("FAIL", +1)

    # --- one load -------------------------------------------------------------------------------------------

    def _at(self, load: float, runs: int = 1) -> Probe:
        load = self._rounded(load)
        known = self.probes.get(load)
        while known is None or known.runs < runs:
            if sum(p.runs for p in self.probes.values()) >= self.most_runs:
                raise Spent
            known = self.probes[load] = self.take(load, 1 + (known.runs if known else 0))
            self.told(known, self.probes.values())
            if known.verdict == "INVALID" and known.runs == 1:
                runs = max(runs, 2)  # maybe the machine hiccuped
        return known

    def _repeated(self, load: float) -> Probe:
        """By all repeats, unless it is clear that they would not be enough to decide."""
        probe = self._at(load)
        is_vain = (probe.n_to_decide or 0) > self.repeats * probe.requests / probe.runs
        return probe if probe.is_clear or is_vain else self._at(load, self.repeats)

    def _rounded(self, load: float) -> float:
        return max(1.0, round(load)) if self.whole else float(f"{load:.5g}")

    # --- the crossing ---------------------------------------------------------------------------------------

    def _bracket(self) -> bool:
        """Find a load that meets the SLOs and one that does not; False where either is not to be had."""
        load = self._at(self.start).load
        while crossing(self.probes.values())[1] is None:
            if load >= _LARGEST:
                return False
            load = self._at(min(2 * load, _LARGEST)).load
        while crossing(self.probes.values())[0] is None:
            if load <= self.start / 2**_HALVINGS or (self.whole and load <= 1) or self._is_vain(load):
                return False
            load = self._at(load / 2).load
        return True

    def _is_vain(self, lowest: float) -> bool:
        """Whether less load would change nothing: the client cannot at any, or requests are alone by now."""
        blind = len(self.probes) >= _BLIND and all(p.verdict == "INVALID" for p in self.probes.values())
        in_flight = self.probes[lowest].in_flight_mean
        return blind or (in_flight is not None and in_flight < _ALONE)

    def _narrow(self, runs: int, resolution: float) -> None:
        """Until what meets them and what does not are that near, each told by so many runs."""
        for turn in range(1, 1000):
            low, high = crossing(self.probes.values())
            if low is None or high is None:
                return
            if lacking := [p for p in (low, high) if p.runs < runs and not p.is_clear]:
                self._at(lacking[0].load, runs)
            elif self._are_near(low.load, high.load, resolution):
                return
            else:
                self._at(self._inside(low, high, 1 + 0.9 * resolution, bisect=turn % 3 == 0))

    def _are_near(self, low: float, high: float, resolution: float) -> bool:
        return high <= low * (1 + resolution) * (1 + 1e-9) or (self.whole and high - low <= 1)

    def _inside(self, low: Probe, high: Probe, step: float, *, bisect: bool) -> float:
        """Where the crossing should be, but a step from either at least: the two may soon be one apart."""
        middle = sqrt(low.load * high.load)
        if self.whole:
            guess = middle if bisect else between(low, high)
            return min(max(round(guess), low.load + 1), high.load - 1)
        if bisect or high.load <= low.load * step * step:
            return middle
        return min(max(between(low, high), low.load * step), high.load / step)

    # --- the edges ------------------------------------------------------------------------------------------

    def _decide(self, verdict: str, towards: int) -> None:
        """Go outwards from the crossing to the first load with that verdict, by all its repeats."""
        low, high = crossing(settled(self.probes.values()))
        if low is None or high is None:
            return
        middle, step = between(low, high), (1 + self.resolution) ** towards
        probe = low if towards < 0 else high
        for stride in _STRIDES:
            if probe.verdict in (verdict, "INVALID"):
                return
            ahead = self._rounded(middle * step**stride)
            if (ahead - probe.load) * towards <= 0:
                ahead = probe.load + towards if self.whole else probe.load * step
            probe = self._repeated(self._known(probe.load, ahead, towards) or ahead)

    def _known(self, last: float, ahead: float, towards: int) -> float | None:
        """The farthest load between the two that was probed already."""
        inner, outer = last * towards, ahead * towards
        found = [load * towards for load in self.probes if inner < load * towards <= outer]
        return max(found) * towards if found else None
