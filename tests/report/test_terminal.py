"""What a terminal, a narrow one, and a pipe show of a run, a comparison and a plan."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from loadgen.compare import Comparison, compare
from loadgen.report import summary_view
from loadgen.report.markdown import summary_markdown
from loadgen.report.summary_view import rates
from loadgen.report.tables import Column, Table
from loadgen.report.terminal import print_comparison, print_plan, print_summary, print_tables
from loadgen.scenario import Scenario
from loadgen.stats.summary import Certificate, Finding, Goodput, Part, SloResult, Summary
from loadgen.workload import draw, facts
from tests.report.summaries import distribution, metrics, nothing, summary

WIDTHS = (60, 80, 100, 120)


def console(width: int = 100, *, terminal: bool = False) -> Console:
    return Console(
        file=io.StringIO(), width=width, force_terminal=terminal, legacy_windows=False, _environ={}
    )


def text_of(c: Console) -> str:
    assert isinstance(c.file, io.StringIO)
    return c.file.getvalue()


def shown(s: Summary, width: int = 100, folder: Path | None = None) -> str:
    c = console(width)
    print_summary(s, c, folder=folder)
    return text_of(c)


def flat(text: str) -> str:
    """The words without their line breaks."""
    return " ".join(text.split())


def cells(text: str, label: str) -> list[str]:
    """The row that begins with `label`, as its words."""
    line = next(line for line in text.splitlines() if line.startswith(f"{label} "))
    return line.removeprefix(label).replace(", ", ",").split()


def troubled(**changes: Any) -> Summary:
    """A run with every kind of trouble at once."""
    whole: dict[str, Any] = {
        "offered": 99,
        "outcomes": {"ok": 60, "rejected": 30, "timeout_first_token": 9, "aborted": 1},
        "errors": [("429: the queue is full", 30), ("no token after 300 s", 9)],
        "error_rate": 0.0909,
        "rejection_rate": 0.303,
        "overloaded": True,
        "itl_assumed": True,
        "itl_valid": False,
        "partly_closed_loop": True,
        "max_concurrency": 8,
        "held_back": 40,
        "wasted_tokens": 1234,
        "goodput": Goodput(limits_s={"ttft_s": 0.5, "tpot_s": 0.05}, good=50, attainment=50 / 99, rps=4.0),
        "metrics": metrics(
            ttft_s=distribution(0.0671, 60, offered=99, adjusted={"p99": None}),
            tpot_s=nothing(99),
            cap_wait_s=distribution(3.2, 60),
            time_to_reject_s=distribution(0.0012, 30),
        ),
        "findings": [
            Finding(name="info", effect="info", text="3 % of reads held several events."),
            Finding(name="lag", effect="invalid", text="send lag p99 is 12 ms", remedy="lower the rate"),
        ],
        "validity": "INVALID",
    }
    return summary(**whole | changes)


def comparison(*names: str, source: str = "virtual") -> Comparison:
    """Variants whose throughput doubles from one to the next, and whose E2E halves."""
    sides = {
        name: summary(
            source=source,
            window_by="burst",
            completed_rps=None,
            makespan_output_tokens_per_s=600.0 * 2**i,
            metrics=metrics(e2e_s=distribution(4.0 / 2**i)),
        )
        for i, name in enumerate(names)
    }
    return compare(sides, dict.fromkeys(sides, "5f" * 32))


# --- one run --------------------------------------------------------------------------------------


def test_the_verdict_on_the_measurement_is_the_first_word() -> None:
    """VALID or INVALID, before any figure."""
    assert shown(summary()).startswith("VALID")
    assert shown(troubled()).startswith("INVALID")


@pytest.mark.parametrize(
    ("s", "went"),
    [
        (summary(), "1,000 offered: 1,000 ok"),
        (summary(offered=0, outcomes={}), "0 offered: 0 ok"),
        (
            summary(offered=427, outcomes={"ok": 144, "rejected": 283}, overloaded=True),
            "427 offered: 144 ok, 283 rejected (66.3 %); overloaded",
        ),
        (troubled(), "99 offered: 60 ok, 30 rejected (30 %), 9 timeout_first_token (9 %); overloaded"),
    ],
)
def test_how_it_went_stands_under_the_verdict(s: Summary, went: str) -> None:
    """Each class of failure with its share, without what our own end cut; in Markdown, too."""
    assert summary_view.outcome_line(s) == went
    assert shown(s).splitlines()[1].strip() == went
    assert summary_markdown(s).splitlines()[2].replace("\\", "") == f"**{went}**"


@pytest.mark.parametrize("width", WIDTHS)
def test_the_figures_stand_beside_their_metric(width: int) -> None:
    """TTFT p50 67.1 ms of 1,000 requests, adjusted p99 4.5 times that at every width, and more with room."""
    row = cells(shown(summary(), width), "TTFT")
    assert row[:2] == ["ms", "1,000"]
    assert "67.1" in row
    assert row[-3:] == (["268", "302", "336"] if width >= 80 else ["1,000", "67.1", "302"])


def test_a_narrow_table_loses_columns_and_no_figure_is_cut() -> None:
    """p90 goes before the mean; n, p50 and the adjusted p99 stay to the last."""
    wide, mid, narrow = (cells(shown(summary(), width), "normalized latency") for width in (120, 80, 70))
    assert len(wide) == len(mid) + 1 == len(narrow) + 2
    assert not [cell for cell in narrow if "…" in cell]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("s", [summary(), troubled()], ids=["clean", "troubled"])
def test_nothing_is_wider_than_the_terminal(width: int, s: Summary) -> None:
    """No line wraps by itself."""
    text = shown(s, width, Path("runs/20260105-101500-chat-1a2b3c"))
    assert max(cell_len(line) for line in text.splitlines()) <= width


def test_every_row_of_durations_has_one_unit() -> None:
    """A median of 2.41 s whose maximum is 12.05 s is shown in seconds, one of 0.12 ms in milliseconds."""
    text = shown(summary())
    assert cells(text, "E2E") == ["s", "1,000", "3.01", "2.41", "4.82", "9.64", "10.8", "12.1"]
    assert cells(text, "send lag")[0] == "ms"


def test_outcomes_have_counts_and_shares_of_offered() -> None:
    """30 of 99 offered are 30 %; what our own end cut has no share."""
    text = shown(troubled())
    assert cells(text, "offered")[0] == "99"
    assert cells(text, "rejected")[:3] == ["30", "30", "%"]
    assert cells(text, "aborted")[:2] == ["1", "–"]


def test_infinitely_late_is_marked_and_explained() -> None:
    """Over 1 % failed: the adjusted p99 is infinite, and a line says what the sign means."""
    text = shown(troubled())
    assert cells(text, "TTFT")[-2] == "∞"
    assert "∞: infinitely late" in text
    assert "∞" not in shown(summary())


def test_a_p99_of_few_samples_is_marked_and_explained() -> None:
    """60 samples have no p99 to speak of."""
    text = shown(troubled())
    assert cells(text, "TTFT")[-3] == "~268"
    assert "~: fewer than 100 samples" in text
    assert "~" not in shown(summary())


def test_a_metric_that_nobody_has_is_no_row() -> None:
    """No request had two tokens: there is no TPOT row."""
    assert not [line for line in shown(troubled()).splitlines() if line.startswith("TPOT ")]


def test_where_no_request_had_a_token_ttft_still_says_so() -> None:
    """The headline row stays: n 0, dashes, and infinitely late."""
    none = dict.fromkeys(metrics(), nothing()) | {"ttft_s": nothing(500)}
    text = shown(summary(offered=500, outcomes={"connect_error": 500}, metrics=none, error_rate=1.0))
    assert cells(text, "TTFT") == ["ms", "0", "–", "–", "–", "–", "∞", "–"]
    assert "No request was answered" in text


def test_a_simulated_figure_never_looks_measured() -> None:
    """Every table with figures says where they come from, and a virtual run never says HTTP."""
    virtual = shown(summary(source="virtual", target="bundled engine"))
    titles = [line for line in virtual.splitlines() if line.startswith(("Requests", "Rates", "Latency"))]
    assert len(titles) == 3
    assert all("SIMULATED in virtual time" in title for title in titles)
    assert "HTTP" not in virtual
    assert "SIMULATED" not in shown(summary())


def test_findings_come_with_their_remedy_and_the_gravest_first() -> None:
    """What makes the run invalid stands before a remark."""
    text = shown(troubled())
    assert "INVALID Send lag p99 is 12 ms. Lower the rate." in flat(text)
    assert text.index("Send lag p99") < text.index("3 % of reads")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"overloaded": True}, "Overloaded: percentiles depend on the run length."),
        ({"overloaded": None}, "Too few requests to tell whether the server keeps up with the load."),
        (
            {"partly_closed_loop": True, "max_concurrency": 8, "held_back": 40},
            "Partly closed loop: a cap of 8 was set; it held back 40 of 1,000",
        ),
        (
            {"partly_closed_loop": True, "max_concurrency": 64, "held_back": 0},
            "a cap of 64 was set; it held back 0 of 1,000 requests, most in flight 41.",
        ),
        ({"itl_assumed": True}, "ITL assumes one token per event"),
        ({"itl_valid": False}, "ITL and chunk gaps are not to be used"),
    ],
)
def test_cautions_are_said_before_the_tables(changes: dict[str, Any], said: str) -> None:
    """Each only where it holds."""
    text = shown(summary(**changes), 120)
    assert text.index(said) < text.index("Requests (")
    assert said not in shown(summary(), 120)


def test_the_certificate_is_a_line_of_every_report() -> None:
    """In its own words, before any table."""
    text = "as asked: 99.9% of 1,000 requests started within 1ms of due"
    certificate = Certificate(
        verdict="as asked", text=text, sent=1000, on_time=0.999, tolerance_s=1e-3, lag_p99_s=1e-4,
        lag_max_s=2e-3, p_values={}, p=None,
    )  # fmt: skip
    certified = summary(certificate=certificate)
    assert f"certificate: {text}" in flat(shown(certified))
    assert f"certificate: {text}" in summary_markdown(certified)
    assert "certificate" not in shown(summary())


SLOS = [
    SloResult(slo="p99(ttft) <= 500ms", verdict="PASS", reason="", value=0.998, low=0.993, high=0.9997,
              n=1000, n_effective=900.0, n_to_decide=None),
    SloResult(slo="mean(e2e) <= 2s", class_="chat", verdict="UNRESOLVED", reason="too few to tell",
              value=1.98, low=1.9, high=2.06, n=500, n_effective=None, n_to_decide=4000),
    SloResult(slo="goodput >= 9/s", verdict="FAIL", reason="", value=8.0, low=7.9, high=8.1, n=1000,
              n_effective=None, n_to_decide=None),
]  # fmt: skip


@pytest.mark.parametrize("width", WIDTHS)
def test_slos_come_first_with_verdict_figure_and_bounds(width: int) -> None:
    """Shares in percent, means with their unit, rates per second; the overall verdict is said at the head."""
    text = shown(summary(slos=SLOS, verdict="FAIL"), width)
    assert text.splitlines()[1] == "FAIL  1 of 3 SLOs"
    assert text.index("SLOs (") < text.index("Requests (")
    assert re.search(r"PASS +99.8 % +99.3 % +>99.9 %", text)
    assert re.search(r"chat +UNRESOLVED +1.98 s +1.90 s +2.06 s", text)
    assert "chat, mean(e2e) <= 2s: too few to tell." in flat(text)
    assert re.search(r"FAIL +8.00/s +7.90/s +8.10/s", text)
    assert max(map(cell_len, text.splitlines())) <= width


@pytest.mark.parametrize("width", WIDTHS)
def test_classes_and_turns_stand_side_by_side(width: int) -> None:
    """Each with its own limits of goodput; whoever never got a token has no p99."""
    parts = {"chat": part(0.1, {"ttft": 0.5}), "batch": part(0.4, {"ttft": 5.0}, adjusted={"p99": None})}
    text = shown(summary(by_class=parts, by_turn={"4-7": part(0.2, {})}), width)
    assert {"500", "100", "450", "90"} & {*cells(text, "chat")} >= {"500", "100", "450"}
    assert "∞" in cells(text, "batch")
    assert "By turn (" in text
    assert "good, chat: within TTFT <= 500ms." in flat(text)
    assert max(map(cell_len, text.splitlines())) <= width
    assert "By class" not in shown(summary(), width)


@pytest.mark.parametrize("width", WIDTHS)
def test_servers_stand_side_by_side_with_their_shares(width: int) -> None:
    """Of 1,000 requests 500 each, on any page; a name out of a file shows no control character."""
    text = shown(summary(by_target={"10.0.0.1:80": part(0.1, {}), "10.0.0.2\x1b:80": part(0.4, {})}), width)
    assert "By target (" in text
    assert "50.0" in cells(text, "10.0.0.1:80")
    assert "\x1b" not in text
    assert max(map(cell_len, text.splitlines())) <= width


def part(ttft_s: float, limits_s: dict[str, float], **changes: Any) -> Part:
    """Half of a run, one in ten of which is refused."""
    whole = metrics(ttft_s=distribution(ttft_s, 450, **changes), output_tokens=distribution(64.0))
    return Part(
        offered=500,
        outcomes={"ok": 450, "rejected": 50},
        rejection_rate=0.1,
        error_rate=0.0,
        metrics={key: whole[key] for key in ("ttft_s", "e2e_s", "tpot_s", "itl_s", "output_tokens")},
        goodput=Goodput(limits_s=limits_s, good=400, attainment=0.8, rps=4.0) if limits_s else None,
    )


def test_retries_and_a_closed_loop_are_told() -> None:
    """How often requests were tried again; and that the load waited for the answers."""
    text = shown(summary(retries=17, closed_loop=True))
    assert cells(text, "retries")[0] == "17"
    assert "Closed loop: users wait for their answers" in text
    assert "retries" not in shown(summary())


def test_a_burst_has_no_rate_row() -> None:
    """Only the makespan throughput, and the reason."""
    text = shown(summary(window_by="burst", offered_rps=None, completed_rps=None, output_tokens_per_s=None))
    assert "requests/s" not in text
    assert "A burst has no rate" in text
    assert cells(text, "makespan output")[:2] == ["905", "tokens/s"]


def test_goodput_is_shown_with_its_limits_and_share() -> None:
    """The limits as they were asked."""
    text = flat(shown(troubled(validity="VALID")))
    assert "TTFT <= 500ms and TPOT <= 50ms" in text
    assert "attainment 51 % of offered 50 requests within" in text


def test_next_steps_follow_from_the_result() -> None:
    """A clean run without goodput limits is told of them; an invalid one is told to remedy and run again."""
    assert "Give goodput limits" in shown(summary())
    assert "Remedy the findings" in shown(troubled())
    assert "Lower the rate until" in shown(summary(overloaded=True))
    good = Goodput(limits_s={"ttft_s": 0.5}, good=990, attainment=0.99, rps=7.9)
    assert "Next" not in shown(summary(goodput=good))


def test_the_folder_is_said() -> None:
    """Where the files are, as given; nothing where there is none."""
    text = shown(summary(), folder=Path("runs/chat-1"))
    assert "\n  runs/chat-1\n" in text
    assert "loadgen report runs/chat-1 --html FILE: pictures, as one page" in text
    assert "Files" not in shown(summary())


HOSTILE = "\x1b[2J\x1b]0;own\x07\u202eevil [bold]x[/bold] [link=http://x]y[/link] \x07\r\n\x9b31m| `a`"


def test_hostile_server_text_is_harmless() -> None:
    """No escape, control or direction mark reaches the terminal, and markup stays as letters."""
    s = troubled(
        model=HOSTILE, errors=[(HOSTILE, 30)], findings=[Finding(name="x", effect="warning", text=HOSTILE)]
    )
    text = shown(s, 120)
    assert not [c for c in text if ord(c) < 32 and c != "\n"]
    assert not [c for c in text if c in "\x7f\x9b\u202e"]
    assert "[bold]x[/bold]" in text


def test_a_table_is_harmless_wherever_a_strangers_words_are() -> None:
    """In title, heading, cells and notes: of a capacity.json that somebody sent, say."""
    out = console(120)
    print_tables([Table(HOSTILE, [Column(HOSTILE, "words")], [[HOSTILE]], [HOSTILE])], out)
    text = text_of(out)
    assert text.count("[bold]x[/bold]") == 4
    assert not [c for c in text if (ord(c) < 32 and c != "\n") or c in "\x7f\x9b\u202e"]


def test_a_command_to_be_pasted_is_one_for_the_shell() -> None:
    """A folder with a blank in its name is one word of it."""
    assert "loadgen report 'my runs/a' --html FILE" in shown(summary(), folder=Path("my runs/a"))


def test_no_control_codes_in_a_pipe_and_no_colour_with_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe gets plain text; NO_COLOR leaves weight but no colour."""
    assert "\x1b" not in shown(troubled())
    c = Console(
        file=io.StringIO(),
        width=100,
        force_terminal=True,
        color_system="truecolor",
        _environ={"NO_COLOR": "1"},
    )
    print_summary(troubled(), c, folder=None)
    assert not [code for code in ("[31m", "[32m", "[33m", "[1;31m", "[1;33m") if code in text_of(c)]
    loud = console(terminal=True)
    print_summary(troubled(), loud, folder=None)
    assert "\x1b[1;31m" in text_of(loud)


