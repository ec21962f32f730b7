"""A Summary as OpenMetrics text, to be pushed: gauges alone, which Prometheus's older text format has too.

The Pushgateway reads that one only: to it, an info or a state set is a mistake.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import inf

from loadgen.report.figures import clean
from loadgen.stats.summary import WORST_FIRST, Distribution, Summary

Sample = tuple[dict[str, str], float | None]
Gauges = Callable[[str, str, Iterable[Sample]], None]

_RATES = {
    "offered_rps": ("offered_requests_per_second", "Requests that fell due, a second of the window."),
    "completed_rps": ("completed_requests_per_second", "Requests that ended ok, a second of the window."),
    "output_tokens_per_s": ("output_tokens_per_second", "Output tokens, a second of the window."),
    "makespan_output_tokens_per_s": (
        "makespan_output_tokens_per_second",
        "Output tokens of ok requests over the whole run, tail and drain included.",
    ),
    "makespan_total_tokens_per_s": (
        "makespan_total_tokens_per_second",
        "The same with the tokens of their prompts.",
    ),
    "rejection_rate": ("rejection_ratio", "Share of the offered that were rejected."),
    "error_rate": ("error_ratio", "Share of the offered that failed otherwise."),
    "in_flight_max": ("in_flight_max_requests", "Most requests in flight at once."),
    "in_flight_mean": ("in_flight_mean_requests", "Requests in flight, on average."),
    "wasted_tokens": ("wasted_tokens", "Tokens of requests that failed."),
}


def text(summary: Summary) -> str:
    """The exposition, `# EOF` at its end. What is not defined is left out.

    Adjusted percentiles count a failed request as infinitely late: they may be +Inf, so that an alarm rings.
    """
    from prometheus_client import CollectorRegistry, Gauge
    from prometheus_client.openmetrics.exposition import generate_latest

    registry = CollectorRegistry()
    whose = {"run": summary.name, "source": summary.source, "plan": summary.plan_digest[:12]}

    def gauges(name: str, about: str, samples: Iterable[Sample]) -> None:
        known = [(whose | labels, value) for labels, value in samples if value is not None]
        if known:
            made = Gauge(f"loadgen_{name}", about, list(known[0][0]), registry=registry)
            for labels, value in known:
                made.labels(**{key: clean(said) for key, said in labels.items()}).set(value)

    _tell(summary, gauges)
    exposition: bytes = generate_latest(registry)  # type: ignore[no-untyped-call]
    return exposition.decode()


def _tell(s: Summary, gauges: Gauges) -> None:
    model = {"run_id": s.run_id, "target": s.target, "model": s.model or ""}
    gauges("run_info", "What was measured.", [(model, 1)])
    gauges("valid", "1: the measurement can be trusted.", [({}, s.validity == "VALID")])
    gauges("overloaded", "1: outstanding requests rose all along.", [({}, s.overloaded)])
    if s.verdict is not None:
        gauges("verdict", "1: the verdict on all SLOs together.", _states({}, s.verdict))
    slos = [sample for slo in s.slos for sample in _states({"slo": slo.name}, slo.verdict)]
    gauges("slo_verdict", "1: the verdict on one SLO.", slos)
    outcomes: list[Sample] = [({"outcome": outcome}, count) for outcome, count in s.outcomes.items()]
    gauges("requests", "Measured requests by how they ended.", outcomes)
    gauges("offered_requests", "Measured requests that fell due.", [({}, s.offered)])
    for key, (name, about) in _RATES.items():
        gauges(name, about, [({}, getattr(s, key))])
    if (good := s.goodput) is not None:
        about = "Requests that met every limit, a second of the window."
        gauges("goodput_requests_per_second", about, [({}, good.rps)])
        gauges("attainment_ratio", "Share of the offered that met every limit.", [({}, good.attainment)])
    for metric, d in s.metrics.items():
        _distribution(metric, d, gauges)


def _states(labels: dict[str, str], verdict: str) -> list[Sample]:
    return [(labels | {"verdict": one}, one == verdict) for one in WORST_FIRST]


def _distribution(metric: str, d: Distribution, gauges: Gauges) -> None:
    stem, unit = (metric[:-2], "_seconds") if metric.endswith("_s") else (metric, "")
    about = f"{stem} by quantile: plain ones of the samples; adjusted ones of all offered."
    gauges(f"{stem}{unit}", about, _quantiles(d))
    gauges(f"{stem}_mean{unit}", f"Mean {stem} of the samples.", [({}, d.mean)])
    gauges(f"{stem}_samples", f"Samples of {stem}.", [({}, d.n)])


def _quantiles(d: Distribution) -> Iterator[Sample]:
    late = inf if d.offered else None
    for kind, quantiles, otherwise in (("plain", d.quantiles, None), ("adjusted", d.adjusted, late)):
        for name, value in quantiles.items():
            quantile = f"{float(name[1:]) / 100:.6g}"
            yield {"quantile": quantile, "kind": kind}, otherwise if value is None else value
