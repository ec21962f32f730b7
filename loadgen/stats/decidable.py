"""Can a plan decide its SLOs? Said before anything is sent: afterwards it is too late to ask for more."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from loadgen.laws import Closed
from loadgen.manners import RequestClass
from loadgen.scenario import Scenario
from loadgen.slo import POOLED, AllWithin, Mean, Promise, Rate, Refused, Slo, Within, bound_refusals, promises
from loadgen.slo_sets import CONFIDENCE
from loadgen.stats.bounds import BLOCKS, least, share_bounds
from loadgen.units import roughly
from loadgen.workload import lengths

_MEAN = "can PASS only with SLOs of rejection_rate and error_rate beside it"
_NEVER = "no number of requests can show it; it can only FAIL"


@dataclass(frozen=True, slots=True)
class Needed:
    """How many requests, or gaps, show that a share is at least its limit; None: no number does.

    `clean`: where none misses. `half`: where half as many miss as may. Requests in a queue are alike, so that
    more may be needed.
    """

    clean: int | None
    half: int | None


def early_stopping_n(misses: int, share: float, confidence: float = 0.99) -> int:
    """The fewest queries of which so many may miss and `share` be shown to hold, by MLPerf's rule.

    That is the least n with P[Binomial(n, 1 - share) <= misses] <= 1 - confidence: queries that are
    independent, as those that queue together are not.
    """
    n = least(lambda n: n > misses and share_bounds(n - misses, n, confidence)[0] >= share)
    if n is None:
        raise ValueError(f"no number of queries shows a share of {share}")
    return n


def needed(slo: Slo, confidence: float = CONFIDENCE) -> Needed | None:
    """For an SLO of a share; None for any other, whose need depends on how its values vary."""
    if not isinstance(slo, Within | Refused):
        return None
    limit = slo.least if isinstance(slo, Within) else 1 - slo.most
    if limit in (0, 1):
        return Needed(None, None) if limit else Needed(1, 1)
    half = (1 + limit) / 2
    return Needed(
        early_stopping_n(0, limit, confidence),
        least(lambda n: share_bounds(half * n, n, confidence)[0] >= limit),
    )


def hopeless(scenario: Scenario, rows: int) -> list[str]:
    """A line for each SLO that `rows` measured requests cannot show to hold, however they are answered."""
    load = scenario.load
    weight = sum(own.weight for own in load.mixture.values())
    of_classes = {name: (own.slos, rows * own.weight / weight) for name, own in load.classes.items()}
    said = []
    for name, (slos, own_rows) in {"": (scenario.slos, float(rows)), **of_classes}.items():
        promised = promises(slos)
        means_stand = bound_refusals(promised)
        for promise in promised:
            text = f"{name}: {promise.text}" if name else promise.text
            if isinstance(promise.slo, Mean) and not means_stand:
                said.append(f"{text}: {_MEAN}")
            is_pooled = isinstance(promise.slo, Within) and bool({*promise.slo.limits} & {*POOLED})
            need = None if is_pooled else needed(promise.slo, promise.confidence)
            if need is not None and need.clean is None:
                said.append(f"{text}: {_NEVER}")
            elif need is not None and need.clean is not None and own_rows < need.clean:
                said.append(f"{text}: {own_rows:,.0f} requests cannot show it: it takes {need.clean:,}")
    return said


def sayings(scenario: Scenario, rows: int | None, span_s: float | None) -> list[str]:
    """A line for each SLO that `rows` measured requests, over `span_s` seconds, may leave undecided.

    `rows` None: as many as the answers will let be sent. `span_s` None: a load without a rate, whose minutes
    cannot be told.
    """
    load = scenario.load
    classes = load.mixture
    weight = sum(own.weight for own in classes.values())
    if not (scenario.slos or any(own.slos for own in classes.values())):
        return []
    said = _of_the_loop(scenario)
    if rows is None:
        return [*said, "how many requests there will be is told by the answers: so is what they can show"]
    per_row_s = span_s / rows if span_s and rows else None
    said += _of_class("", scenario.slos, rows, per_row_s, [*classes.values()])
    for name, own in classes.items():
        share = own.weight / weight
        own_s = per_row_s / share if per_row_s else None
        said += _of_class(f"{name}: ", own.slos, round(rows * share), own_s, [own])
    return said


def _of_the_loop(scenario: Scenario) -> list[str]:
    if isinstance(scenario.load.arrivals, Closed) or scenario.load.max_concurrency is not None:
        return ["a closed loop waits for slow answers: no SLO of latency, refusals or goodput can PASS"]
    return []


def _of_class(
    prefix: str, slos: tuple[str, ...], rows: int, per_row_s: float | None, classes: list[RequestClass]
) -> list[str]:
    promised = promises(slos)
    means_stand = bound_refusals(promised)
    said = []
    for promise in promised:
        text = f"{prefix}{promise.text}"
        if isinstance(promise.slo, Mean) and not means_stand:
            said.append(f"{text}: {_MEAN}")
        said += [f"{text}: {words}" for words in _of(promise, rows, per_row_s, classes)]
    return said


def _of(promise: Promise, rows: int, per_row_s: float | None, classes: list[RequestClass]) -> list[str]:
    slo = promise.slo
    if isinstance(slo, Mean | Rate) and rows < 2 * BLOCKS:
        return [f"{rows:,} requests are too few for an interval: {_many(2 * BLOCKS, per_row_s)} are needed"]
    if isinstance(slo, AllWithin):
        return ["judges the requests of this run, and says nothing of others"]
    if (need := needed(slo, promise.confidence)) is None:
        return []
    if need.clean is None or need.half is None:
        return [_NEVER]
    is_pooled = isinstance(slo, Within) and bool({*slo.limits} & {*POOLED})
    each = _gaps_a_request(classes) if is_pooled else 1.0
    if each is None:
        return ["how many gaps there will be between tokens is not known before"]
    clean, half = ceil(need.clean / each), ceil(need.half / each)
    if rows >= half:
        return []
    often = f"{_many(half, per_row_s)} if half as many miss as it allows; more where requests queue together"
    if rows >= clean:
        return [f"{rows:,} requests can show it if almost none misses; it takes {often}"]
    return [f"{rows:,} requests cannot show it: it takes {_many(clean, per_row_s)} if none misses, {often}"]


def _gaps_a_request(classes: list[RequestClass]) -> float | None:
    """In the mean, as asked; None where only a trace knows, or there is none."""
    means = [lengths.exact_mean(own.output_tokens) if own.output_tokens else None for own in classes]
    weights = [own.weight for own in classes]
    known = [mean * weight for mean, weight in zip(means, weights, strict=True) if mean is not None]
    gaps = sum(known) / sum(weights) - 1
    return gaps if len(known) == len(classes) and gaps > 0 else None


def _many(requests: int, per_row_s: float | None) -> str:
    time = f" ({roughly(requests * per_row_s)})" if per_row_s else ""
    return f"{requests:,}{time}"
