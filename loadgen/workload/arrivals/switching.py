"""A rate that switches between states at random times: on/off and Markov-modulated Poisson arrivals."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from loadgen.laws import Mmpp, OnOff
from loadgen.scenario import ScenarioError
from loadgen.workload import streams
from loadgen.workload.arrivals.renewal import exponentials
from loadgen.workload.arrivals.stream import Floats, Instants, refuse_far
from loadgen.workload.arrivals.varying import Pieces

Number = TypeVar("Number", np.int64, np.float64)

MAX_VISITS = 50_000_000
_FEWEST_VISITS, _MOST_VISITS = 64, 1024  # drawn at a time: at first few, for they may last for years


def states_of(law: OnOff | Mmpp) -> list[tuple[float, float]]:
    """(requests per second, mean visit in seconds) of each state; on/off has two of them."""
    if isinstance(law, OnOff):
        return [(law.rate_rps, law.on_s), (law.off_rate_rps, law.off_s)]
    return [(state.rate_rps, state.dwell_s) for state in law.states]


class Path:
    """The states that a seed visits, drawn as far as is needed; what is asked of it goes forward only.

    Dwell times and turns taken have purposes of their own, so the path does not depend on the arrivals.
    """

    def __init__(self, law: OnOff | Mmpp, seed: int, purpose: str) -> None:
        states = np.array(states_of(law))
        self._rate_rps, self._dwell_ns = states[:, 0], states[:, 1] * 1e9
        self._seed, self._purpose = seed, purpose
        self._visits = 0
        share = np.cumsum(self._dwell_ns)  # all states are visited equally often
        u = streams.uniforms(seed, f"{purpose}/first", 0, 1) * share[-1]
        self._state = int(np.searchsorted(share, u[0], side="right"))
        self._piece = self._next(0, 0.0)

    def inverse(self, operational: Floats) -> Instants:
        return self._forward(operational, lambda piece: piece.before[-1], Pieces.inverse)

    def integral(self, at_ns: Floats) -> Floats:
        return self._forward(at_ns, lambda piece: piece.start_ns[-1], Pieces.integral)

    def _forward(
        self, values: Floats, end: Callable[[Pieces], float], of: Callable[[Pieces, Floats], NDArray[Number]]
    ) -> NDArray[Number]:
        """`of` each value on the stretch of the path where it lies: the first that ends after it."""
        found, first = [], 0
        while True:
            last = first + int(np.searchsorted(values[first:], end(self._piece)))
            found.append(of(self._piece, values[first:last]))
            if last == len(values):
                return np.concatenate(found)
            first = last
            self._piece = self._next(int(self._piece.start_ns[-1]), float(self._piece.before[-1]))

    def _next(self, start_ns: int, before: float) -> Pieces:
        """The pieces of the next visits."""
        n, k = min(max(_FEWEST_VISITS, self._visits), _MOST_VISITS), len(self._rate_rps)
        if self._visits > MAX_VISITS:
            raise ScenarioError(
                f"load.arrivals: the state changes more than {MAX_VISITS:,} times: make its visits longer"
            )
        u = streams.uniforms(self._seed, f"{self._purpose}/states", self._visits, n)
        steps = 1 + np.floor(u * (k - 1)).astype(np.int64)  # to any state but this
        state = (self._state + np.cumsum(steps) - steps) % k
        self._state = int(state[-1] + steps[-1]) % k
        visits = exponentials(self._seed, f"{self._purpose}/dwell", self._visits, n)
        length_ns = np.rint(visits * self._dwell_ns[state])
        refuse_far(start_ns + float(length_ns.sum()))
        self._visits += n
        rate_rps = self._rate_rps[state]
        return Pieces(length_ns.astype(np.int64), rate_rps, rate_rps, start_ns, before)
