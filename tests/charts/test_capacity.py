"""Pictures of a search for capacity: every load a mark by its verdict; what was not found is not drawn."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from msgspec.structs import replace

from loadgen.capacity import Capacity
from loadgen.charts.capacity import SERIES, SHAPES, curve, latency, share
from loadgen.charts.picture import rows, svg
from loadgen.probe import Probe
from loadgen.report import capacity_view
from loadgen.stats.summary import SloResult, Verdict


def slo(text: str) -> SloResult:
    return SloResult(
        slo=text, verdict="PASS", reason="", value=None, low=None, high=None, n=0, n_effective=None,
        n_to_decide=None,
    )  # fmt: skip


def probe(load: float, verdict: Verdict, text: str = "p99(ttft) <= 500ms", **figures: Any) -> Probe:
    said: dict[str, Any] = {"served_rps": load, "requests": 100} | figures
    return Probe(load=load, folders=["one"], verdict=verdict, limiting=text, slos=[slo(text)], **said)


def found(*probes: Probe, limiting: str = "p99(ttft) <= 500ms", **changes: Any) -> Capacity:
    whole: dict[str, Any] = {
        "name": "chat",
        "source": "virtual",
        "over": "rate",
        "unit": "requests/s",
        "slos": [limiting],
        "limiting": limiting,
        "resolution": 0.02,
        "answer": "BOUNDED",
        "load": 5.0,
        "low": 4.0,
        "high": 8.0,
        "knee": 4.0,
        "probes": [*probes],
    }
    return Capacity(**whole | changes)


PROBES = (
    probe(2, "PASS", ttft_p99_s=0.1),
    probe(4, "PASS", ttft_p99_s=0.2),
    probe(8, "FAIL", ttft_p99_s=3.0, served_rps=5.0),
)


def test_each_load_is_a_mark_at_its_latency() -> None:
    """With its verdict; the limit is a line, the answer a rule within a band."""
    picture = latency(found(*PROBES))
    marks = [(row["load"], row["value"], row["verdict"]) for row in rows(picture.data["by_load"])]
    assert marks == [(2, 0.1, "PASS"), (4, 0.2, "PASS"), (8, 3, "FAIL")]
    assert rows(picture.data["limit"]) == [{"value": 0.5, "label": "p99(ttft) <= 500ms"}]
    assert rows(picture.data["bounds"]) == [{"low": 4, "high": 8}]
    assert picture.data["answers"]["label"] == ["capacity 5", "knee 4"]
    assert picture.title == "TTFT p99 by load (SIMULATED)"
    assert picture.says == "BOUNDED: capacity 5 requests/s, in [4, 8]. TTFT p99: 100 ms to 3.00 s."


def test_what_never_came_stands_above_all_that_did() -> None:
    """A p99 of a load where too many failed; it is no figure, and said to be none."""
    picture = latency(found(*PROBES, probe(16, "FAIL", ttft_p99_s=None)))
    late = rows(picture.data["by_load"])[-1]
    assert late["said"] == "∞"
    assert float(late["value"] or 0) > 3
    assert "At 1 of 4 loads, those at the top, it is infinitely late." in picture.says


@pytest.mark.parametrize(
    ("text", "field", "title", "limit_s"),
    [
        ("share(ttft<=500ms, tpot<=50ms) >= 95%", "ttft_p99_s", "TTFT p99", None),
        ("p99(ttft) <= 500ms", "ttft_p99_s", "TTFT p99", 0.5),
        ("p90(ttft) <= 500ms", "ttft_p99_s", "TTFT p99", None),
        ("mean(itl) <= 40ms", "itl_p99_s", "ITL p99", None),
        ("max(e2e) <= 9s", "e2e_p99_s", "E2E p99", None),
        ("p99(tpot) <= 40ms", "e2e_p99_s", "E2E p99", None),
        ("rejection_rate <= 1%", "e2e_p99_s", "E2E p99", None),
    ],
)
def test_the_metric_that_limits_is_drawn_with_a_limit_of_its_p99(
    text: str, field: str, title: str, limit_s: float | None
) -> None:
    """A limit of another metric, or of another statistic, stands in no picture of a p99."""
    picture = latency(found(probe(2, "PASS", text, **{field: 0.3}), limiting=text))
    assert picture.title.startswith(title)
    assert picture.data["by_load"]["value"] == [0.3]
    assert picture.data["limit"]["value"] == ([] if limit_s is None else [limit_s])


def judged(load: float, share_within: float, verdict: Verdict) -> Probe:
    text = "p90(ttft) <= 500ms"
    result = replace(slo(text), value=share_within, low=share_within - 0.1, high=1.0, n=1000)
    return replace(probe(load, verdict, text, ttft_p99_s=0.9), slos=[result])


P90 = found(
    judged(2, 1.0, "PASS"), judged(4, 0.95, "PASS"), judged(8, 0.6, "FAIL"), limiting="p90(ttft) <= 500ms"
)


def test_a_share_is_drawn_against_what_is_promised() -> None:
    """By load, in its bounds: 100, 95 and 60 % against the 90 % of a p90."""
    picture = share(P90)
    assert picture is not None
    assert picture.data["share"]["value"] == [1, 0.95, 0.6]
    assert picture.data["share_bounds"]["low"] == pytest.approx([0.9, 0.85, 0.5])
    assert picture.data["promised"] == {"value": [0.9], "label": ["promised: 90 %"]}
    assert "100 % at 2 and 60.0 % at 8 requests/s" in picture.says
    assert share(found(*PROBES, limiting="mean(ttft) <= 1s")) is None


def test_in_letters_the_share_crosses_what_is_promised_at_the_capacity() -> None:
    """The line is the 90 %: P above it, F below, at 2, 4 and 8 from left to right on a log axis."""
    lines = capacity_view.picture(P90, 72)
    plot = [line.partition("|")[2] for line in lines if "|" in line]
    rule = next(i for i, line in enumerate(plot) if "-" in line)
    above, below = "".join(plot[: rule + 1]), "".join(plot[rule + 1 :])
    assert (above.count("P"), above.count("F"), below.count("P"), below.count("F")) == (2, 0, 0, 1)
    width = 72 - 12
    assert [line.index(mark) for line in plot for mark in "F" if mark in line] == [width - 1]
    assert plot[rule].count("-") >= width - 2
    assert "90 %, promised" in lines[-2]


@pytest.mark.parametrize("draw", [share, latency, curve])
def test_a_load_that_could_not_be_measured_is_not_late(draw: Any) -> None:
    """It stands at the foot, in words too, and has no figure: not even an infinite one."""
    lost = Probe(load=9, folders=["x"], verdict="INVALID", reason="the client was late")
    picture = draw(found(*P90.probes, lost, limiting="p90(ttft) <= 500ms"))
    assert rows(picture.data["unmeasured"]) == [
        {"load": 9, "verdict": "INVALID", "why": "the client was late"}
    ]
    assert "Not measured: 1 of 4 loads, marked at the foot." in picture.says
    assert "infinitely late" not in picture.says
    figures = next(rows(data) for data in picture.data.values() if "value" in data and "said" in data)
    assert [row["value"] for row in figures if row["load"] == 9] == [None]
    assert "var(--" not in svg(picture)


def test_a_server_keeps_up_on_the_line_of_all_that_was_sent() -> None:
    """It serves what is sent at 2 and 4, and 5 of 8; users are no rate, and have no such line."""
    picture = curve(found(*PROBES))
    assert picture.data["served"]["value"] == [2, 4, 5]
    assert picture.data["keeping_up"]["load"] == picture.data["keeping_up"]["value"] != []
    assert picture.data["keeping_up"]["load"][-1] == pytest.approx(8.4)
    assert not curve(found(*PROBES, unit="users")).data["keeping_up"]["load"]


def test_loads_that_go_far_apart_are_drawn_by_their_logarithm() -> None:
    """From 1 to 100; from 2 to 8 they are not."""
    wide = found(probe(1, "PASS", ttft_p99_s=0.1), probe(100, "FAIL", ttft_p99_s=0.2))
    assert '"type": "log"' in str(curve(wide).spec).replace("'", '"')
    assert '"type": "log"' not in str(curve(found(*PROBES)).spec).replace("'", '"')


def test_every_verdict_has_its_own_ink_and_shape() -> None:
    """So that they can be told apart without seeing colours."""
    verdicts = {*get_args(Verdict)}
    assert SERIES.keys() == SHAPES.keys() == verdicts
    assert len({*SHAPES.values()}) == len({*SERIES.values()}) == len(verdicts)


@pytest.mark.parametrize("draw", [latency, curve])
@pytest.mark.parametrize(
    "capacity",
    [
        found(*PROBES),
        found(probe(2, "INVALID"), load=None, low=None, high=None, knee=None),
        found(load=None, low=None, high=None, knee=None, source=None, limiting=""),
    ],
    ids=["bounded", "one that cannot be trusted", "none"],
)
def test_every_picture_can_be_drawn(draw: Any, capacity: Capacity) -> None:
    """Whatever was found; without a load it says so."""
    picture = draw(capacity)
    assert "var(--" not in svg(picture)
    assert ("no load was measured" in picture.says) == (not capacity.probes)
