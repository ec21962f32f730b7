"""All pictures of a run."""

from __future__ import annotations

import json

import pytest

from loadgen.charts import of_run
from loadgen.charts.of_run import pictures
from loadgen.charts.picture import svg
from loadgen.records import Outcome, RequestRecord
from loadgen.stats import summarize
from tests.charts.drawn import any_run, is_whole
from tests.engine.iterations import BASELINE
from tests.records import failed, ok, run_of

NAMES = ["latencies", "outcomes-over-time", "in-flight", "ttft-by-due", "gaps", "waterfall"]

KINDS = {
    "one": [ok()],
    "one token": [ok(gaps_us=())],
    "one failed": [failed(due_s=1.0)],
    "all failed": [failed(i, i * 0.1) for i in range(30)],
    "none sent": [
        failed(i, i * 0.1, Outcome.UNSENT, started_s=None, sent_s=None, ended_s=None) for i in range(5)
    ],
    "all alike": [ok(i, i * 0.1) for i in range(40)],
    "in no time": [ok(i, i * 0.1, ttft_s=0.0, gaps_us=(0, 0)) for i in range(5)],
    "sessions": [ok(i, i * 0.1, session=f"s{i % 3}", turn=1 + i // 3) for i in range(9)],
}


@pytest.mark.parametrize("rows", KINDS.values(), ids=KINDS)
def test_every_kind_of_run_can_be_drawn(rows: list[RequestRecord]) -> None:
    """One request, none answered, all alike, no time at all: what is drawn is whole."""
    run = run_of(rows)
    assert all(is_whole(picture) for picture in pictures(run, summarize(run)))


def test_a_run_of_everything_is_drawn_in_order() -> None:
    """Each of the six pictures once, in the order of a page."""
    run = any_run(1)
    found = pictures(run, summarize(run))
    assert [picture.name for picture in found] == NAMES
    assert all(map(is_whole, found))
    assert all(svg(picture, 340).startswith("<svg") for picture in found)


def test_what_has_nothing_to_show_is_left_out() -> None:
    """No picture of no request; no curve and no gap of requests that all failed."""
    nothing, bad = run_of([]), run_of([failed()])
    assert pictures(nothing, summarize(nothing)) == []
    assert [picture.name for picture in pictures(bad, summarize(bad))] == NAMES[1:4] + NAMES[5:]


def test_a_burst_and_a_closed_loop_have_pictures_too() -> None:
    """Neither has a window by its load: a burst has no rule for one."""
    burst = run_of([ok(i, 0.0, ttft_s=0.1 * (i + 1)) for i in range(20)], window_by="burst")
    closed = run_of(
        [ok(i, i * 0.2) for i in range(20)],
        scenario={"load": {"arrivals": {"kind": "closed", "concurrency": 2}, "num_requests": 20}},
        window_by="count",
    )
    drawn = pictures(burst, summarize(burst))
    assert all("window" not in picture.data for picture in drawn)
    assert all(map(is_whole, [*drawn, *pictures(closed, summarize(closed))]))


def test_a_simulated_run_says_so_in_every_picture() -> None:
    """A picture may stand alone in somebody's slides."""
    run = any_run(2, source="virtual")
    assert all("SIMULATED" in picture.title for picture in pictures(run, summarize(run)))
    measured = any_run(2)
    assert not any("SIMULATED" in picture.title for picture in pictures(measured, summarize(measured)))


def test_a_run_that_cannot_be_trusted_says_so_in_every_picture() -> None:
    """Every request left a second late: the summary is INVALID, and so is each picture."""
    run = run_of([ok(i, i * 0.1, ttft_s=1.5, started_s=i * 0.1 + 1) for i in range(50)])
    summary = summarize(run)
    assert summary.validity == "INVALID"
    assert all(picture.title.endswith(", INVALID") for picture in pictures(run, summary))


def test_a_trace_that_is_too_long_is_drawn_in_part_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """In each picture of the engine, with how far it goes; of all its steps nothing is said."""
    monkeypatch.setattr(of_run, "MOST_STEPS", 3)
    run, trace = any_run(3, source="virtual"), [*BASELINE]
    found = {picture.name: picture.says for picture in pictures(run, summarize(run), trace)}
    said = "Of the engine only the first 3 steps are drawn, up to 3.00 s."
    assert {name for name, says in found.items() if said in says} == {"in-flight", "slots", "tokens", "kv"}
    whole = pictures(run, summarize(run), trace[:3])
    assert not any("only the first" in picture.says for picture in whole)


def test_a_hostile_request_id_is_harmless() -> None:
    """Neither an escape sequence nor a mark that turns the direction of text reaches a picture."""
    run = run_of([ok(request_id="\x1b[31mred‮evil\x00")])
    drawn = repr([(p.says, p.data, p.table) for p in pictures(run, summarize(run))])
    assert "redevil" in drawn
    assert not {r"\x1b", r"\u202e", r"\x00"} & {drawn[i : i + n] for n in (4, 6) for i in range(len(drawn))}


def test_data_stay_small() -> None:
    """2,000 requests of 100 gaps each take less than 350 kB in all."""
    rows = [ok(i, i * 0.01, ttft_s=0.1 + i * 1e-4, gaps_us=[9_000 + i] * 100) for i in range(2000)]
    run = run_of(rows)
    data = {name: columns for p in pictures(run, summarize(run)) for name, columns in p.data.items()}
    assert len(json.dumps(data, separators=(",", ":"))) < 350_000
