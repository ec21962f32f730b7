"""A gate is red unless what it watches was measured, on both sides, and did not get worse."""

from __future__ import annotations

import dataclasses
from math import inf, nan
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from loadgen import drive
from loadgen.gate import Gate, gate
from loadgen.order import Order
from loadgen.scenario import ScenarioError, build
from loadgen.stats import summarize
from loadgen.stats.figures import GATED, METRICS, Tolerance
from loadgen.stats.sample import Sample, sample
from loadgen.stats.summary import Finding, Summary
from loadgen.workload import draw


class Taken(NamedTuple):
    sample: Sample
    summary: Summary


def simulated(folder: Path, name: str, step: str, **more: Any) -> Taken:
    """1,000 requests, far apart, on an engine whose every step takes `step`: each token does."""
    asked = build(
        {
            "name": "chat",
            "engine": {"cost": {"kind": "fixed", "step": step}},
            "load": {
                "arrivals": {"kind": "constant", "rate": "2/s"},
                "num_requests": 1000,
                "prompt_tokens": 16,
                "output_tokens": 8,
                "tail": False,
            },
        }
        | more
    )
    run = drive.simulate(Order(asked, draw(asked), folder / name, name))
    summary = summarize(run)
    return Taken(sample(run, summary), summary)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Taken]:
    """The same plan three times as it was, once slower, and twice judged by an SLO."""
    at = tmp_path_factory.mktemp("runs")
    made = {name: simulated(at, name, "10ms") for name in ("a", "b", "same")}
    made["slow"] = simulated(at, "slow", "11.5ms")
    made["kept"] = simulated(at, "kept", "10ms", slos=["p90(ttft) <= 1s"])
    made["missed"] = simulated(at, "missed", "10ms", slos=["p90(ttft) <= 1ms"])
    made["other"] = simulated(at, "other", "10ms", seed=2)
    return made


def judged(candidate: Taken, *baselines: Taken, **changes: Any) -> Gate:
    asked = {"noise": 0.005} | changes
    samples = [taken.sample for taken in baselines]
    return gate([candidate.sample], samples, summaries=[candidate.summary], **asked)


def about(taken: Taken, **changes: Any) -> Taken:
    """The same run, had it been another."""
    changed = msgspec.structs.replace(taken.sample.about, **changes)
    return taken._replace(sample=dataclasses.replace(taken.sample, about=changed))


def test_a_slower_engine_fails_by_what_it_is_slower(runs: dict[str, Taken]) -> None:
    """A step of 11.5 ms instead of 10 is 15 % in every time between tokens, and nothing in the throughput."""
    found = judged(runs["slow"], runs["a"], runs["b"])
    changes = {change.metric: change for change in found.changes}
    assert found.verdict == changes["tpot_mean"].verdict == "FAIL"
    assert changes["tpot_mean"].change == pytest.approx(0.15, abs=0.001)
    assert changes["e2e_mean"].change == pytest.approx(0.15, abs=0.001)
    assert changes["output_tokens_per_s"].verdict == changes["error_rate"].verdict == "PASS"


def test_an_assertion_that_fails_says_what_got_worse(runs: dict[str, Taken]) -> None:
    """In lines, and in one line where pytest shows the object itself."""
    found = judged(runs["slow"], runs["a"], runs["b"])
    assert not found.passed
    assert str(found).splitlines()[0] == "FAIL"
    assert "FAIL TPOT mean: 15.0 % worse, 5.0 allowed" in str(found).splitlines()
    assert "; FAIL TPOT mean: 15.0 % worse" in repr(found)
    assert judged(runs["same"], runs["a"], runs["b"]).passed
    cut = judged(about(runs["same"], interrupted=True), runs["a"])
    assert str(cut).startswith("INVALID\ncandidate same: it did not come to its end")
    assert "FAIL missed: p90(ttft) <= 1ms" in str(judged(runs["missed"], runs["a"]))


@pytest.mark.parametrize(
    ("of", "said"),
    [
        (("same",), "Overloaded, candidate: percentiles"),
        (("a",), "Overloaded, baseline: percentiles"),
        (("same", "a"), "Overloaded, candidate and baseline: percentiles"),
        ((), ""),
    ],
)
def test_an_overloaded_side_is_named(runs: dict[str, Taken], of: tuple[str, ...], said: str) -> None:
    """Its figures would be others had it run longer."""
    new, old = (about(runs[name], overloaded=name in of) for name in ("same", "a"))
    noted = [note for note in judged(new, old).notes if note.startswith("Overloaded")]
    assert [note[: len(said)] for note in noted] == ([said] if said else [])


