"""What a Prometheus scraper reads."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families as parsed

from loadgen.engine.metrics import Histogram, Levels, Metrics, exposition

BOUNDS = (0.1, 0.5, 1.0, 2.0)
NAMES = (
    "vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc",
    "vllm:gpu_cache_usage_perc", "vllm:num_preemptions_total", "vllm:prompt_tokens_total",
    "vllm:generation_tokens_total", "vllm:request_success_total", "vllm:prefix_cache_queries_total",
    "vllm:prefix_cache_hits_total", "vllm:time_to_first_token_seconds_bucket",
    "vllm:inter_token_latency_seconds_bucket", "vllm:time_per_output_token_seconds_count",
    "vllm:e2e_request_latency_seconds_sum", "vllm:request_queue_time_seconds_bucket",
    "vllm:iteration_tokens_total_bucket", "loadgen_engine_step_lateness_seconds_bucket",
    "loadgen_engine_fan_out_seconds_bucket", "loadgen_engine_fan_out_per_stream_seconds_bucket",
    "loadgen_engine_slips_total", "loadgen_engine_rejected_total",
)  # fmt: skip


@given(st.lists(st.sampled_from((*BOUNDS, 0.0, 0.3, 1.5, 99.0))))
def test_a_histogram_counts_what_is_at_most_each_bound(values: list[float]) -> None:
    """Against NumPy; the last bucket holds all."""
    metrics = Metrics()
    metrics.late_s = histogram = Histogram(BOUNDS)
    for value in values:
        histogram.add(value)
    assert histogram.count == len(values)
    text = exposition(metrics, Levels(0, 0, 0.0, 0), "m")[0].decode()
    [family] = [f for f in parsed(text) if f.name == "loadgen_engine_step_lateness_seconds"]
    buckets = [s.value for s in family.samples if s.name.endswith("_bucket")]
    assert buckets == [float(np.sum(np.array(values) <= bound)) for bound in (*BOUNDS, np.inf)]
    assert sum(s.value for s in family.samples if s.name.endswith("_sum")) == sum(values)


def test_dashboards_find_vllms_names_and_the_models_label() -> None:
    """Each with the model's name, whatever it is; and ours."""
    metrics = Metrics()
    metrics.finished["stop"] = 3
    text, content_type = exposition(metrics, Levels(2, 5, 0.25, 7), 'a "model"')
    samples = [sample for family in parsed(text.decode()) for sample in family.samples]
    assert {sample.name for sample in samples}.issuperset(NAMES)
    assert {sample.labels["model_name"] for sample in samples} == {'a "model"'}
    values = {(s.name, s.labels.get("finished_reason")): s.value for s in samples}
    assert values["vllm:num_requests_running", None] == 2
    assert values["vllm:num_requests_waiting", None] == 5
    assert values["vllm:kv_cache_usage_perc", None] == values["vllm:gpu_cache_usage_perc", None] == 0.25
    assert values["vllm:num_preemptions_total", None] == 7
    assert values["vllm:request_success_total", "stop"] == 3
    assert content_type.startswith("text/plain")


def test_a_share_of_what_has_no_bound_is_not_there() -> None:
    """It is no 0 %."""
    text, _ = exposition(Metrics(), Levels(2, 5, None, 7), "m")
    assert b"cache_usage" not in text
    assert b"vllm:num_requests_running" in text