def test_more_messages_than_fit_are_counted() -> None:
    """Five messages, then how many more there are."""
    text = shown(summary(errors=[(f"message {i}", 9 - i) for i in range(8)], error_rate=0.04))
    assert "message 4" in text
    assert "message 5" not in text
    assert "and 3 other messages" in text


# --- comparison -----------------------------------------------------------------------------------


def compared(c: Comparison, width: int = 100) -> str:
    out = console(width)
    print_comparison(c, out)
    return text_of(out)


def _without_intervals(text: str) -> str:
    """The figures and ratios of a comparison alone."""
    return re.sub(r" *\[[^]]*[\])]", "", text)


def test_the_winner_and_the_rule_come_first() -> None:
    """Who, by which figure, by how much, by which rule."""
    text = flat(compared(comparison("static", "continuous")))
    assert text.startswith(
        "WINNER continuous highest makespan throughput: 1,200 tokens/s, 2.00 times that of"
    )
    assert "Rule: a burst is won by" in text


def test_each_value_has_its_ratio_to_the_baseline_beside_it() -> None:
    """600, 1,200 and 2,400 tokens/s: 2.00x and 4.00x."""
    text = compared(comparison("static", "dynamic", "continuous"), 120)
    row = cells(_without_intervals(text), "makespan throughput ↑")
    assert row == ["tokens/s", "600", "1,200", "2.00x", "2,400", "4.00x"]


