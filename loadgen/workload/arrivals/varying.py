"""Poisson arrivals whose rate changes, by exact time rescaling.

Sums of unit exponentials, kept as whole billionths of an arrival, are instants in operational time; the
inverse of the integrated rate carries them to the clock. Integrals are in the same unit: 1/s times ns.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from loadgen.laws import Curve, OnOff, Ramp, Sine, Steps
from loadgen.scenario import ScenarioError
from loadgen.workload import exact
from loadgen.workload.arrivals.renewal import exponentials
from loadgen.workload.arrivals.stream import Floats, Instants, Stream, refuse_far

_FOR_EVER_NS = 2**62


class Rate(Protocol):
    """A rate over time. What is asked of it must be sorted, and from call to call as well."""

    def inverse(self, operational: Floats) -> Instants:
        """When the integral of the rate gets there, whole ns."""

    def integral(self, at_ns: Floats) -> Floats:
        """Of the rate from 0 to there, in billionths of an arrival."""


class Rescaled(Stream):
    """Poisson arrivals of a rate that changes."""

    def __init__(self, rate: Rate, seed: int, purpose: str) -> None:
        self._rate, self._seed, self._purpose = rate, seed, purpose
        self._row = self._operational = self._last_ns = 0

    def take(self, n: int) -> Instants:
        if not n:
            return np.empty(0, np.int64)
        steps = np.rint(exponentials(self._seed, self._purpose, self._row, n) * 1e9).astype(np.int64)
        operational = np.cumsum(steps) + self._operational
        due_ns = self._rate.inverse(operational.astype(np.float64))
        self._row, self._operational = self._row + n, int(operational[-1])
        due_ns = np.maximum.accumulate(np.maximum(due_ns, self._last_ns))  # a rounding may turn two around
        self._last_ns = int(due_ns[-1])
        refuse_far(self._last_ns)
        return due_ns


class Pieces:
    """A rate that runs straight over each of some pieces, from `first_rps` to `last_rps` in `length_ns`.

    They begin at `start_ns`, where the integral is `before`; nothing may be asked of what is after them.
    """

    def __init__(
        self,
        length_ns: NDArray[np.int64],
        first_rps: Floats,
        last_rps: Floats,
        start_ns: int = 0,
        before: float = 0.0,
    ) -> None:
        areas = (first_rps + last_rps) / 2 * length_ns
        self.start_ns = np.cumsum(np.concatenate([[start_ns], length_ns]))
        self.before = np.cumsum(np.concatenate([[before], areas]))
        self._length_ns, self._first_rps = length_ns, first_rps
        self._slope = (last_rps - first_rps) / np.maximum(length_ns, 1)  # 1/s a nanosecond

    def inverse(self, operational: Floats) -> Instants:
        piece = self._piece(self.before, operational)
        area, rate = operational - self.before[piece], self._first_rps[piece]
        # The root of area = rate t + slope t^2 / 2 in the form that cancels nothing.
        root = np.sqrt(np.maximum(rate * rate + 2 * self._slope[piece] * area, 0))
        local_ns = 2 * area / np.maximum(rate + root, 1e-300)
        whole: Instants = np.rint(np.clip(local_ns, 0, self._length_ns[piece])).astype(np.int64)
        return self.start_ns[piece] + whole

    def integral(self, at_ns: Floats) -> Floats:
        piece = self._piece(self.start_ns, at_ns)
        local_ns = at_ns - self.start_ns[piece]
        mean_rps = self._first_rps[piece] + self._slope[piece] * local_ns / 2
        areas: Floats = self.before[piece] + mean_rps * local_ns
        return areas

    def _piece(self, edges: NDArray[np.generic], values: Floats) -> NDArray[np.intp]:
        """Where each lies; of pieces without area or length, none."""
        return np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(self._first_rps) - 1)


class Cycle:
    """A rate that repeats itself: each cycle is `cycle_ns` long and `area` large."""

    def __init__(self, once: Rate, cycle_ns: int, area: float) -> None:
        if not cycle_ns or not area:
            raise ScenarioError("load.arrivals: what repeats is shorter than a nanosecond: make it longer")
        self._once, self._cycle_ns, self._area = once, cycle_ns, area

    def inverse(self, operational: Floats) -> Instants:
        cycle = np.floor(operational / self._area)
        refuse_far((float(cycle[-1]) + 1) * self._cycle_ns)
        inside = np.clip(operational - cycle * self._area, 0, self._area)
        return cycle.astype(np.int64) * self._cycle_ns + self._once.inverse(inside)

    def integral(self, at_ns: Floats) -> Floats:
        cycle = np.floor(at_ns / self._cycle_ns)
        return cycle * self._area + self._once.integral(at_ns - cycle * self._cycle_ns)


class Wave:
    """One period of a sine: see `laws.Sine`."""

    def __init__(self, law: Sine) -> None:
        self.period_ns = round(law.period_s * 1e9)
        self.area = law.rate_rps * self.period_ns
        self._amplitude, self._phase = law.amplitude, law.phase
        self._swing = law.amplitude / (2 * np.pi)
        self._cos_phase = float(exact.sin_turns(law.phase + 0.25))

    def inverse(self, operational: Floats) -> Instants:
        """Newton's method in turns, halving the bracket wherever it would leave it."""
        target = operational / self.area
        turn, left = target.copy(), np.arange(len(target))
        low, high = np.zeros_like(turn), np.ones_like(turn)
        near = max(0.01 / self.period_ns, 2.0**-53)
        while len(left):
            here = turn[left]
            error = self._turns(here) - target[left]
            low[left] = np.where(error < 0, here, low[left])
            high[left] = np.where(error < 0, high[left], here)
            rate = 1 + self._amplitude * exact.sin_turns(here + self._phase)
            better = here - error / np.maximum(rate, 1e-300)
            settled = np.abs(better - here) <= near
            outside = (better <= low[left]) | (better >= high[left])
            turn[left] = np.where(outside & ~settled, (low[left] + high[left]) / 2, better)
            left = left[~settled & (high[left] - low[left] > near)]
        return np.rint(np.clip(turn, 0, 1) * self.period_ns).astype(np.int64)

    def integral(self, at_ns: Floats) -> Floats:
        return self.area * self._turns(at_ns / self.period_ns)

    def _turns(self, turn: Floats) -> Floats:
        return turn + self._swing * (self._cos_phase - exact.sin_turns(turn + self._phase + 0.25))