def test_the_same_again_passes(runs: dict[str, Taken]) -> None:
    """Every figure of it; all of them are named, in one order."""
    found = judged(runs["same"], runs["a"], runs["b"])
    assert found.verdict == "PASS"
    assert [change.metric for change in found.changes] == [*GATED]


def test_a_wider_tolerance_lets_it_pass(runs: dict[str, Taken]) -> None:
    """20 % of every figure; or 10 ms, which is more than 1.5 ms, of the few that are gated."""
    loose = {key: msgspec.structs.replace(one.tolerance, relative=0.2) for key, one in METRICS.items()}
    assert judged(runs["slow"], runs["a"], tolerances=loose).verdict == "PASS"
    wide = {"tpot_mean": Tolerance(relative=0.01, absolute=0.01)}
    assert judged(runs["slow"], runs["a"], tolerances=wide, metrics=["tpot_mean"]).verdict == "PASS"
    assert judged(runs["slow"], runs["a"], tolerances=wide, metrics=["itl_p50"]).verdict == "FAIL"


# --- SLOs -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "verdict"), [("kept", "PASS"), ("missed", "FAIL")])
def test_the_candidates_slos_are_judged_too(runs: dict[str, Taken], name: str, verdict: str) -> None:
    """Not slower than before is not good enough."""
    found = judged(runs[name], runs["a"], runs["b"])
    assert {change.verdict for change in found.changes} == {"PASS"}
    assert found.slos[name][0].verdict == found.verdict == verdict


def test_a_baselines_slos_are_its_own_affair(runs: dict[str, Taken]) -> None:
    """What it missed then says nothing of the candidate."""
    both = [runs["same"], runs["missed"]]
    found = gate(
        [runs["same"].sample],
        [runs["missed"].sample],
        summaries=[taken.summary for taken in both],
        noise=0.005,
    )
    assert (found.verdict, found.slos) == ("PASS", {})


# --- what is never green ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"validity": "INVALID"}, "is INVALID"),
        ({"interrupted": True}, "did not come to its end"),
        ({"complete": False}, "did not come to its end"),
    ],
)
def test_a_run_that_cannot_be_trusted_tells_nothing(
    runs: dict[str, Taken], changes: dict[str, Any], why: str
) -> None:
    """On either side, however good its figures are."""
    for found, role in (
        (judged(about(runs["same"], **changes), runs["a"]), "candidate same"),
        (judged(runs["same"], runs["b"], about(runs["a"], **changes)), "baseline a"),
    ):
        assert found.verdict == "INVALID"
        assert [role in fault and why in fault for fault in found.faults] == [True]


def test_what_makes_a_run_invalid_is_said(runs: dict[str, Taken]) -> None:
    """Where its summary is at hand: a red page alone should tell what to mend."""
    late = Finding(name="send_lag", effect="invalid", text="requests left late")
    summary = msgspec.structs.replace(runs["same"].summary, findings=[late])
    found = judged(about(runs["same"], validity="INVALID")._replace(summary=summary), runs["a"])
    assert found.faults == ["candidate same: its measurement is INVALID: requests left late"]


def test_answers_of_other_lengths_than_asked_are_no_comparison(runs: dict[str, Taken]) -> None:
    """A server that stops early is not faster."""
    short = Finding(name="output_tokens", effect="warning", text="")
    other = msgspec.structs.replace(runs["same"].summary, findings=[short])
    found = judged(runs["same"]._replace(summary=other), runs["a"])
    assert found.verdict == "INVALID"
    assert "output lengths" in found.faults[0]


def test_an_empty_run_is_no_good_run(runs: dict[str, Taken]) -> None:
    """No figure of it is worse, for it has none."""
    same = runs["same"].sample
    columns = [field.name for field in dataclasses.fields(Sample) if field.name != "about"]
    nothing = dataclasses.replace(same, **{name: getattr(same, name)[:0] for name in columns})
    found = judged(runs["same"]._replace(sample=nothing), runs["a"])
    assert (found.verdict, found.changes) == ("INVALID", [])
    assert "candidate same: no request of it fell due" in found.faults[0]


def test_what_one_side_lacks_is_red(runs: dict[str, Taken]) -> None:
    """Unmeasured is not passed: a server that sends all tokens at once has no gaps to compare."""
    same = runs["same"].sample
    gapless = dataclasses.replace(
        same, gap_start=same.gap_start * 0, gap_bin=same.gap_bin[:0], gap_times=same.gap_times[:0]
    )
    found = judged(runs["same"]._replace(sample=gapless), runs["a"], metrics=["itl_p99"])
    assert (found.verdict, found.changes[0].verdict) == ("UNRESOLVED", "UNRESOLVED")
    assert found.changes[0].reason