def test_a_tiny_ratio_is_not_rounded_to_nothing() -> None:
    """4 s down to 4 s / 512 is a 512th."""
    row = cells(compared(comparison(*map(str, range(10))), 400), "E2E p50 ↓")
    assert row[-1] == "0.002x"


@pytest.mark.parametrize("width", WIDTHS)
def test_variants_that_do_not_fit_go_to_further_tables_with_the_baseline(width: int) -> None:
    """Seven variants: every one is shown once, the baseline in each table, nothing wider than the page."""
    names = [f"variant-with-a-name-{i}" for i in range(7)]
    text = compared(comparison(*names), width)
    assert max(cell_len(line) for line in text.splitlines()) <= width
    lines = _without_intervals(text).splitlines()
    rows = [
        line.partition(" tokens/s ")[2].replace(", ", ",").split() for line in lines if " tokens/s " in line
    ]
    assert {row[0] for row in rows} == {"600"}
    assert sum(not cell.startswith("[") for row in rows for cell in row[1:]) == 2 * 6


@pytest.mark.parametrize("width", WIDTHS)
def test_no_figure_or_heading_of_a_comparison_is_cut(width: int) -> None:
    """With two variants, every ratio ends in its x and the headings are whole; long labels wrap instead."""
    text = compared(comparison("static", "continuous"), width)
    head = next(line for line in text.splitlines() if line.startswith("figure "))
    assert re.search(r"\(baseline\)  continuous  x base( +95 %)?$", head)
    rows = _without_intervals(text[text.index("figure ") : text.index("more is better")]).splitlines()[2:-1]
    end = head.index("x base") + len("x base")
    ratios = [row.split()[-1] for row in rows if len(row) == end]
    assert len(ratios) == len(comparison("static", "continuous").rows)
    assert all(ratio.endswith("x") or ratio == "–" for ratio in ratios)


