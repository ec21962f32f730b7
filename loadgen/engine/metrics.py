"""What a Prometheus scraper reads of the engine: vLLM's names, and our own of how well it keeps time.

The engine adds to plain numbers; they become metrics when somebody asks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector, CollectorRegistry

_TTFT_S = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
_GAP_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 10)
_REQUEST_S = (0.01, 0.03, 0.1, 0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480)
_STEP_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
_LATE_S = (
    0.00002, 0.00005, 0.0001, 0.0002, 0.0003, 0.0005, 0.00075, 0.001, 0.0015, 0.002, 0.003, 0.005, 0.0075,
    0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1,
)  # fmt: skip
_STREAM_S = (
    0.000001, 0.000002, 0.000005, 0.00001, 0.000015, 0.00002, 0.000025, 0.00003, 0.00004, 0.00005, 0.000075,
    0.0001, 0.0002, 0.0005, 0.001, 0.01,
)  # fmt: skip


class Histogram:
    """Counts of values up to each bound, and of those above the last; and their sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        return sum(self.counts)


class Metrics:
    """Counts since the start. Durations are seconds of the wall clock; those of requests are from the instant
    at which the request was taken, so that they include its wait in the queue.
    """

    def __init__(self) -> None:
        self.prompt_tokens = 0
        self.generation_tokens = 0
        self.finished = {"stop": 0, "length": 0, "abort": 0}
        self.prefix_queries = 0  # in tokens, as vLLM counts them
        self.prefix_hits = 0
        self.slips = 0
        self.rejected = 0
        self.ttft_s = Histogram(_TTFT_S)
        self.gap_s = Histogram(_GAP_S)
        self.e2e_s = Histogram(_REQUEST_S)
        self.queue_s = Histogram(_REQUEST_S)
        self.step_tokens = Histogram(_STEP_TOKENS)
        self.step_s = Histogram(_GAP_S)
        self.late_s = Histogram(_LATE_S)
        self.fan_out_s = Histogram(_LATE_S)
        self.fan_out_per_stream_s = Histogram(_STREAM_S)


class Levels(NamedTuple):
    """What goes up and down, as it is now, and preemptions so far. `kv_share`: of the blocks, 0 to 1; None
    where there is no bound.
    """

    running: int
    waiting: int
    kv_share: float | None
    preemptions: int


def exposition(metrics: Metrics, levels: Levels, model: str) -> tuple[bytes, str]:
    """Prometheus' text, and its content type."""

    class Now(Collector):
        def collect(self) -> Iterator[Metric]:
            yield from _levels(levels, model)
            yield from _counters(metrics, levels, model)
            yield from _histograms(metrics, model)

    registry = CollectorRegistry()
    registry.register(Now())
    return generate_latest(registry), CONTENT_TYPE_LATEST


def _levels(levels: Levels, model: str) -> Iterator[Metric]:
    for name, help_text, value in (
        ("vllm:num_requests_running", "Sequences in a slot.", levels.running),
        ("vllm:num_requests_waiting", "Sequences in the queue.", levels.waiting),
        ("vllm:kv_cache_usage_perc", "Share of the KV blocks that are held, 0 to 1.", levels.kv_share),
        ("vllm:gpu_cache_usage_perc", "The same under its older name.", levels.kv_share),
    ):
        if value is not None:
            yield _family(GaugeMetricFamily, name, help_text, {(model,): value})


def _counters(metrics: Metrics, levels: Levels, model: str) -> Iterator[Metric]:
    for name, help_text, value in (
        ("vllm:num_preemptions", "Sequences that lost their slot.", levels.preemptions),
        ("vllm:prompt_tokens", "Prompt tokens of sequences that have a first token.", metrics.prompt_tokens),
        ("vllm:generation_tokens", "Tokens computed of answers.", metrics.generation_tokens),
        ("vllm:prefix_cache_queries", "Prompt tokens looked up.", metrics.prefix_queries),
        ("vllm:prefix_cache_hits", "Prompt tokens found.", metrics.prefix_hits),
        ("loadgen_engine_slips", "Steps that ended later than a step is long.", metrics.slips),
        ("loadgen_engine_rejected", "Requests refused or dropped at a full queue.", metrics.rejected),
    ):
        yield _family(CounterMetricFamily, name, help_text, {(model,): value})
    ended: dict[tuple[str, ...], float] = {(model, reason): n for reason, n in metrics.finished.items()}
    yield _family(
        CounterMetricFamily, "vllm:request_success", "Sequences that ended.", ended, "finished_reason"
    )


def _family(
    kind: type[GaugeMetricFamily] | type[CounterMetricFamily],
    name: str,
    help_text: str,
    values: Mapping[tuple[str, ...], float],
    *more_labels: str,
) -> Metric:
    """`values`: by the model's name, and what `more_labels` stand for."""
    family = kind(name, help_text, labels=["model_name", *more_labels])
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family


def _histograms(metrics: Metrics, model: str) -> Iterator[Metric]:
    for name, help_text, histogram in (
        ("vllm:time_to_first_token_seconds", "Taken to first token.", metrics.ttft_s),
        ("vllm:inter_token_latency_seconds", "Between a stream's events.", metrics.gap_s),
        ("vllm:time_per_output_token_seconds", "The same under its older name.", metrics.gap_s),
        ("vllm:e2e_request_latency_seconds", "Taken to last token.", metrics.e2e_s),
        ("vllm:request_queue_time_seconds", "Taken to first step.", metrics.queue_s),
        ("vllm:iteration_tokens_total", "Tokens computed in a step.", metrics.step_tokens),
        (
            "loadgen_engine_step_seconds",
            "From the end of a step to the next one's.",
            metrics.step_s,
        ),
        ("loadgen_engine_step_lateness_seconds", "Start of a step against due.", metrics.late_s),
        ("loadgen_engine_fan_out_seconds", "First to last write of a step.", metrics.fan_out_s),
        (
            "loadgen_engine_fan_out_per_stream_seconds",
            "The same, over the streams written to.",
            metrics.fan_out_per_stream_s,
        ),
    ):
        family = HistogramMetricFamily(name, help_text, labels=["model_name"])
        family.add_metric([model], _buckets(histogram), histogram.total)
        yield family


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    """Prometheus' are cumulative."""
    found, so_far = [], 0.0
    for bound, n in zip((*map(str, histogram.bounds), "+Inf"), histogram.counts, strict=True):
        so_far += n
        found.append((bound, so_far))
    return found
