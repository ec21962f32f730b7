"""Can the measurement be trusted? Each finding, at its limit and past it."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from loadgen.health import Health
from loadgen.records import NEVER_FILLED, OVERTAKEN, Outcome
from loadgen.run import Run
from loadgen.stats import Finding, summarize
from loadgen.stats.certificate import certify
from tests.records import failed, ok, run_of

CALM = Health(loop_stall_mean_s=1e-4, loop_stall_p99_9_s=2e-3, loop_stall_max_s=5e-3, loop_probes=1000)


def calm(**changes: Any) -> Health:
    """CALM, changed as the test needs."""
    return msgspec.structs.replace(CALM, **changes)


def found(run: Run) -> dict[str, Finding]:
    return {finding.name: finding for finding in summarize(run).findings}


def effects(run: Run) -> dict[str, str]:
    return {name: finding.effect for name, finding in found(run).items()}


def rows_late_by(lag_s: Any, n: int = 100, ttft_s: float = 0.05) -> Run:
    lags = np.broadcast_to(lag_s, n).tolist()
    return run_of(
        [ok(i, i / 10, started_s=round(i / 10 + lag, 6), ttft_s=ttft_s) for i, lag in enumerate(lags)]
    )


def stalled(seed: int, *, blocked_s: float) -> Run:
    """A run of 40 s whose loop is blocked so long in every 100 ms, else late by ~60 us and rarely by 2 ms.

    Probes and sends find the loop where they fall: in a block they wait for its end.
    """
    rng = np.random.default_rng(seed)

    def late(at_s: Any) -> Any:
        noise = rng.exponential(6e-5, len(at_s)) + 2e-3 * (rng.random(len(at_s)) < 1e-3)
        return np.maximum(blocked_s - at_s % 0.1, 0.0) + noise

    probes, due = late(np.arange(0, 40, 0.01)), np.round(np.cumsum(rng.exponential(0.1, 400)), 6)
    health = Health(
        loop_stall_mean_s=float(probes.mean()),
        loop_stall_p99_9_s=float(np.quantile(probes, 0.999)),
        loop_stall_max_s=float(probes.max()),
        loop_probes=len(probes),
    )
    sent = np.round(due + late(due), 6)
    rows = [
        ok(i, d, started_s=s, ttft_s=0.2)
        for i, (d, s) in enumerate(zip(due.tolist(), sent.tolist(), strict=True))
    ]
    load = {"arrivals": {"kind": "poisson", "rate": "10/s"}, "ignore_eos": True}
    return run_of(
        rows, window_end_s=float(due[-1]), window_by="count", health=health, scenario={"load": load}
    )


@pytest.mark.parametrize("seed", range(10))
def test_a_clean_run_has_no_finding(seed: int) -> None:
    """Ten seeds of an idle client: nothing to say, ITL of 10 ms included."""
    summary = summarize(stalled(seed, blocked_s=0.0))
    assert (summary.findings, summary.validity, summary.itl_valid) == ([], "VALID", True)


@pytest.mark.parametrize("seed", range(10))
def test_a_loop_blocked_a_fifth_of_the_time_makes_the_run_invalid(seed: int) -> None:
    """20 ms in every 100: requests leave late, and the mean stall is far above 5 % of a 10 ms gap."""
    assert {"send_lag": "invalid", "loop_stall_itl": "invalid_itl"}.items() <= effects(
        stalled(seed, blocked_s=0.02)
    ).items()


@pytest.mark.parametrize(
    ("lag_s", "ttft_s", "is_late"),
    [(2e-3, 0.05, False), (2.001e-3, 0.05, True), (4e-3, 0.2, False), (4.001e-3, 0.2, True)],
)
def test_send_lag_may_be_two_milliseconds_or_a_fiftieth_of_ttft(
    lag_s: float, ttft_s: float, is_late: bool
) -> None:
    """The limit of the p99 is the larger of the two; one late row in a hundred is no p99."""
    assert ("send_lag" in found(rows_late_by(lag_s, ttft_s=ttft_s))) is is_late
    assert "send_lag" not in found(rows_late_by([0.0] * 99 + [0.5]))


def test_in_a_short_run_one_late_row_is_no_p99_but_two_are() -> None:
    """Of 50 rows the worst alone may be a hiccup; the second worst is held to the limit."""
    assert "send_lag" not in found(rows_late_by([0.0] * 49 + [0.5], n=50))
    assert "send_lag" in found(rows_late_by([0.0] * 48 + [0.5] * 2, n=50))


def test_a_finding_says_figure_limit_and_remedy() -> None:
    """A reader learns what was found, what would have been right, and what to do."""
    finding = found(rows_late_by(0.0123))["send_lag"]
    assert finding.text == "1 % of requests were sent 12.3ms or more after due; the limit is 2ms"
    assert "lower the rate" in finding.remedy


def test_few_rows_are_counted_and_a_burst_is_told_to_be_smaller() -> None:
    """Of 20 at once, 3 are late: `3 of 20`, and no advice to lower a rate that there is not."""
    rows = [ok(i, 0.0, started_s=late) for i, late in enumerate([0.0] * 17 + [0.1] * 3)]
    finding = found(run_of(rows, window_by="burst"))["send_lag"]
    said = "2 of 20 requests were sent 98.9ms or more after their turn"
    assert finding.text == f"{said} (rows due together may leave 60us apart); the limit is 2ms"
    assert "send fewer at once" in finding.remedy
    assert "rate" not in finding.remedy


def test_rows_later_than_their_successor_was_due() -> None:
    """Six of a hundred sent more than one mean gap late, answers so slow that the lag itself may pass."""
    assert effects(rows_late_by([0.0] * 94 + [0.11] * 6, ttft_s=60.0)) == {
        "send_order": "invalid",
        "arrivals": "warning",
    }
    assert effects(rows_late_by([0.0] * 95 + [0.11] * 5, ttft_s=60.0)) == {"arrivals": "warning"}


@pytest.mark.parametrize(
    ("at_limit", "beyond", "name", "effect"),
    [
        ({"loop_stall_p99_9_s": 0.02}, {"loop_stall_p99_9_s": 0.0201}, "loop_stall", "invalid"),
        ({"loop_stall_max_s": 0.25}, {"loop_stall_max_s": 0.2501}, "loop_stall", "invalid"),
        ({"read_wait_p99_9_s": 0.02}, {"read_wait_p99_9_s": 0.0201}, "read_wait", "invalid"),
        ({"read_wait_max_s": 0.25}, {"read_wait_max_s": 0.2501}, "read_wait", "invalid"),
        ({"loop_stall_mean_s": 5e-4}, {"loop_stall_mean_s": 5.01e-4}, "loop_stall_itl", "invalid_itl"),
        ({"clock_jump_s": 0.5}, {"clock_jump_s": -0.51}, "clock_jump", "invalid"),
        ({}, {"descriptors_exhausted": True}, "descriptors_exhausted", "invalid"),
        ({}, {"ports_exhausted": True}, "ports_exhausted", "invalid"),
        ({"processes": 4}, {"processes": 4, "processes_lost": 1}, "processes_lost", "invalid"),
    ],
)
def test_what_the_client_itself_suffered(
    at_limit: dict[str, Any], beyond: dict[str, Any], name: str, effect: str
) -> None:
    """Each trouble is a finding once its limit is passed; gaps of 10 ms bear a mean stall of half a
    millisecond.
    """
    rows = [ok(i, i / 10) for i in range(20)]
    assert effects(run_of(rows, health=calm(**at_limit))) == {}
    run = run_of(rows, health=calm(**beyond))
    assert effects(run) == {name: effect}
    assert found(run)[name].remedy
    assert summarize(run).validity == ("INVALID" if effect == "invalid" else "VALID")
    assert not summarize(run).itl_valid


@pytest.mark.parametrize(
    ("health", "text"),
    [
        ({"busiest_share": 0.34}, "client: one process at 34% of a core"),
        ({"busiest_share": 0.34, "processes": 3}, "client: 3 processes, the busiest at 34% of a core"),
        ({"clock": "user", "reads": 100}, "client: reads stamped by our own clock"),
        (
            {"busiest_share": 0.34, "warm": 0},
            "client: one process at 34% of a core, 0 connections warm at the start",
        ),
        (
            {"clock": "kernel", "reads": 1000, "reads_unstamped": 2, "reads_with_several_events": 70},
            (
                "client: reads stamped by the kernel, 0.2% of them not, but by our own clock, "
                "7.0% of reads held several events, which share one instant"
            ),
        ),
    ],
)
def test_every_run_says_what_its_client_had_to_do(health: dict[str, Any], text: str) -> None:
    """How full it was and whose clock its reads have, as information."""
    finding = found(run_of([ok(i, i / 10) for i in range(20)], health=calm(**health)))["client"]
    assert (finding.effect, finding.text) == ("info", text)


@pytest.mark.parametrize(("warm", "said"), [(20, False), (8, True)])
def test_warm_connections_that_were_gone_by_the_start_are_told(warm: int, *, said: bool) -> None:
    """A server may take them and close them again."""
    run = run_of([ok(i, i / 10) for i in range(20)], health=calm(warm=warm))
    run.header.scenario = run.header.scenario | {"client": {"warm": 20}}
    told = found(run).get("warm")
    assert (told is not None) is said
    assert told is None or told == Finding(
        name="warm", effect="info", text="of 20 warm connections 8 were open at the start"
    )


def test_a_client_that_is_full_is_a_warning_though_nothing_came_late() -> None:
    """Nine tenths of a core are borne; beyond, the reader is told what to do."""
    rows = [ok(i, i / 10) for i in range(20)]
    assert effects(run_of(rows, health=calm(busiest_share=0.9))) == {"client": "info"}
    run = run_of(rows, health=calm(busiest_share=0.91))
    assert effects(run) == {"client": "warning"}
    assert "91% of a core" in found(run)["client"].text
    assert "--processes" in found(run)["client"].remedy


# --- what held the client up --------------------------------------------------------------------------------

STALLED = {"loop_stall_max_s": 0.4, "stalled_s": 1.0}


@pytest.mark.parametrize(
    ("health", "words", "remedy"),
    [
        ({"busiest_share": 0.97}, "the client process is at its limit, 97% of a core", "--processes"),
        (
            {"stalled_waiting_s": 0.6, "stalled_asleep_s": 0.1},
            "other work had the client's core for 600ms of the 1s that it was late in all",
            "a core of its own",
        ),
        (
            {"stalled_waiting_s": 0.1, "stalled_asleep_s": 0.2},
            "the client's own work kept it busy for 700ms of the 1s",
            "--processes",
        ),
        (
            {"stalled_waiting_s": 0.1, "stalled_asleep_s": 0.8},
            "the client was stopped or asleep (a signal, a debugger, swap, a slow disk, a paused machine)",
            "run it again",
        ),
        ({"stalled_asleep_s": 0.9}, "the client did not run (other work had its core, or", "run it again"),
    ],
)
def test_a_late_client_says_what_held_it_up(health: dict[str, Any], words: str, remedy: str) -> None:
    """By most of what it did while it was late; once, though both the sends and the loop were late."""
    rows = [ok(i, i / 10, started_s=i / 10 + 0.01) for i in range(20)]
    findings = found(run_of(rows, health=calm(**STALLED | health)))
    assert words in findings["send_lag"].text
    assert remedy in findings["send_lag"].remedy
    assert words not in findings["loop_stall"].text


def test_late_sends_that_no_probe_saw_are_told_by_what_the_process_waited_for() -> None:
    """Longer without a core than on one: other work. Else nothing is known, and nothing said."""
    rows = [ok(i, i / 10, started_s=i / 10 + 0.01) for i in range(20)]
    crowded = found(run_of(rows, health=calm(stalled_s=0.0, cpu_s=0.2, cpu_wait_s=0.3)))["send_lag"]
    assert "it waited for one for 300ms in all, and ran for 200ms" in crowded.text
    assert "a core of its own" in crowded.remedy
    alone = found(run_of(rows, health=calm(stalled_s=0.0, cpu_s=0.2, cpu_wait_s=0.1)))["send_lag"]
    assert alone.text.endswith("the limit is 2ms")


def test_more_processes_are_no_remedy_where_each_core_has_one() -> None:
    """Two on a machine of two cores: another machine, then."""
    rows = [ok(i, i / 10) for i in range(20)]
    full = calm(busiest_share=0.97, processes=2)
    assert found(run_of(rows, health=full, host={"cpus": 2}))["client"].remedy == (
        "use a machine with more cores, or lower the rate; loadgen calibrate tells what this machine can do"
    )
    assert "--processes" in found(run_of(rows, health=full, host={"cpus": 4}))["client"].remedy


# --- rows due together --------------------------------------------------------------------------------------


def burst_of(n: int, step_us: int) -> Run:
    """So many due at 0 s, each sent so long after the one before it, in no order of their indices."""
    order = np.random.default_rng(1).permutation(n).tolist()
    rows = [ok(i, 0.0, started_s=round(k * step_us / 1e6, 6), ttft_s=0.1) for i, k in enumerate(order)]
    return run_of(rows, window_by="burst", scenario={"load": {"arrivals": {"kind": "burst"}}})


def test_a_burst_of_a_thousand_may_leave_within_60_ms() -> None:
    """At 60 us a row the last is on time; at 63 us a row the 990th is 2.97 ms beyond its turn."""
    run = burst_of(1000, 60)
    assert effects(run) == {"clump": "info"}
    assert found(run)["clump"].text.startswith("the 1,000 requests due at 0.000 s left within 59.9ms")
    assert "100.0% of 1,000 requests started within 2ms of their turn" in certify(run).text
    assert "(p99 59.3ms, most 59.9ms after due)" in certify(run).text
    late = found(burst_of(1000, 63))
    assert late["send_lag"].effect == "invalid"
    assert "2.97ms or more after their turn" in late["send_lag"].text


@pytest.mark.parametrize(("warm", "said"), [(0, True), (1000, False)])
def test_a_burst_that_is_late_is_told_to_open_its_connections_beforehand(warm: int, *, said: bool) -> None:
    """Unless it did."""
    late = burst_of(1000, 80)
    late.header.scenario = late.header.scenario | {"client": {"warm": warm}}
    assert ("--warm" in found(late)["send_lag"].remedy) is said
    assert found(late)["send_lag"].remedy.endswith("or send fewer at once")


def test_a_small_clump_is_not_worth_a_word() -> None:
    """34 rows may leave within 2 ms, which is the limit anyhow; of 35 it is said how long they took."""
    assert effects(burst_of(34, 60)) == {}
    assert effects(burst_of(35, 60)) == {"clump": "info"}


def test_rows_of_a_poisson_process_gain_nothing_from_their_neighbours() -> None:
    """At 2,000 a second, 0.5 ms apart in the mean, a lag just beyond 2 ms is beyond the limit."""
    due_s = np.unique(np.round(np.cumsum(np.random.default_rng(1).exponential(5e-4, 1000)), 6)).tolist()
    for lag_s, is_late in ((2e-3, False), (2.001e-3, True)):
        rows = [ok(i, d, started_s=round(d + lag_s, 6), ttft_s=0.05) for i, d in enumerate(due_s)]
        assert ("send_lag" in found(run_of(rows, window_end_s=1.0, window_by="count"))) is is_late


def test_small_figures_of_a_finding_have_a_unit_that_fits() -> None:
    """5 % of a median gap of 21 us are 1.05 us, not 1.05e-06 s."""
    run = run_of([ok(i, i / 10, gaps_us=[21] * 3) for i in range(20)], health=CALM)
    assert found(run)["loop_stall_itl"].text.endswith("the limit is 1.05us")


def test_a_virtual_run_has_no_client_to_blame() -> None:
    """Without a wall clock there is no health, and nothing is held against it."""
    assert summarize(run_of([ok(i, i / 10) for i in range(20)], source="virtual")).validity == "VALID"


@pytest.mark.parametrize(
    ("header", "name", "effect"),
    [
        ({"complete": False}, "incomplete", "invalid"),
        ({"complete": False, "crashed": "OSError"}, "incomplete", "invalid"),
        ({"interrupted": True}, "interrupted", "warning"),
        ({"rows_due": 3}, "records_missing", "invalid"),
        ({"rows_dropped": 7}, "turns_dropped", "info"),
    ],
)
def test_a_run_that_is_not_whole(header: dict[str, Any], name: str, effect: str) -> None:
    """A killed run is invalid, an interrupted one merely noted, and every row due must be recorded."""
    run = run_of([ok(0), ok(1, 1.0)], **header)
    assert effects(run) == {name: effect}
    assert str(header.get("crashed", "")) in found(run)[name].text


@pytest.mark.parametrize(
    ("plan_rows", "shard", "said"),
    [
        (20_000, None, "2 of the plan's 20,000 rows are recorded, 19,998 are missing"),
        (2, None, "2 requests are recorded"),
        (20_000, "2/8", "2 requests are recorded"),
    ],
    ids=["cut", "only its end is missing", "shard"],
)
def test_a_killed_run_says_how_much_of_it_is_missing(plan_rows: int, shard: str | None, said: str) -> None:
    """Of a shard it is not known how many rows it would have had."""
    run = run_of([ok(0), ok(1, 1.0)], complete=False, rows_due=None, plan_rows=plan_rows, shard=shard)
    assert found(run)["incomplete"].text.endswith(
        f"it was killed, had no room on its disk, or still goes on; {said}"
    )


def test_a_torn_line_is_said() -> None:
    """A record lost with the last line is told."""
    run = run_of([ok(0)])
    assert effects(Run(run.header, run.records, torn_lines=1)) == {"torn_line": "info"}


@pytest.mark.parametrize(("cap", "effect"), [(None, "invalid"), (64, "warning")])
def test_unsent_requests_are_the_clients_fault_unless_the_user_set_the_bound(
    cap: int | None, effect: str
) -> None:
    """2 of 1000 unsent is too many; under the user's own max_in_flight it is told and counted as misses."""
    rows = [ok(i, i / 100) for i in range(998)]
    rows += [failed(i, i / 100, Outcome.UNSENT, started_s=None, sent_s=None) for i in (998, 999)]
    run = run_of(rows, scenario={"load": {"max_in_flight": cap}})
    assert effects(run) == {"unsent": effect}
    assert "2 of 1000" in found(run)["unsent"].text


