"""SLOs as they are written: what each means, and what is said of one that means nothing."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.scenario import ScenarioError, build
from loadgen.slo import METRICS, POOLED, AllWithin, Limit, Mean, Rate, Refused, Slo, Within, parse


@pytest.mark.parametrize(
    ("text", "slo"),
    [
        ("p99(ttft) <= 500ms", Within({"ttft": Limit(0.5)}, 0.99)),
        ("p95(itl)<50ms", Within({"itl": Limit(0.05)}, 0.95)),
        ("p99.9(e2e) <= 2s", Within({"e2e": Limit(2.0)}, 0.999)),
        ("share(ttft<=500ms, tpot < 50ms) >= 90%", Within({"ttft": Limit(0.5), "tpot": Limit(0.05)}, 0.9)),
        ("max( longest_stall ) <= 1s", AllWithin("longest_stall", 1.0)),
        ("mean(normalized_latency) <= 80ms", Mean("normalized_latency", 0.08)),
        ("rejection_rate <= 1%", Refused("rejection_rate", 0.01)),
        ("error_rate < 0.1 %", Refused("error_rate", 0.001)),
        ("goodput >= 9/s", Rate("goodput", 9.0)),
        ("goodput > 90/min", Rate("goodput", 1.5)),
        ("output_tokens_per_s > 2000", Rate("output_tokens_per_s", 2000.0)),
    ],
)
def test_each_form_is_read(text: str, slo: Slo) -> None:
    """A strict sign reads as the other, spaces do not count, and percentages are the nearest floats."""
    assert parse(text) == slo


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "is no SLO: write stat(metric) <= limit"),
        ("fast", "is no SLO: write stat(metric) <= limit"),
        ("p99(tftt) <= 1s", "unknown metric 'tftt': did you mean ttft?"),
        ("p99() <= 1s", "unknown metric '': choose from ttft, e2e"),
        ("avg(ttft) <= 1s", "unknown statistic 'avg': choose from p99, mean, max, share"),
        ("rejection <= 1%", "unknown rate 'rejection': did you mean rejection_rate?"),
        ("p99(ttft) >= 1s", "p99(ttft) has an upper limit: write <="),
        ("goodput <= 9/s", "goodput has a lower limit: write >="),
        ("share(ttft<=1s) <= 90%", "share has a lower limit: write >="),
        ("p99(ttft) <= 1", "'1' is not a duration: write a number with a unit"),
        ("p99(ttft) <= 0s", "a latency's limit is above zero"),
        ("p100(ttft) <= 1s", "p100 is no percentile"),
        ("p0(ttft) <= 1s", "p0 is no percentile"),
        ("rejection_rate <= 0.01", "'0.01' is no share: write a percentage"),
        ("rejection_rate <= 101%", "'101%' is no share"),
        ("share(ttft) >= 90%", "'ttft' is no limit: write metric<=limit"),
        ("share(ttft<=1s, ttft<=2s) >= 90%", "share names a metric twice"),
        ("share(itl<=3ms) >= 90%", "itl is of gaps: write p95(itl) <= limit"),
    ],
)
def test_what_is_no_slo_is_refused_with_its_rule(text: str, rule: str) -> None:
    """What is wrong, and what was likely meant."""
    with pytest.raises(ValueError, match=re.escape(rule)):
        parse(text)


@given(st.text(max_size=40))
def test_any_text_is_an_slo_or_a_mistake(text: str) -> None:
    """Nothing else comes of it."""
    with suppress(ValueError):
        assert isinstance(parse(text), Slo)


@given(st.sampled_from(METRICS), st.integers(1, 99_999), st.integers(1, 9_999))
def test_percentiles_read_back(metric: str, thousandths: int, ms: int) -> None:
    """pNN with up to three decimals is that share, and its limit that many seconds."""
    slo = parse(f"p{thousandths / 1000:g}(({metric}) <= {ms}ms".replace("((", "("))
    assert slo == Within({metric: Limit(ms / 1000)}, float(f"{thousandths / 1000:g}e-2"))
    assert (metric in POOLED) == (metric in ("itl", "chunk_gap"))


LOAD = {"arrivals": {"kind": "poisson", "rate": 8}, "num_requests": 10}


def test_a_scenario_names_the_slo_that_is_wrong() -> None:
    """By its place, in the scenario or in a class."""
    classes = {"chat": {"weight": 1, "slos": ["p99(ttft) <= 1s", "p99(ttf) <= 1s"]}}
    with pytest.raises(ScenarioError, match=r"load\.classes\.chat\.slos\.1: unknown metric 'ttf'"):
        build({"load": LOAD | {"classes": classes}})
    with pytest.raises(ScenarioError, match=r"slos\.0: unknown rate 'goodpt': did you mean goodput\?"):
        build({"load": LOAD, "slos": ["goodpt >= 1/s"]})


def test_a_promised_goodput_needs_limits() -> None:
    """Of the class, of the load or of the scenario: any defines it for the class."""
    promised = {"chat": {"weight": 1, "slos": ["goodput >= 1/s"]}}
    limits = {"goodput": {"ttft": "1s"}}
    with pytest.raises(ScenarioError, match=r"load\.classes\.chat\.slos: goodput counts good requests"):
        build({"load": LOAD | {"classes": promised}})
    build({"load": LOAD | {"classes": promised}} | limits)
    build({"load": LOAD | {"classes": promised} | limits})
    build({"load": LOAD | {"classes": {"chat": promised["chat"] | limits}}})
