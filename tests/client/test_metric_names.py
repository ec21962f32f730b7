"""What servers call their figures, against what they answered or their sources say."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadgen.client.metric_names import SERVERS, NotMetricsError, read
from loadgen.server_log import COUNTERS, GAUGES

EXPOSITIONS = Path(__file__).parent / "expositions"


def text_of(name: str) -> str:
    return (EXPOSITIONS / f"{name}.txt").read_text()


def test_vllm_as_it_answered() -> None:
    """Sums over reasons and engines; ends that are no success are left out."""
    found = read(text_of("vllm"))
    assert found.kind == "vLLM"
    assert found.values == {
        "running": 0,
        "waiting": 0,
        "kv_share": 0,
        "preemptions": 0,
        "prompt_tokens": 33,
        "output_tokens": 71,
        "succeeded": 11,
        "aborted": 0,
        "rejected": 0,
        "prefix_queries": 33,
        "prefix_hits": 0,
        "queue_s_sum": pytest.approx(0.000272071),
        "queue_s_count": 11,
        "step_tokens_sum": 104,
        "step_tokens_count": 69,
        "ttft_s_sum": pytest.approx(0.129486799),
        "ttft_s_count": 11,
    }


def test_what_is_nobodys_figure_is_kept_raw_without_buckets_and_dates() -> None:
    """By its name with labels, as Prometheus writes it."""
    raw = read(text_of("vllm")).raw
    assert raw["process_cpu_seconds_total"] == 7.18
    waiting = 'vllm:num_requests_waiting_by_reason{engine="0",model_name="tiny-llama",reason="capacity"}'
    assert raw[waiting] == 0
    assert not [name for name in raw if "_bucket" in name or "_created" in name]


def test_llama_cpp_as_it_answered() -> None:
    """Its count of prompts leaves out what was cached: with it, both prompts of 29 tokens are there."""
    found = read(text_of("llama-cpp"))
    assert found.kind == "llama.cpp"
    assert found.values == {
        "running": 0,
        "waiting": 0,
        "prompt_tokens": 58,
        "output_tokens": 32,
        "prefix_queries": 58,
        "prefix_hits": 28,
    }


def test_sglang_as_it_is_documented() -> None:
    """Numbers with an exponent; what it does not have there is absent, not 0."""
    found = read(text_of("sglang"))
    assert found.kind == "SGLang"
    assert found.values == {
        "running": 162,
        "waiting": 2826,
        "kv_share": 0.28,
        "prompt_tokens": 8_128_902,
        "output_tokens": 7_557_572,
        "prefix_queries": 8_128_902,
        "ttft_s_sum": pytest.approx(2_351_897.947),
        "ttft_s_count": 11_008,
    }


def test_triton_as_it_is_documented() -> None:
    """One name, told apart by a label; the share of blocks is used over max."""
    found = read(text_of("triton"))
    assert found.kind == "Triton"
    assert found.values == {
        "running": 1,
        "waiting": 0,
        "kv_share": pytest.approx(1 / 6239),
        "succeeded": 0,
    }


@pytest.mark.parametrize(
    ("server", "fixture"), [("TGI", "tgi"), ("TensorRT-LLM", "tensorrt-llm"), ("SGLang", "sglang")]
)
def test_every_name_is_one_that_the_source_creates(server: str, fixture: str) -> None:
    """A counter may have `_total`, and a histogram has a sum and a count: no name of ours is made up."""
    there: set[str] = set()
    for line in text_of(f"{fixture}-names").splitlines():
        if not line.startswith("#"):
            name, kind = line.split()
            name = name.replace(":", "_").removesuffix("_total")
            there |= {f"{name}_sum", f"{name}_count"} if kind == "histogram" else {name}
    names = next(one for one in SERVERS if one.server == server)
    assert names.known <= there


def test_every_figure_is_one_that_has_a_meaning() -> None:
    """No table names a figure that nobody reads."""
    assert {figure for names in SERVERS for figure in names.of} <= {*GAUGES, *COUNTERS}


def test_several_engines_are_summed_and_of_shares_the_largest_counts() -> None:
    """Two engines behind one address; of the parts of one tensor-parallel engine the first alone counts."""
    found = read(
        'vllm:num_requests_running{engine="0"} 3\nvllm:num_requests_running{engine="1"} 4\n'
        'vllm:kv_cache_usage_perc{engine="0"} 0.2\nvllm:kv_cache_usage_perc{engine="1"} 0.9\n'
    )
    assert found.values == {"running": 7, "kv_share": 0.9}
    found = read(
        'sglang:num_running_reqs{tp_rank="0",dp_rank="0"} 3\n'
        'sglang:num_running_reqs{tp_rank="1",dp_rank="0"} 3\n'
        'sglang:num_running_reqs{tp_rank="0",dp_rank="1"} 5\n'
    )
    assert found.values == {"running": 8}


def test_a_gateways_own_metrics_beside_an_engines_do_not_hide_it() -> None:
    """The server is the one most of whose figures are there."""
    found = read("llamacpp:requests_processing 1\n" + text_of("sglang"))
    assert found.kind == "SGLang"
    assert found.raw["llamacpp:requests_processing"] == 1


def test_metrics_of_a_stranger_are_kept_raw() -> None:
    """No figure is guessed."""
    found = read("# TYPE jobs gauge\njobs 4\nodd NaN\n")
    assert (found.kind, found.values, found.raw) == (None, {}, {"jobs": 4})


def test_the_iterations_that_tensorrt_llm_tells_as_json_are_read() -> None:
    """The last of them; an idle server tells of none."""
    told = '[{"numActiveRequests": 9}, {"numActiveRequests": 2, "numQueuedRequests": 3, '
    found = read(told + '"kvCacheStats": {"usedNumBlocks": 25, "maxNumBlocks": 100}}]')
    assert found.kind == "TensorRT-LLM"
    assert found.values == {"running": 2, "waiting": 3, "kv_share": 0.25}
    assert read("[]").values == {}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("<!doctype html><title>Grafana</title>", "HTML"),
        ('{"status": "ok"}', "JSON"),
        ('[{"id": 1}]', "JSON"),
        ("{", "JSON"),
        ("", "no sample"),
        ("# HELP only words\n", "no sample"),
        ("OK, all is well\n", "no Prometheus text"),
    ],
)
def test_what_is_none_is_said_to_be_none(text: str, why: str) -> None:
    """In a few words of what it is."""
    with pytest.raises(NotMetricsError, match=why):
        read(text)


@pytest.mark.parametrize(
    "text",
    [
        "[1]",
        '[{"numActiveRequests":"x"}]',
        '[{"numActiveRequests":1,"kvCacheStats":7}]',
        '[{"numActiveRequests":1,"kvCacheStats":{"maxNumBlocks":"a"}}]',
        '[{"numActiveRequests":1e999}]',
        '[{"numActiveRequests":' + "9" * 5000 + "}]",
        "[" * 100_000,
        '[{"numActiveRequests":1,"x":' + "[" * 100_000,
        '{"a":1}',
        "[{}]",
    ],
)
def test_odd_json_is_no_metrics(text: str) -> None:
    """Whatever it holds, it ends in one way."""
    with pytest.raises(NotMetricsError):
        read(text)
