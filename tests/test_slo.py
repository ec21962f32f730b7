"""SLOs as they are written: what each means, and what is said of one that means nothing."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.scenario import ScenarioError, build
from loadgen.slo import (
    METRICS,
    POOLED,
    AllWithin,
    Limit,
    Mean,
    Rate,
    Refused,
    Slo,
    Within,
    parse,
    promises,
    ttft_limit,
)
from loadgen.slo_sets import SETS


@pytest.mark.parametrize(
    ("text", "slo"),
    [
        ("p99(ttft) <= 500ms", Within({"ttft": Limit(0.5)}, 0.99)),
        ("p95(itl)<50ms", Within({"itl": Limit(0.05)}, 0.95)),
        ("p99.9(e2e) <= 2s", Within({"e2e": Limit(2.0)}, 0.999)),
        ("share(ttft<=500ms, tpot < 50ms) >= 90%", Within({"ttft": Limit(0.5), "tpot": Limit(0.05)}, 0.9)),
        ("p99(ttft) <= 500ms + 0.2ms/token", Within({"ttft": Limit(0.5, 0.0002)}, 0.99)),
        (
            "share(ttft<=1s+1ms / token, e2e<=9s) >= 90%",
            Within({"ttft": Limit(1.0, 0.001), "e2e": Limit(9.0)}, 0.9),
        ),
        ("share(fluidity>=0.9) >= 99%", Within({"fluidity": Limit(0.9)}, 0.99)),
        (
            "share(fluidity > 90% , ttft<=1s) >= 50%",
            Within({"fluidity": Limit(0.9), "ttft": Limit(1.0)}, 0.5),
        ),
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
        ("p99(tftt) <= 1s", "unknown metric 'tftt', did you mean ttft?"),
        ("p99() <= 1s", "unknown metric '': choose from ttft, e2e"),
        ("avg(ttft) <= 1s", "unknown statistic 'avg': choose from p99, mean, max, share"),
        ("rejection <= 1%", "unknown rate 'rejection', did you mean rejection_rate?"),
        ("p99(ttft) >= 1s", "p99(ttft) has an upper limit: write <="),
        ("goodput <= 9/s", "goodput has a lower limit: write >="),
        ("share(ttft<=1s) <= 90%", "share has a lower limit: write >="),
        ("p99(ttft) <= 1", "'1' is not a duration: write a number with a unit"),
        ("p99(ttft) <= 0s", "a latency's limit is above zero"),
        ("p100(ttft) <= 1s", "p100 is no percentile"),
        ("share(ttft<=1s", "a bracket is open: in a list, quote an SLO that has a comma"),
        ("tpot<=50ms) >= 90%", "a bracket is open"),
        ("p0(ttft) <= 1s", "p0 is no percentile"),
        ("rejection_rate <= 0.01", "'0.01' is no share: write a percentage"),
        ("rejection_rate <= 101%", "'101%' is no share"),
        ("rejection_rate <= 100%", "holds whatever happens: write a limit that can be missed, such as rej"),
        ("error_rate < 100.0 %", "holds whatever happens"),
        ("share(ttft<=1s) >= 0%", "holds whatever happens: write a limit that can be missed, such as >= 90%"),
        ("goodput >= 0/s", "holds whatever happens: write a limit that can be missed, such as goodput >="),
        ("output_tokens_per_s > -1", "holds whatever happens"),
        ("share(ttft) >= 90%", "'ttft' is no limit: write metric<=limit"),
        ("share(ttft<=1s, ttft<=2s) >= 90%", "share names a metric twice"),
        ("p99(fluidity) <= 1s", "fluidity is judged by how many requests have it: write share("),
        ("share(fluidity<=0.9) >= 99%", "fluidity has a lower limit: write >="),
        ("share(fluidity>=1.1) >= 99%", "'1.1' is no fluidity: write a share of deadlines, such as 0.9"),
        ("share(fluidity>=0) >= 99%", "'0' is no fluidity"),
        ("share(fluidity>=1.2.3) >= 99%", "'1.2.3' is no share"),
        ("share(ttft>=1s) >= 99%", "ttft has an upper limit: write <="),
        (
            "p99(tpot) <= 50ms + 1ms/token",
            "'50ms + 1ms/token': only ttft has a limit that grows with the prompt",
        ),
        (
            "mean(ttft) <= 50ms + 1ms/token",
            "'50ms + 1ms/token': only ttft has a limit that grows with the prompt",
        ),
        ("p99(ttft) <= 1s + 1/token", "'1' is not a duration"),
        ("p99(ttft) <= 5/s", "'5/s' is not a duration"),
        ("goodput >= 9ms", "'9ms' is not a rate"),
        ("mlperf-llama2-70b", "is no SLO, nor the name of a set: did you mean mlperf-llama2-70b-server?"),
        ("sarati-yi-34b-strict", "did you mean sarathi-yi-34b-strict?"),
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
    with pytest.raises(ScenarioError, match=r"slos\.0: unknown rate 'goodpt', did you mean goodput\?"):
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


@given(st.integers(1, 10**7), st.integers(0, 10**6))
def test_a_limit_reads_back_as_it_is_shown(us: int, us_per_token: int) -> None:
    """With and without what a prompt's tokens add."""
    limit = Limit(us / 1e6, us_per_token / 1e6)
    assert ttft_limit(str(limit)) == limit