def test_users_who_hung_up_before_a_slot_was_free() -> None:
    """Half of them: misses, and no sign of a client that is lost."""
    rows = [ok(i, i / 100) for i in range(50)]
    rows += [failed(i, i / 100, Outcome.ABANDONED, started_s=None, sent_s=None) for i in range(50, 100)]
    assert "not_started" not in effects(run_of(rows))


def test_rows_that_never_started() -> None:
    """One of 1000 may be lost, two may not."""
    for lost, expected in ((1, {}), (2, {"not_started": "invalid"})):
        rows = [ok(i, i / 100) for i in range(1000 - lost)]
        rows += [failed(1000 - i, 9.99, Outcome.BROKEN, started_s=None) for i in range(1, lost + 1)]
        assert effects(run_of(rows)) == expected


def test_rows_whose_batch_will_never_fill_are_named() -> None:
    """Twelve of them: ten by name, and how many more."""
    rows = [failed(i, 1.0, Outcome.TIMEOUT_FIRST_TOKEN, error=NEVER_FILLED) for i in range(12)]
    text = found(run_of([*rows, ok(12, 2.0)]))["never_started"].text
    assert text.startswith("12 requests can never start")
    assert text.endswith(": r0, r1, r2, r3, r4, r5, r6, r7, r8, r9 and 2 more")


