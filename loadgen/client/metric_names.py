"""Prometheus text, and what servers call the figures that we know: by server, one table each.

Samples of one name are summed over their labels (models, engines, replicas); of shares the largest counts,
since the fullest cache is the one that preempts. A name is looked up with `_` for `:` and without the
`_total` of counters, which exporters and parsers add as they please.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec

from loadgen.server_log import is_possible


class NotMetricsError(Exception):
    """What came is no Prometheus text: one line that says what it is."""


@dataclass(frozen=True, slots=True)
class Series:
    """Samples called `name`, those alone whose `label` is one of `values`, or with `but` is none of them.

    `over`: the value of `label` whose sample it is divided by.
    `plus`: a name whose samples are added; without them there is no figure. `most`: not the sum but the
    largest, as of models of which one calls the others.
    """

    name: str
    label: str | None = None
    values: tuple[str, ...] = ()
    but: bool = False
    over: str | None = None
    plus: str | None = None
    most: bool = False


@dataclass(frozen=True, slots=True)
class Names:
    """What one kind of server calls each figure; of several ways, the first that is there."""

    server: str
    of: Mapping[str, tuple[Series, ...]]

    def read(self, samples: Samples) -> dict[str, float]:
        found: dict[str, float] = {}
        for figure, ways in self.of.items():
            each = (_value(way, samples, is_share=figure == "kv_share") for way in ways)
            if (value := next((v for v in each if v is not None), None)) is not None:
                found[figure] = value
        return found

    @property
    def known(self) -> set[str]:
        ways = [way for each in self.of.values() for way in each]
        return {way.name for way in ways} | {way.plus for way in ways if way.plus}


@dataclass(frozen=True, slots=True)
class Sample:
    name: str
    labels: Mapping[str, str]
    value: float

    @property
    def key(self) -> str:
        """Its name with its labels, as Prometheus writes it."""
        if not self.labels:
            return self.name
        return self.name + "{" + ",".join(f'{k}="{v}"' for k, v in sorted(self.labels.items())) + "}"


Samples = Mapping[str, list[Sample]]
"""By the name that is looked up."""


def _names(server: str, prefix: str, **of: str | Series | tuple[str | Series, ...]) -> Names:
    def series(way: str | Series) -> Series:
        return Series(prefix + way) if isinstance(way, str) else way

    ways = {figure: way if isinstance(way, tuple) else (way,) for figure, way in of.items()}
    return Names(server, {figure: tuple(map(series, each)) for figure, each in ways.items()})


_LLAMA_CPP_PROMPTS = Series("llamacpp_prompt_tokens", plus="llamacpp_prompt_tokens_cached")
_BAD_ENDS = ("abort", "error", "cancelled", "timeout")

SERVERS = (
    # the exposition of vLLM 0.32 as it is served, and of older ones by vllm/v1/metrics/loggers.py;
    # the bundled engine has its names too, and one of its own for what it refuses
    _names(
        "vLLM",
        "vllm_",
        running="num_requests_running",
        waiting="num_requests_waiting",
        kv_share=("kv_cache_usage_perc", "gpu_cache_usage_perc"),
        preemptions="num_preemptions",
        prompt_tokens="prompt_tokens",
        output_tokens="generation_tokens",
        succeeded=Series("vllm_request_success", "finished_reason", _BAD_ENDS, but=True),
        aborted=Series("vllm_request_success", "finished_reason", ("abort",)),
        rejected=("admission_rejections", Series("loadgen_engine_rejected")),
        prefix_queries=("prefix_cache_queries", "gpu_prefix_cache_queries"),
        prefix_hits=("prefix_cache_hits", "gpu_prefix_cache_hits"),
        queue_s_sum="request_queue_time_seconds_sum",
        queue_s_count="request_queue_time_seconds_count",
        step_tokens_sum="iteration_tokens_total_sum",
        step_tokens_count="iteration_tokens_total_count",
        ttft_s_sum="time_to_first_token_seconds_sum",
        ttft_s_count="time_to_first_token_seconds_count",
    ),
    # sgl-project/sglang: docs/references/production_metrics.md and python/sglang/srt/metrics/collector.py
    _names(
        "SGLang",
        "sglang_",
        running="num_running_reqs",
        waiting="num_queue_reqs",
        kv_share="token_usage",
        preemptions="num_retracted_requests",
        prompt_tokens="prompt_tokens",
        output_tokens="generation_tokens",
        succeeded="num_requests",
        aborted="num_aborted_requests",
        prefix_queries="prompt_tokens",
        prefix_hits="cached_tokens",
        queue_s_sum="queue_time_seconds_sum",
        queue_s_count="queue_time_seconds_count",
        ttft_s_sum="time_to_first_token_seconds_sum",
        ttft_s_count="time_to_first_token_seconds_count",
    ),
    # huggingface/text-generation-inference: docs/source/reference/metrics.md and router/src/infer/mod.rs
    _names(
        "TGI",
        "tgi_",
        running="batch_current_size",
        waiting="queue_size",
        prompt_tokens="request_input_length_sum",
        output_tokens="request_generated_tokens_sum",
        succeeded="request_success",
        rejected=Series("tgi_request_failure", "err", ("overloaded",)),
        aborted=Series("tgi_request_failure", "err", ("dropped",)),
        queue_s_sum="request_queue_duration_sum",
        queue_s_count="request_queue_duration_count",
    ),
    # NVIDIA/TensorRT-LLM: tensorrt_llm/metrics/collector.py, served at /prometheus/metrics
    _names(
        "TensorRT-LLM",
        "trtllm_",
        running="num_requests_running",
        waiting="num_requests_waiting",
        kv_share="kv_cache_utilization",
        prompt_tokens="prompt_tokens",
        output_tokens="generation_tokens",
        succeeded=Series("trtllm_request_success", "finished_reason", _BAD_ENDS, but=True),
        aborted=Series("trtllm_request_success", "finished_reason", ("cancelled",)),
        prefix_queries="prompt_tokens",
        prefix_hits="prompt_cached_tokens",
        queue_s_sum="request_queue_time_seconds_sum",
        queue_s_count="request_queue_time_seconds_count",
        ttft_s_sum="time_to_first_token_seconds_sum",
        ttft_s_count="time_to_first_token_seconds_count",
    ),
    # ggml-org/llama.cpp: tools/server/server-context.cpp, with --metrics
    _names(
        "llama.cpp",
        "llamacpp_",
        running="requests_processing",
        waiting="requests_deferred",
        kv_share="kv_cache_usage_ratio",
        prompt_tokens=_LLAMA_CPP_PROMPTS,
        output_tokens="tokens_predicted",
        prefix_queries=_LLAMA_CPP_PROMPTS,
        prefix_hits="prompt_tokens_cached",
    ),
    # triton-inference-server: tensorrtllm_backend/README.md and server/docs/user_guide/metrics.md
    _names(
        "Triton",
        "nv_",
        running=(
            Series("nv_trt_llm_request_metrics", "request_type", ("scheduled",)),
            Series("nv_trt_llm_request_metrics", "request_type", ("active",)),
        ),
        waiting=(
            Series("nv_trt_llm_request_metrics", "request_type", ("waiting",)),
            "inference_pending_request_count",
        ),
        kv_share=(
            Series("nv_trt_llm_kv_cache_block_metrics", "kv_cache_block_type", ("fraction",)),
            Series("nv_trt_llm_kv_cache_block_metrics", "kv_cache_block_type", ("used",), over="max"),
        ),
        succeeded=Series("nv_inference_request_success", most=True),
        rejected=Series("nv_inference_request_failure", "reason", ("REJECTED",), most=True),
        aborted=Series("nv_inference_request_failure", "reason", ("CANCELED",), most=True),
    ),
)  # fmt: skip


def _value(way: Series, samples: Samples, *, is_share: bool) -> float | None:
    there, more = samples.get(way.name, []), samples.get(way.plus or way.name, [])
    values = [sample.value for sample in there if _is_meant(way, sample)]
    if not values or not more:
        return None
    value = max(values) if is_share or way.most else sum(values)
    if way.plus:
        value += sum(sample.value for sample in more)
    if way.over is None:
        return value
    whole = sum(sample.value for sample in there if sample.labels.get(way.label or "") == way.over)
    return value / whole if whole else None


def _is_meant(way: Series, sample: Sample) -> bool:
    if sample.labels.get("tp_rank", "0") != "0":  # each part of one tensor-parallel engine counts all of it
        return False
    return way.label is None or (sample.labels.get(way.label) in way.values) != way.but


@dataclass(frozen=True, slots=True)
class Metrics:
    """One answer, read. `kind`: the server by its metrics, None where they are nobody's that we know.

    `raw`: samples that have no canonical name. `left_out`: figures that cannot be.
    """

    kind: str | None
    values: dict[str, float]
    raw: dict[str, float]
    left_out: tuple[str, ...] = ()


def _metrics(kind: str | None, told: Mapping[str, float], raw: dict[str, float]) -> Metrics:
    odd = tuple(f"{name} of {value:g}" for name, value in told.items() if not is_possible(name, value))
    values = {name: value for name, value in told.items() if is_possible(name, value)}
    return Metrics(kind, values, raw, odd)


def read(text: str) -> Metrics:
    """Raises NotMetricsError."""
    start = text.lstrip()[:1]
    if start == "<":
        raise NotMetricsError("an HTML page, no metrics")
    if start in ("{", "["):
        return _of_iterations(text)
    samples: dict[str, list[Sample]] = {}
    for sample in _samples(text):
        samples.setdefault(_looked_up(sample.name), []).append(sample)
    if not samples:
        raise NotMetricsError("no sample in it")
    found = [(names.read(samples), names) for names in SERVERS]
    values, names = max(found, key=lambda pair: len(pair[0]))
    known = names.known if values else set()
    raw = {s.key: s.value for name, each in samples.items() if name not in known for s in each}
    return _metrics(names.server if values else None, values, raw)


def _samples(text: str) -> Iterator[Sample]:
    """Buckets of histograms, of which sum and count are kept, and what never changes are left out."""
    from prometheus_client.parser import text_string_to_metric_families

    kept = (line for line in text.splitlines() if "_bucket{" not in line and "_created" not in line)
    try:
        for family in text_string_to_metric_families("\n".join(kept) + "\n"):
            for sample in family.samples:
                if math.isfinite(sample.value):
                    yield Sample(sample.name, sample.labels, float(sample.value))
    except Exception:  # another's parser, whatever it raises for what it cannot read
        raise NotMetricsError("no Prometheus text") from None


def _looked_up(name: str) -> str:
    return name.replace(":", "_").removesuffix("_total")


class _Blocks(msgspec.Struct, rename="camel"):
    max_num_blocks: float = 0.0
    used_num_blocks: float = 0.0


class _Step(msgspec.Struct, rename="camel"):
    """An iteration of TensorRT-LLM, by its own names."""

    num_active_requests: float
    num_queued_requests: float | None = None
    kv_cache_stats: _Blocks | None = None


def _of_iterations(text: str) -> Metrics:
    """What TensorRT-LLM's own /metrics tells: the iterations since it was asked last, as JSON."""
    try:
        steps = msgspec.json.decode(text, type=list[_Step])
    except (msgspec.DecodeError, RecursionError):
        raise NotMetricsError("JSON, but not of the iterations of TensorRT-LLM") from None
    told: dict[str, float] = {}
    if steps:
        told["running"] = steps[-1].num_active_requests
        if (waiting := steps[-1].num_queued_requests) is not None:
            told["waiting"] = waiting
        if (kv := steps[-1].kv_cache_stats) and kv.max_num_blocks:
            told["kv_share"] = kv.used_num_blocks / kv.max_num_blocks
    return _metrics("TensorRT-LLM", told, {})