def test_fluidity_needs_deadlines() -> None:
    """Of every class that is promised it, of the load or of the scenario."""
    promised = {"slos": ["share(fluidity>=0.9) >= 99%"]}
    deadlines = {"fluidity": {"ttft": "500ms + 0.1ms/token", "itl": "50ms"}}
    with pytest.raises(ScenarioError, match="slos: fluidity counts deadlines that were met: say in fluidity"):
        build({"load": LOAD} | promised)
    build({"load": LOAD} | promised | deadlines)
    build({"load": LOAD | deadlines} | promised)
    build({"load": LOAD | {"classes": {"chat": {"weight": 1} | deadlines | promised}}})
    half = {"chat": {"weight": 1} | deadlines, "batch": {"weight": 1}}
    with pytest.raises(ScenarioError, match="slos: fluidity counts deadlines"):
        build({"load": LOAD | {"classes": half}} | promised)
    with pytest.raises(ScenarioError, match=r"fluidity\.itl: a deadline is at most 1h, not 2h"):
        build({"load": LOAD, "fluidity": {"ttft": "1s", "itl": "2h"}})


PUBLISHED = {  # seconds, of TTFT and TPOT each at p99
    "llama3.1-8b": ((2, 0.1), (0.5, 0.03)),
    "llama2-70b": ((2, 0.2), (0.45, 0.04)),
    "llama3.1-405b": ((6, 0.175), (4.5, 0.08)),
    "mixtral-8x7b": ((2, 0.2),),
    "deepseek-r1": ((2, 0.08), (1.5, 0.015)),
    "gpt-oss-120b": ((3, 0.08), (2, 0.02)),
}


def test_mlperf_sets_are_as_published() -> None:
    """Every model and both scenarios, each limit at p99 and 99 % confidence; a conflict is told."""
    found = {}
    for model, limits in PUBLISHED.items():
        for scenario, (ttft_s, tpot_s) in zip(("server", "interactive"), limits, strict=False):
            name = f"mlperf-{model}-{scenario}"
            found[name] = promises([name])
            assert [promise.slo for promise in found[name]] == [
                Within({"ttft": Limit(ttft_s)}, 0.99),
                Within({"tpot": Limit(tpot_s)}, 0.99),
            ]
            assert {(promise.confidence, promise.set) for promise in found[name]} == {(0.99, name)}
    assert {name for name in SETS if name.startswith("mlperf-")} == {*found}
    assert "15ms" in SETS["mlperf-gpt-oss-120b-interactive"].note


def test_papers_sets_are_as_published() -> None:
    """Five of DistServe, of both limits together; of Sarathi a strict and a relaxed one for four models."""
    distserve = {name: promises([name])[0].slo for name in SETS if name.startswith("distserve-")}
    assert distserve == {
        f"distserve-{name}": Within({"ttft": Limit(ttft_s), "tpot": Limit(tpot_s)}, 0.9)
        for name, ttft_s, tpot_s in [
            ("opt-13b-sharegpt", 0.25, 0.1),
            ("opt-66b-sharegpt", 2.5, 0.15),
            ("opt-175b-sharegpt", 4, 0.2),
            ("opt-66b-humaneval", 0.125, 0.2),
            ("opt-66b-longbench", 15, 0.15),
        ]
    }
    gaps = {"mistral-7b": (0.1, 0.5), "yi-34b": (0.2, 1), "llama2-70b": (1, 5), "falcon-180b": (1, 5)}
    sarathi = {
        f"sarathi-{model}-{name}": Limit(limit_s)
        for model, limits_s in gaps.items()
        for name, limit_s in zip(("strict", "relaxed"), limits_s, strict=True)
    }
    for name, limit in sarathi.items():
        assert [promise.slo for promise in promises([name])] == [
            Within({"itl": limit}, 0.99),
            Within({"ttft": Limit(2.0)}, 0.5),
        ]
    assert {name for name in SETS if not name.startswith("mlperf-")} == {*distserve, *sarathi}


def test_a_set_stands_among_slos_and_each_is_judged_once() -> None:
    """Named twice it is one; the same SLO on its own is another, at its own confidence."""
    texts = ["p99(ttft) <= 2000ms", "mlperf-llama2-70b-server", "mlperf-llama2-70b-server"]
    assert [(promise.text, promise.set is None, promise.confidence) for promise in promises(texts)] == [
        ("p99(ttft) <= 2000ms", True, 0.95),
        ("p99(ttft) <= 2000ms", False, 0.99),
        ("p99(tpot) <= 200ms", False, 0.99),
    ]