@pytest.mark.parametrize("width", WIDTHS)
def test_no_cell_of_a_summary_is_cut(width: int) -> None:
    """Labels wrap between words; counts, units and figures stay whole."""
    text = shown(summary(), width)
    for label, rest in (("ITL", "118,000"), ("TTFT", "1,000")):
        assert rest in cells(text, label)
    assert "ms/token" in text
    assert "118,000" in text


def test_no_line_in_a_pipe_ends_in_blanks() -> None:
    """Logs and diffs stay clean."""
    for text in (shown(troubled()), compared(comparison("static", "continuous"))):
        assert not [line for line in text.splitlines() if line != line.rstrip()]


def test_columns_left_out_for_width_are_named() -> None:
    """At 80 columns p90 goes, at 70 the mean too; where all fit nothing is said."""
    assert "left out" not in shown(summary(), 120)
    assert "left out for width: p90." in shown(summary(), 80)
    assert "left out for width: mean, p90." in shown(summary(), 70)


def test_the_load_is_said_with_the_plan() -> None:
    """What was asked stands under the identity of the run, and under the rule of a comparison."""
    load = "poisson 8/s, 1,000 requests after 80 of warm-up, prompt 256, output 128, seed 1"
    said = f"asked: {load}; plan 5f5f5f5f"
    assert said in flat(shown(summary()))
    assert said in flat(compared(comparison("static", "continuous")))


