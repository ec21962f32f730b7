"""The flags that shape a load."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from loadgen.cli import flags
from loadgen.laws import Fixed, Gamma, OnOff, Poisson, Ramp, Replay, TraceLength, VllmRange
from loadgen.load import Load
from loadgen.scenario import ScenarioError


def load_of(yaml: str | None = None, /, **given: Any) -> Load:
    return flags.overlay(yaml, given).load


@pytest.fixture
def on_off(tmp_path: Path) -> str:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "load:\n  arrivals: {kind: on_off, rate: 8/s, on_for: 2s, off_for: 3s}\n"
        "  num_requests: 9\n  duration: 1m\n"
    )
    return str(path)


def test_cv_is_another_way_to_say_burstiness() -> None:
    """--cv 2 is gamma of shape 1/4, as --burstiness 0.25 is."""
    by_cv, by_shape = (
        load_of(request_rate="8", num_prompts=1, **said).arrivals
        for said in ({"cv": 2.0}, {"burstiness": 0.25})
    )
    assert isinstance(by_cv, Gamma)
    assert isinstance(by_shape, Gamma)
    assert by_cv.shape == by_shape.shape == 0.25


def test_a_range_ratio_spreads_both_lengths() -> None:
    """As vLLM has it: around the lengths given, or around the defaults."""
    load = load_of(request_rate="8", num_prompts=1, input_len=100, random_range_ratio=0.5)
    assert load.prompt_tokens == VllmRange(kind="vllm_range", tokens=100, ratio=0.5)
    assert load.output_tokens == VllmRange(kind="vllm_range", tokens=128, ratio=0.5)


@pytest.mark.parametrize(
    ("stop", "over_s"), [({"duration": "30s"}, 30), ({"num_prompts": 60}, 10), ({"num_prompts": 7}, 7 / 6)]
)
def test_a_ramp_goes_from_rate_to_rate_while_the_load_lasts(stop: dict[str, Any], over_s: float) -> None:
    """2/s to 10/s are 6/s in the mean: 60 requests take 10 s."""
    ramp = {"ramp_up_strategy": "linear", "ramp_up_start_rps": 2.0, "ramp_up_end_rps": 10.0}
    law = load_of(**ramp, **stop).arrivals
    assert isinstance(law, Ramp)
    assert (law.from_rps, law.to_rps) == (2, 10)
    assert math.isclose(law.over_s, over_s, rel_tol=1e-8)


@pytest.mark.parametrize(
    ("name", "form"), [("sharegpt", "sharegpt"), ("custom", "vllm_custom"), ("burstgpt", "burstgpt")]
)
def test_a_data_set_gives_lengths_and_prompts(name: str, form: str) -> None:
    """It is the load's trace, shuffled; the instants are those of the rate."""
    load = load_of(request_rate="8", num_prompts=9, dataset_name=name, dataset_path="f.json", output_len=7)
    assert load.trace is not None
    assert (load.trace.format, load.trace.file, load.trace.order) == (form, "f.json", "shuffle")
    assert load.arrivals == Poisson(kind="poisson", rate_rps=8)
    assert (load.prompt_tokens, load.output_tokens) == (TraceLength(kind="trace"), Fixed(tokens=7))


def test_a_timed_trace_gives_the_instants_too() -> None:
    """No rate and no number is needed: it says when requests arrive, and when they end."""
    load = load_of(dataset_name="timed_trace", dataset_path="f.jsonl")
    assert isinstance(load.arrivals, Replay)
    assert load_of(
        dataset_name="timed_trace", dataset_path="f", request_rate="8", num_prompts=3
    ).arrivals == (Poisson(kind="poisson", rate_rps=8))


def test_random_is_what_there_is_without_a_data_set() -> None:
    """vLLM's --dataset-name random changes nothing."""
    assert load_of(request_rate="8", num_prompts=9, dataset_name="random") == load_of(
        request_rate="8", num_prompts=9
    )


def test_flags_keep_what_they_do_not_name(on_off: str) -> None:
    """A rate over on/off arrivals is their rate while on; a count replaces both of the file's ends."""
    load = load_of(on_off, request_rate="12", num_prompts=3)
    assert load.arrivals == OnOff(kind="on_off", rate_rps=12, on_s="2s", off_s="3s")  # type: ignore[arg-type]
    assert (load.num_requests, load.duration_s) == (3, None)
    both = load_of(on_off, num_prompts=3, duration="5s")
    assert (both.num_requests, both.duration_s) == (3, 5)


RAMP = {"ramp_up_strategy": "linear", "ramp_up_start_rps": 2.0, "ramp_up_end_rps": 10.0}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"cv": 2.0, "burstiness": 0.3, "request_rate": "8"}, "give --burstiness or --cv, not both"),
        ({"cv": 2.0, "arrival": "poisson", "request_rate": "8"}, "--cv needs --arrival gamma, not poisson"),
        ({"cv": 0.0, "request_rate": "8", "num_prompts": 1}, "--cv: must be at least 0.001"),
        ({"ramp_up_strategy": "linear"}, "--ramp-up-start-rps, --ramp-up-end-rps: a ramp needs "),
        (RAMP | {"ramp_up_strategy": "exponential"}, "--ramp-up-strategy: must be linear"),
        (RAMP | {"request_rate": "8"}, "--request-rate cannot stand beside a ramp"),
        (RAMP, "a ramp needs --duration or --num-prompts"),
        (RAMP | {"ramp_up_end_rps": -1.0, "num_prompts": 3}, "--ramp-up-end-rps: must be above zero"),
        ({"dataset_name": "sonnet"}, "--dataset-name: sonnet must be random or one of sharegpt, "),
        ({"dataset_path": "f"}, "--dataset-name: it must be random or one of sharegpt, "),
        ({"dataset_name": "sharegpt"}, "--dataset-name sharegpt needs --dataset-path FILE"),
        (
            {"dataset_name": "sharegpt", "dataset_path": "f", "num_prompts": 9},
            "say when requests arrive: give --request-rate",
        ),
        (
            {"request_rate": "8", "num_prompts": 1, "random_range_ratio": 1.5},
            "--random-range-ratio: must be below 1",
        ),
        (
            {"dataset_name": "sharegpt", "dataset_path": "f", "request_rate": "8", "random_range_ratio": 0.5},
            "--random-range-ratio spreads fixed lengths: give --input-len too",
        ),
    ],
)
def test_what_flags_cannot_say_together_is_told_in_flags(given: dict[str, Any], told: str) -> None:
    """Each mistake is told with the flag that makes it."""
    with pytest.raises(ScenarioError) as found:
        load_of(**given)
    assert str(found.value).startswith(told)


def test_a_rate_over_arrivals_without_one_is_refused(tmp_path: Path) -> None:
    """A ramp has two rates: which is meant?"""
    path = tmp_path / "ramp.yaml"
    path.write_text("load:\n  arrivals: {kind: ramp, from: 1/s, to: 9/s, over: 9s}\n  duration: 9s\n")
    with pytest.raises(ScenarioError, match="--request-rate: ramp arrivals have no such rate"):
        load_of(str(path), request_rate="8")
    assert load_of(str(path), request_rate="8", arrival="constant").arrivals is not None
