"""Loads that others' tools took and then stumbled over: each is refused when it is read."""

from __future__ import annotations

import pytest

from loadgen.scenario import ScenarioError, parse


def refused(text: str) -> str:
    with pytest.raises(ScenarioError) as found:
        parse(text, "f.yaml")
    return str(found.value)


def test_a_file_that_holds_nothing_is_told_what_it_needs() -> None:
    """A file that can be read but asks for nothing is not valid: it is told of a load and a target."""
    assert "target" in refused("{}\n")
    assert "load" in refused("{}\n")


@pytest.mark.parametrize("keys", ["rate: 0", "rate: -1", "rate: nan", "rate: .nan", "rate: 8, burstiness: 0"])
def test_a_rate_that_is_none_is_refused(keys: str) -> None:
    """Before anything is drawn, with the key that is wrong."""
    key = "burstiness" if "burstiness" in keys else "rate"
    said = refused(f"load: {{arrivals: {{kind: gamma, {keys}}}, num_requests: 3}}")
    assert said.startswith(f"f.yaml:1: load.arrivals.{key}: ")


@pytest.mark.parametrize("kind", ["kind: shared", "kind: groups, groups: 2"])
def test_a_prefix_longer_than_any_prompt_is_refused(kind: str) -> None:
    """As a prompt of that length is."""
    keys = f"prompts: {{prefix: {{{kind}, tokens: 2147483647}}}}"
    said = refused(f"load: {{arrivals: {{kind: poisson, rate: 8}}, num_requests: 3, {keys}}}")
    assert said.startswith("f.yaml:1: load.prompts.prefix.tokens: a prompt has at most 16,000,000 tokens")


def test_turns_that_are_a_length_of_a_trace_are_refused() -> None:
    """A trace tells turns by its sessions."""
    keys = "num_sessions: 3, sessions: {turns: {kind: trace}}"
    assert "turns are no length of a trace" in refused(
        f"load: {{arrivals: {{kind: poisson, rate: 8}}, {keys}}}"
    )


@pytest.mark.parametrize(
    ("load", "said"),
    [
        (
            "arrivals: {kind: steps, points: []}, num_requests: 3",
            "load.arrivals.points: must hold at least 1",
        ),
        (
            "arrivals: {kind: poisson, rate: 8}, num_requests: 3, output_tokens: 16000001",
            "load.output_tokens: an answer has at most 16,000,000 tokens, not 16,000,001",
        ),
        (
            "arrivals: {kind: poisson, rate: 8}, trace: {format: csv, file: a.csv, columns: {foo: t}}",
            "load.trace.columns.foo: unknown value 'foo': choose from 'due', 'prompt_tokens'",
        ),
    ],
)
def test_too_little_too_much_and_the_wrong_name_are_told_in_words(load: str, said: str) -> None:
    """What is wrong, and what would be right."""
    assert refused(f"load: {{{load}}}").startswith(f"f.yaml:1: {said}")


def test_a_trace_that_says_when_is_replayed_unless_the_load_says_otherwise() -> None:
    """What it gives is taken from it; of a corpus without instants, one must say when requests arrive."""
    alone = parse("load: {trace: {format: azure, file: a.csv}}", "f.yaml").load
    assert alone.arrivals is not None
    assert alone.arrivals.kind == "trace"
    beside = parse(
        "load: {trace: {format: azure, file: a.csv}, arrivals: {kind: poisson, rate: 8}, num_requests: 9}",
        "f",
    )
    assert beside.load.arrivals is not None
    assert beside.load.arrivals.kind == "poisson"
    assert "say when requests arrive" in refused("load: {trace: {format: sharegpt, file: a.json}}")