def test_an_adjusted_p99_may_differ_from_the_plain_one_without_any_failure() -> None:
    """The footnote says why."""
    said = "Plain percentiles interpolate between samples, adjusted ones are samples."
    assert said in flat(summary_markdown(summary()))


def test_a_key_that_begins_a_sentence_stays_as_it_is_written() -> None:
    """`max_in_flight`, never `Max_in_flight`; other words get their capital."""
    texts = ("max_in_flight was reached", "the client is late")
    text = shown(summary(findings=[Finding(name="x", effect="warning", text=t) for t in texts]))
    assert "max_in_flight was reached." in text
    assert "The client is late." in text


def test_a_simulated_comparison_says_so_in_its_titles() -> None:
    """In the table of variants and over the figures."""
    text = compared(comparison("static", "continuous"))
    assert "Comparison (SIMULATED in virtual time)" in text
    assert "HTTP" not in text
    assert "Comparison (measured over HTTP)" in compared(comparison("static", "continuous", source="http"))


# --- plan -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", WIDTHS)
def test_a_plan_is_shown_with_its_laws_and_digest(width: int) -> None:
    """101 constant arrivals at 10/s span 10 s; gaps do not vary; lengths as asked."""
    load = {"arrivals": {"kind": "constant", "rate": 10}, "num_requests": 101, "output_tokens": 64}
    scenario = Scenario.model_validate({"load": load})
    plan = draw(scenario)
    out = console(width)
    print_plan(facts(plan, scenario), out)
    text = text_of(out)
    assert cells(text, "requests")[0] == "101"
    assert cells(text, "span")[:2] == ["10.0", "s"]
    assert cells(text, "rate")[0] == "10.0/s"
    assert cells(text, "CV of gaps")[0] == "0.000"
    assert cells(text, "output")[-2:] == ["6,464", "640"]
    assert plan.digest() in "".join(text.split())
    assert max(cell_len(line) for line in text.splitlines()) <= width