# --- what is refused, and what is noted -------------------------------------------------------------


def test_runs_of_different_plans_are_refused_with_what_differs(runs: dict[str, Taken]) -> None:
    """A difference could come from the load; --unpaired compares them all the same, and notes it."""
    with pytest.raises(
        ScenarioError, match=r"ran another plan .*: seed: 0, then 2\. .*--unpaired"
    ) as refused:
        judged(runs["other"], runs["a"])
    assert "\n" not in str(refused.value)
    found = judged(runs["other"], runs["a"], paired=False)
    assert found.paired is False
    assert "other settings: seed: 0, then 2." in found.notes


def test_one_run_on_both_sides_is_refused(runs: dict[str, Taken]) -> None:
    """Nor may it count twice: it would look as if runs did not differ."""
    for baselines in ([runs["same"]], [runs["a"], runs["a"]]):
        with pytest.raises(ScenarioError, match="is given twice"):
            judged(runs["same"], *baselines)


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"host": {"name": "ci-2", "cpus": 4}}, "another machine: "),
        ({"source": "http"}, "another way to measure: virtual, then http."),
        ({"versions": {"loadgen": "9"}}, "another version of loadgen: "),
        ({"server": {"server": "uvicorn"}}, "another server: unknown, then uvicorn."),
        ({"model": "opt-66b"}, "another model: mini-engine, then opt-66b."),
    ],
)
def test_what_else_differs_is_noted(runs: dict[str, Taken], changes: dict[str, Any], note: str) -> None:
    """It may be the reason for a change; the verdict stands."""
    found = judged(about(runs["same"], **changes), runs["a"])
    assert [said.startswith(note) for said in found.notes].count(True) == 1
    assert found.verdict == "PASS"


def test_an_engine_of_other_settings_is_noted(runs: dict[str, Taken]) -> None:
    """With the key and both values; its seed is no setting."""
    assert "other settings: engine.cost.step: 10ms, then 11.5ms." in judged(runs["slow"], runs["a"]).notes


def test_one_baseline_run_says_that_noise_is_assumed(runs: dict[str, Taken]) -> None:
    """Unless the user stated it; two runs show theirs."""

    def assumed(*baselines: Taken, noise: float | None) -> bool:
        return any("3 % is assumed" in note for note in judged(runs["same"], *baselines, noise=noise).notes)

    assert assumed(runs["a"], noise=None)
    assert not assumed(runs["a"], noise=0.01)
    assert not assumed(runs["a"], runs["b"], noise=None)


def test_simulated_figures_are_said_to_be(runs: dict[str, Taken]) -> None:
    """A simulated figure never looks measured."""
    assert any("SIMULATED" in note for note in judged(runs["same"], runs["a"]).notes)


# --- what the user asks -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "what"),
    [
        ({"metrics": ["ttft_p9"]}, "'ttft_p9' is no metric of a gate, did you mean ttft_p99?"),
        ({"metrics": []}, "metrics: a gate of none tells nothing"),
        ({"noise": "3%"}, "noise is '3%': it is a number from 0 on"),
        ({"tolerances": {"ttft_p99": 0.1}}, "the tolerance of ttft_p99 is 0.1: write Tolerance("),
        ({"metrics": ["bogus"]}, "'bogus' is no metric of a gate: choose from ttft_p50, "),
        ({"tolerances": {"tpot": Tolerance()}}, "'tpot' is no metric of a gate, did you mean tpot_mean?"),
        ({"tolerances": {"e2e_p99": Tolerance(relative=-1)}}, "the relative tolerance of e2e_p99 is -1: "),
        ({"tolerances": {"e2e_p99": Tolerance(absolute=nan)}}, "the absolute tolerance of e2e_p99 is nan: "),
        ({"noise": -0.1}, "noise is -0.1: "),
        ({"noise": nan}, "noise is nan: "),
        ({"noise": inf}, "noise is inf: "),
    ],
)
def test_what_makes_no_sense_is_refused_at_every_door(
    runs: dict[str, Taken], asked: dict[str, Any], what: str
) -> None:
    """A name that nothing has, or a tolerance that no change is within, never ends in a verdict."""
    with pytest.raises(ScenarioError) as refused:
        judged(runs["same"], runs["a"], **asked)
    assert str(refused.value).startswith(what)
    assert "\n" not in str(refused.value)