Points = list[tuple[float, float]]  # (seconds, requests per second)


def rate_of(law: Steps | Curve | Ramp | Sine | OnOff) -> Rate:
    """The rate of a law whose course is known beforehand."""
    match law:
        case Sine():
            wave = Wave(law)
            return Cycle(wave, wave.period_ns, wave.area)
        case Ramp():
            return _through([(0.0, law.from_rps), (law.over_s, law.to_rps)], again=False)
        case Curve():
            return _through([(p.at_s, p.rate_rps) for p in law.points], again=law.repeat)
        case OnOff():
            return _held([(0.0, law.rate_rps), (law.on_s, law.off_rate_rps)], law.on_s + law.off_s)
        case Steps():
            return _held([(p.at_s, p.rate_rps) for p in law.points], law.every_s)


def constant(rate_rps: float) -> Rate:
    """One that does not change."""
    return _held([(0.0, rate_rps)], None)


def _through(points: Points, *, again: bool) -> Rate:
    at_ns, rps = _columns(points)
    if again:
        return _repeated(Pieces(np.diff(at_ns), rps[:-1], rps[1:]))
    return Pieces(np.diff(np.append(at_ns, _FOR_EVER_NS)), rps, np.append(rps[1:], rps[-1]))


def _held(points: Points, every_s: float | None) -> Rate:
    at_ns, rps = _columns(points)
    end_ns = _FOR_EVER_NS if every_s is None else round(every_s * 1e9)
    pieces = Pieces(np.diff(np.append(at_ns, end_ns)), rps, rps)
    return pieces if every_s is None else _repeated(pieces)


def _repeated(once: Pieces) -> Cycle:
    return Cycle(once, int(once.start_ns[-1]), float(once.before[-1]))


def _columns(points: Points) -> tuple[NDArray[np.int64], Floats]:
    return np.array([round(at_s * 1e9) for at_s, _ in points]), np.array([rps for _, rps in points])