def test_a_burst_plan_has_no_rate() -> None:
    """All at once: rate, CV, dispersion and lag-1 are undefined, not zero."""
    scenario = Scenario.model_validate({"load": {"arrivals": {"kind": "burst"}, "num_requests": 50}})
    out = console()
    print_plan(facts(draw(scenario), scenario), out)
    assert [cells(text_of(out), word)[0] for word in ("rate", "CV of gaps", "dispersion", "lag-1")] == [
        "–"
    ] * 4


def test_a_window_too_short_for_an_answer_is_said() -> None:
    """Rates by completion are then those of the ramp: the reader is told to measure longer."""
    said = "Measure longer: the window"
    assert said in shown(summary(window_start_s=0.0, window_end_s=0.5), 120)
    assert said not in shown(summary(), 120)


def test_a_simulation_is_never_called_a_measurement() -> None:
    """Not even in the verdict."""
    assert shown(summary(source="virtual"), 100).startswith("VALID  simulated, not measured")


def test_what_is_not_in_the_table_has_no_note() -> None:
    """Of a run in which nothing ended ok there is no makespan to explain."""
    said = [" ".join(rates(summary(makespan_output_tokens_per_s=rate)).notes) for rate in (None, 9.0)]
    assert ["makespan: " in notes for notes in said] == [False, True]
