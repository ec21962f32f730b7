"""What there is to see of a plan, as bars: arrivals over time, gaps, lengths; by class, beside the law."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadgen.laws import Burst, Closed, Custom, Renewal, Replay
from loadgen.plan import NONE, Plan
from loadgen.scenario import Scenario
from loadgen.workload import arrivals

FEWEST, ROWS_A_BAR = 10, 10  # few rows are counted in few bars
WIDE = 20  # lengths whose largest is so many times their median are counted in bars that grow

Numbers = NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True)
class Bars:
    """One histogram: `heights` by class, a bar between every two `edges`; `law`: the heights in the mean.

    `x` and `y` say what stands on each axis, and in which unit.
    """

    title: str
    x: str
    y: str
    edges: Numbers
    heights: dict[str, Numbers]
    law: Numbers | None = None
    is_whole: bool = False
    is_log: bool = False

    @property
    def total(self) -> Numbers:
        whole: Numbers = np.sum(list(self.heights.values()), axis=0)
        return whole


def bars(plan: Plan, scenario: Scenario, most: int) -> list[Bars]:
    """The histograms of `plan`, of `most` bars at most each; none of what is the same for every row.

    A closed loop has no instants to show.
    """
    most = min(most, max(FEWEST, len(plan) // ROWS_A_BAR))
    shown = [] if plan.users is not None or not plan.due_ns[-1] else [*_instants(plan, scenario, most)]
    named = {"prompt": plan.prompt_tokens, "output": plan.output_tokens}
    return shown + [_lengths(plan, name, tokens, most) for name, tokens in named.items() if np.ptp(tokens)]


def _instants(plan: Plan, scenario: Scenario, most: int) -> Iterator[Bars]:
    starts = plan.after == NONE
    due_s = plan.due_ns[starts] / 1e9
    what = "arrivals of sessions" if not starts.all() else "arrivals"
    end_s = max(plan.window.end_ns / 1e9, due_s[-1])
    edges = np.linspace(0, end_s, most + 1)
    width_s = end_s / (len(edges) - 1)
    heights = {name: n / width_s for name, n in _by_class(plan, starts, due_s, edges).items()}
    yield Bars(what, "seconds from the start", "per second", edges, heights, _expected_rps(scenario, edges))
    gaps_s = np.diff(due_s)
    if len(gaps_s) > 1 and np.ptp(gaps_s) > 1e-9:
        edges = np.linspace(0, np.quantile(gaps_s, 0.995), most + 1)
        found = np.histogram(gaps_s, edges)[0].astype(float)
        yield Bars(
            "gaps",
            "seconds to the next arrival",
            "count",
            edges,
            {"": found},
            _law_of_gaps(scenario, edges, len(gaps_s)),
        )


def _expected_rps(scenario: Scenario, edges: Numbers) -> Numbers | None:
    law = scenario.load.arrivals
    if law is None or scenario.load.rescale or isinstance(law, Closed | Replay | Custom):
        return None
    if isinstance(law, Burst) and law.size is None:
        return None
    due = np.array([arrivals.expected(law, float(edge)) for edge in edges])
    return np.diff(due) / np.diff(edges)


def _law_of_gaps(scenario: Scenario, edges: Numbers, n: int) -> Numbers | None:
    """How many of `n` gaps the law gives to each bar, where gaps are independent and of one law."""
    law = scenario.load.arrivals
    if scenario.load.rescale or not isinstance(law, Renewal):
        return None
    counts: Numbers = n * np.diff(arrivals.chance_below(law, edges.astype(float)))
    return counts


def _lengths(plan: Plan, name: str, tokens: NDArray[np.int32], most: int) -> Bars:
    edges, is_log = _whole_edges(tokens, most)
    everyone = np.ones(len(plan), bool)
    heights = {name: n.astype(float) for name, n in _by_class(plan, everyone, tokens, edges).items()}
    return Bars(f"{name} tokens", "tokens asked", "requests", edges, heights, is_whole=True, is_log=is_log)


def _whole_edges(tokens: NDArray[np.int32], most: int) -> tuple[Numbers, bool]:
    """Edges between whole numbers; each bar holds as many of these as the next, or a share more."""
    low, high = int(tokens.min()), int(tokens.max())
    if high > WIDE * np.median(tokens):
        grown = np.geomspace(low, high + 1, most + 1)
        return np.unique(np.round(grown)) - 0.5, True
    width = -(-(high - low + 1) // most)
    return np.arange(low, high + width + 1, width) - 0.5, False


def _by_class(
    plan: Plan, rows: NDArray[np.bool_], values: Any, edges: Numbers
) -> dict[str, NDArray[np.int64]]:
    class_id = plan.class_id[rows]
    names = plan.classes or ("",)
    return {name: np.histogram(values[class_id == i], edges)[0] for i, name in enumerate(names)}