def test_rows_that_later_ones_overtake_for_ever_are_named() -> None:
    """One of them, and what to do."""
    finding = found(run_of([failed(0, 1.0, Outcome.TIMEOUT_FIRST_TOKEN, error=OVERTAKEN), ok(1, 2.0)]))[
        "never_started"
    ]
    assert finding.text == "1 request can never start, since later ones go before them: r0"
    assert "tail: false" in finding.remedy


def test_prompts_of_another_length_than_asked() -> None:
    """5 % off may be, 6 % is a warning; a server that gives no count says nothing."""
    for got, expected in (
        (105, {}),
        (106, {"prompt_tokens": "warning"}),
        (94, {"prompt_tokens": "warning"}),
        (None, {}),
    ):
        assert effects(run_of([ok(0, asked_prompt_tokens=100, prompt_tokens=got)])) == expected


def test_outputs_of_another_length_than_forced() -> None:
    """Only where the length was forced is a shorter answer a finding."""
    short = ok(0, asked_output_tokens=100, output_tokens=98, event_tokens=None)
    for forced, expected in ((True, {"output_tokens": "warning"}), (False, {})):
        assert effects(run_of([short], scenario={"load": {"ignore_eos": forced}})) == expected


def test_a_stream_that_comes_in_one_piece_leaves_itl_without_judgement() -> None:
    """Mostly zero gaps: TTFT and E2E stand, ITL does not; two gaps are too few to say."""
    faked = summarize(run_of([ok(0, gaps_us=[0, 0, 0, 9_000])]))
    assert [f.effect for f in faked.findings] == ["warning"]
    assert (faked.validity, faked.itl_valid) == ("VALID", False)
    assert summarize(run_of([ok(0, gaps_us=[0, 0])])).itl_valid
    assert summarize(run_of([ok(0, gaps_us=[0, 0, 9_000, 9_000])])).itl_valid


