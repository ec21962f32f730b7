"""A Summary as OpenMetrics text, read by others' parsers."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest
from prometheus_client import parser as prometheus
from prometheus_client.openmetrics import parser as openmetrics

from loadgen.export.openmetrics import text
from loadgen.records import Outcome, RequestRecord
from loadgen.stats import summarize
from tests.records import SCENARIO, failed, ok, run_of

ROWS = [ok(i, i * 0.5, ttft_s=0.1 * (i + 1)) for i in range(9)] + [failed(9, 4.5, Outcome.REJECTED)]


def exposed(rows: list[RequestRecord] = ROWS, **changes: Any) -> str:
    return text(summarize(run_of(rows, **changes)))


def read(said: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Every sample, by its name and its labels less those that all have."""
    return {
        (
            s.name,
            frozenset((k, v) for k, v in s.labels.items() if k not in ("run", "source", "plan")),
        ): s.value
        for family in openmetrics.text_string_to_metric_families(said)
        for s in family.samples
    }


def test_figures_are_under_names_with_units() -> None:
    """9 of 10 answered, one refused in a window of 10 s; the median of 0.1 to 0.9 s is 0.5 s."""
    found = read(exposed())
    no_labels: frozenset[tuple[str, str]] = frozenset()
    assert found["loadgen_requests", frozenset({("outcome", "ok")})] == 9
    assert found["loadgen_requests", frozenset({("outcome", "rejected")})] == 1
    assert found["loadgen_offered_requests", no_labels] == 10
    assert found["loadgen_offered_requests_per_second", no_labels] == 1.0
    assert found["loadgen_rejection_ratio", no_labels] == pytest.approx(0.1)
    median = frozenset({("quantile", "0.5"), ("kind", "plain")})
    assert found["loadgen_ttft_seconds", median] == pytest.approx(0.5)
    assert found["loadgen_ttft_mean_seconds", no_labels] == pytest.approx(0.5)
    assert found["loadgen_ttft_samples", no_labels] == 9
    assert found["loadgen_output_tokens_mean", no_labels] == 4


def test_a_percentile_that_never_came_is_infinite_so_that_alarms_ring() -> None:
    """One of ten failed: 99 % of the offered never had a first token; of those that did, it was 0.892 s."""
    found = read(exposed())
    p99 = {kind: frozenset({("quantile", "0.99"), ("kind", kind)}) for kind in ("plain", "adjusted")}
    assert found["loadgen_ttft_seconds", p99["adjusted"]] == inf
    assert found["loadgen_ttft_seconds", p99["plain"]] == pytest.approx(0.892)


def test_what_is_not_defined_is_left_out() -> None:
    """A burst has no rate, and without SLOs there is no verdict; nothing reads as 0 instead."""
    names = {name for name, _ in read(exposed(window_by="burst"))}
    assert "loadgen_offered_requests" in names
    assert not {n for n in names if "verdict" in n or n.endswith("d_requests_per_second")}


def test_every_sample_says_where_it_comes_from() -> None:
    """A simulated figure never looks measured; the plan's digest tells runs of other loads apart."""
    said = exposed(source="virtual", name="chat", plan_digest="ab" * 32)
    for family in openmetrics.text_string_to_metric_families(said):
        for sample in family.samples:
            whose = [sample.labels[key] for key in ("run", "source", "plan")]
            assert whose == ["chat", "virtual", "abababababab"]


def test_verdicts_are_states() -> None:
    """One of each SLO's four is 1; and of the whole."""
    scenario = SCENARIO | {"slos": ["max(ttft) <= 5s", "max(ttft) <= 1ms"]}
    found = read(exposed(scenario=scenario))
    states = {
        (dict(labels)["slo"], dict(labels)["verdict"]): value
        for (name, labels), value in found.items()
        if name == "loadgen_slo_verdict"
    }
    assert len(states) == 8
    assert sum(states.values()) == 2
    assert states["max(ttft) <= 1ms", "FAIL"] == 1
    assert found["loadgen_verdict", frozenset({("verdict", "FAIL")})] == 1


def test_the_older_text_format_has_it_too() -> None:
    """The Pushgateway reads that one alone, and knows no info and no state set: all are gauges."""
    said = exposed(scenario=SCENARIO | {"slos": ["max(ttft) <= 5s"]})
    families = list(prometheus.text_string_to_metric_families(said))
    assert {family.type for family in families} == {"gauge"}
    assert said.endswith("\n# EOF\n")
    assert sum(len(family.samples) for family in families) == len(read(said))


def test_hostile_names_break_no_line() -> None:
    """Quotes and line ends of a server's model name stay inside their label, escapes do not."""
    said = exposed(model='a"} 1\n# EOF\n\x1b[2J\\')
    [model] = [dict(labels)["model"] for name, labels in read(said) if name == "loadgen_run_info"]
    assert model == 'a"} 1 # EOF \\'
    assert said.count("\n# EOF") == 1


def test_a_run_without_an_answer_is_exposed() -> None:
    """All failed: no latency, no crash."""
    found = read(exposed([failed(0)]))
    assert found["loadgen_error_ratio", frozenset()] == 1
    assert "loadgen_ttft_mean_seconds" not in {name for name, _ in found}
