"""A calibration in words."""

from __future__ import annotations

import io

import msgspec
import pytest
from rich.console import Console

from loadgen.calibrate import Calibration, Rung, concluded
from loadgen.report import calibration_view as view
from loadgen.report.terminal import print_calibration
from loadgen.stats.truth import Spread
from tests.calibrations import accuracy, rung

NOTHING = Spread(p50=None, p99=None, max=None)
ONE_TOKEN = msgspec.structs.replace(accuracy(50), gap_us=NOTHING)
BOTH = (
    rung(20_000, ttft=20),
    rung(40_000, ttft=30),
    rung(60_000, limit="client", findings=["1 % of requests were sent 3ms or more after due"]),
    rung(5000, of="requests", accuracy=ONE_TOKEN),
)


def calibration(*rungs: Rung, load_average: float | None = 0.1) -> Calibration:
    return msgspec.structs.replace(concluded(list(rungs or BOTH), load_average), cpus=2)


def printed(found: Calibration, width: int = 100) -> str:
    out = io.StringIO()
    print_calibration(found, Console(file=out, width=width, highlight=False))
    return out.getvalue()


def test_the_conclusion_says_what_one_process_can_do_and_how_well() -> None:
    """Both ceilings, what was too much or that none was, the clock, and the error at the top and half-way."""
    first, events, _ = view.conclusion(calibration())
    assert first == (
        "On this machine one process holds 40,000 token events/s, not 60,000, and at least 5,000 requests/s, "
        "by our own clock, in user space."
    )
    assert events == (
        "At 40,000 token events/s a TTFT is off by 30.0 us (p50), 300 us (p99), "
        "a gap by 20.0 us (p50), 200 us (p99); at 20,000 a TTFT by 20.0 us (p50), 200 us (p99)."
    )


def test_a_machine_on_which_nothing_held_is_told_so() -> None:
    """No ceiling is made up."""
    (said,) = view.conclusion(calibration(rung(1000, limit="client")))
    assert "Not even the lowest rate, 1,000 token events/s, could" in said


@pytest.mark.parametrize("limit", ["server", "others"])
def test_a_climb_that_the_client_did_not_end_says_so(limit: str) -> None:
    """Higher rates were not tried, and the client may do more."""
    said = view.conclusion(calibration(rung(20_000), rung(40_000, limit=limit)))
    assert "holds at least 20,000 token events/s" in said[0]
    assert said[-1] == (
        "The climb ended at 40,000 token events/s since the server it runs against, or other work, gave out: "
        "higher rates were not tried."
    )
    assert "climb" not in " ".join(view.conclusion(calibration()))


def test_a_lower_calibration_is_told_from_the_one_before() -> None:
    """By more than chance; a ceiling that is gone is lower, too."""
    before = msgspec.structs.replace(calibration(), taken_at="2026-03-04T05:06:07+00:00")
    assert list(view.lowered(calibration(rung(39_500), BOTH[3]), before)) == []
    (said,) = view.lowered(calibration(rung(30_000)), before)
    assert "2026-03-04, which this one replaces: 30,000 token events/s, not 40,000 and no requests/s," in said


def test_a_busy_machine_is_named() -> None:
    """A calibration taken beside other work is worse than it need be; on an idle one nothing is said."""
    assert "load average 3.0 on 2 cores" in view.conclusion(calibration(load_average=3.0))[-1]
    for idle in (0.9, None):
        assert "load average" not in " ".join(view.conclusion(calibration(load_average=idle)))


def test_each_rate_is_a_line_as_it_ends() -> None:
    """Whether it held, whose limit it was, how far off the client was."""
    assert view.line(BOTH[1]) == (
        "40,000 token events/s: held; TTFT off by 30.0 / 300, a gap by 20.0 / 200 us"
    )
    assert "did not hold, the client was the limit;" in view.line(BOTH[2])
    assert view.line(BOTH[3]) == "5,000 requests/s: held; TTFT off by 50.0 / 500 us"


@pytest.mark.parametrize("width", [60, 80, 120])
def test_tables_fit_the_page_and_keep_what_matters(width: int) -> None:
    """A table for each ladder: rate, TTFT and limit on any page, and why a rung did not hold."""
    shown = printed(calibration(), width)
    assert max(map(len, shown.splitlines())) <= width
    assert shown.count("reached") == 2
    assert "client" in shown
    assert "60,000/s: 1 % of requests were sent" in shown
    assert shown.count("asked /s") == 2


def test_columns_left_out_are_told_apart() -> None:
    """Their heads hold commas."""
    assert "us; late at server, us." in printed(calibration(), 80)


def test_requests_of_one_token_have_no_gaps() -> None:
    """Nor a column for them."""
    events, requests = view.tables(calibration())
    assert "gap off, us" in [column.head for column in events.columns]
    assert "gap off, us" not in [column.head for column in requests.columns]