def test_a_client_that_reads_late_does_not_blame_the_server_for_its_zero_gaps() -> None:
    """Events that came together are a proxy's doing only where the client was in time."""
    for stall_s, said in ((5e-3, "the server fakes it"), (0.3, "the client read late")):
        health = calm(loop_stall_max_s=stall_s)
        findings = found(run_of([ok(0, gaps_us=[0, 0, 0, 9_000])], health=health))
        assert "loop_stall_itl" not in findings  # of a median gap of zero there is no share
        assert said in findings["zero_gaps"].remedy


def test_arrivals_that_break_their_law_are_a_warning() -> None:
    """Equal gaps under a declared Poisson process."""
    rows = [ok(i, i / 10) for i in range(200)]
    run = run_of(
        rows, window_end_s=20.0, scenario={"load": {"arrivals": {"kind": "poisson", "rate": "10/s"}}}
    )
    assert effects(run) == {"arrivals": "warning"}
    assert "poisson, 10/s" in found(run)["arrivals"].text


def test_where_rows_were_not_sent_the_law_is_not_asked_for() -> None:
    """max_in_flight thins the arrivals, as the user wished: that they are Poisson no more is no news."""
    rows = [ok(i, i / 10) if i % 2 else failed(i, i / 10, Outcome.UNSENT) for i in range(200)]
    load = {"max_in_flight": 1, "arrivals": {"kind": "poisson", "rate": "10/s"}}
    assert "arrivals" not in effects(run_of(rows, window_end_s=20.0, scenario={"load": load}))


@pytest.mark.parametrize(("lag_s", "found_too"), [(0.0005, []), (0.01, ["send_lag"])])
def test_a_wait_for_a_place_is_no_lag_and_a_lag_no_wait_for_a_place(
    lag_s: float, found_too: list[str]
) -> None:
    """Under max_concurrency the client is judged from when a row was free to go; the law is the cap's."""
    load = {"max_concurrency": 1, "arrivals": {"kind": "poisson", "rate": "10/s"}}
    rows = [ok(i, i / 10, slot_s=float(i), started_s=round(i + lag_s, 6)) for i in range(60)]
    summary = summarize(run_of(rows, scenario={"load": load}))
    assert [finding.name for finding in summary.findings] == found_too
    assert summary.partly_closed_loop


def test_a_run_that_was_interrupted_before_anything_fell_due_says_nothing() -> None:
    """It is no VALID measurement of nothing; a shard may have no row to send, which is judged when merged."""
    assert effects(run_of([], interrupted=True))["nothing_offered"] == "invalid"
    assert "nothing_offered" not in effects(run_of([], interrupted=True, shard="2/8"))
    assert "nothing_offered" not in effects(run_of([ok(0)], interrupted=True))
