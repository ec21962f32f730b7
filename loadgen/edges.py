"""Where the loads that meet the SLOs end: bracketed, bisected, then judged on either side."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from math import exp, log, sqrt

from loadgen.probe import Probe

_HALVINGS = 10  # below a thousandth of the load to start from nothing is sought
_LARGEST = 1e6
_BLIND = 3  # loads that could not be measured, and no other: the rest could not be either
_WALL = 0.1  # so near to what cannot be measured the search goes, from below
_FOLLOWS = 0.25  # so much of a growth of the load shows in the answers while the server keeps up, at least
_COARSE = 2  # so much nearer the crossing is looked for by all seeds
_ALONE = 0.1  # so few in flight in the mean hardly ever meet
_STRIDES = (2, 3, 6, 12, 24, 48)  # from the crossing outwards, in steps of the resolution


class Spent(Exception):  # noqa: N818  an end, not an error
    """As many runs were made as there may be."""


def settled(probes: Collection[Probe]) -> list[Probe]:
    """Those that tell most: of as many runs as any, or clear from one. The others showed where to look."""
    most = max((p.runs for p in probes if not p.is_clear), default=0)
    return [p for p in probes if p.runs >= most or p.is_clear]


def crossing(probes: Collection[Probe]) -> tuple[Probe | None, Probe | None]:
    """The highest load that meets the SLOs below all that do not, and the lowest of those.

    What could not be measured is neither.
    """
    by_load = sorted((p for p in probes if p.excess is not None), key=lambda p: p.load)
    missed = next((place for place, p in enumerate(by_load) if not p.meets), len(by_load))
    below = by_load[missed - 1] if missed else None
    return below, by_load[missed] if missed < len(by_load) else None


def edges(probes: Collection[Probe]) -> tuple[float | None, float | None]:
    """The highest load that passes below all that fail, and the lowest of those."""
    high = min((p.load for p in probes if p.verdict == "FAIL"), default=None)
    passes = [p.load for p in probes if p.verdict == "PASS" and (high is None or p.load < high)]
    return max(passes, default=None), high


def follows(probes: Collection[Probe], doublings: int) -> bool:
    """Whether the highest load that was measured brought more answers than the one so many before."""
    measured = sorted((p for p in probes if p.excess is not None), key=lambda p: p.load)
    if len(measured) <= doublings:
        return True
    before, last = measured[-1 - doublings], measured[-1]
    if not before.served_rps or not last.served_rps:
        return False
    return log(last.served_rps / before.served_rps) > _FOLLOWS * log(last.load / before.load)


def between(low: Probe, high: Probe) -> float:
    """The load between two at which the excess would be 0, were it linear in the logarithm of the load."""
    a, b = log(low.load), log(high.load)
    if low.excess is None or high.excess is None or low.excess == high.excess:
        return exp((a + b) / 2)
    return exp(a + (b - a) * -low.excess / (high.excess - low.excess))


@dataclass(slots=True)
class Search:
    """Chooses loads and has them probed (`take`: a load, and how many runs of it), until both edges stand.

    `whole`: loads are whole numbers. `doublings`: as `follows` takes them, before the load goes no higher.
    `told` hears of every probe, with all there are by then.
    """

    take: Callable[[float, int], Probe]
    start: float
    resolution: float
    seeds: int
    most_runs: int
    whole: bool
    doublings: int
    told: Callable[[Probe, Collection[Probe]], None]
    probes: dict[float, Probe] = field(default_factory=dict)

    def run(self) -> None:
        """Raises Spent, and whatever `take` does."""
        if self._bracket():
            if self.seeds > 1:  # what one seed says is that seed's luck too: it shows where to look
                self._narrow(1, _COARSE * self.resolution)
            self._narrow(self.seeds, self.resolution)
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
        """By all seeds, unless it is clear that they would not be enough to decide."""
        probe = self._at(load)
        is_vain = (probe.n_to_decide or 0) > self.seeds * probe.requests / probe.runs
        return probe if probe.is_clear or is_vain else self._at(load, self.seeds)

    def _rounded(self, load: float) -> float:
        return max(1.0, round(load)) if self.whole else float(f"{load:.5g}")

    # --- the crossing ---------------------------------------------------------------------------------------

    def _bracket(self) -> bool:
        """Find a load that meets the SLOs and one that does not; False where either is not to be had."""
        self._at(self.start)
        while True:
            low, high = crossing(self.probes.values())
            if low is not None and high is not None:
                return True
            ahead = self._lower() if low is None else self._higher(low)
            if ahead is None:
                return False
            self._at(ahead)

    def _higher(self, met: Probe) -> float | None:
        """Twice the highest that meets them, or midway to what cannot be measured; None where it is vain."""
        if walls := [load for load in self.probes if load > met.load]:
            wall = min(walls)
            return None if self._are_near(met.load, wall, _WALL) else sqrt(met.load * wall)
        is_vain = met.load >= _LARGEST or not follows(self.probes.values(), self.doublings)
        return None if is_vain else min(2 * met.load, _LARGEST)

    def _lower(self) -> float | None:
        """Half the lowest; None where it would change nothing.

        The client cannot at any load, or requests are alone by now.
        """
        lowest, probes = min(self.probes), self.probes.values()
        blind = len(probes) >= _BLIND and all(p.excess is None for p in probes)
        in_flight = self.probes[lowest].in_flight_mean
        is_alone = in_flight is not None and in_flight < _ALONE
        is_least = lowest <= self.start / 2**_HALVINGS or (self.whole and lowest <= 1)
        return None if blind or is_alone or is_least else lowest / 2

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
                ahead = self._inside(low, high, 1 + 0.9 * resolution, bisect=turn % 3 == 0)
                if self._at(ahead).excess is None:  # and so would its neighbours be
                    return

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
        """Go outwards from the crossing to the first load with that verdict, by all seeds."""
        low, high = crossing(settled(self.probes.values()))
        if low is None or high is None:
            return
        middle, step = between(low, high), (1 + self.resolution) ** towards
        probe = low if towards < 0 else high
        for stride in _STRIDES:
            if probe.verdict == verdict or probe.excess is None:
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
