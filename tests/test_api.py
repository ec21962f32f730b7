"""loadgen from Python: what a test of a user's own relies on."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import loadgen
from loadgen import (
    Run,
    Scenario,
    ScenarioError,
    Summary,
    Tolerance,
    Unreachable,
    compare,
    find_capacity,
    gate,
    judge,
    load,
    merge,
    read_scenario,
    run,
    run_async,
    simulate,
    summarize,
)
from loadgen.laws import Constant
from tests.fakes import ScriptedServer, stream_reply

CHAT: dict[str, Any] = {
    "name": "chat",
    "engine": {"max_sequences": 4, "cost": {"kind": "fixed", "step": "10ms"}},
    "load": {"arrivals": {"kind": "constant", "rate": "5/s"}, "num_requests": 400, "output_tokens": 4},
}


def python(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True, timeout=60
    ).stdout


def test_a_name_is_what_one_does_whatever_was_imported_before() -> None:
    """`loadgen.run` is callable also after the module of that name was read, in either way of importing."""
    code = """
import loadgen.run, loadgen.compare, loadgen.load, loadgen.gate
from loadgen.run import Run
from loadgen import run, compare, load, gate
same = loadgen.run, loadgen.compare, loadgen.load, loadgen.gate, run, compare, load, gate
print(all(map(callable, same)))
print(isinstance(Run, type), sorted({"run", "Scenario"} & set(dir(loadgen))))
"""
    assert python(code).split("\n")[:2] == ["True", "True ['Scenario', 'run']"]


def test_importing_the_package_reads_nothing_heavy() -> None:
    """Not even its own rooms."""
    heavy = "numpy", "pydantic", "scipy", "loadgen.scenario", "asyncio"
    assert python(f"import sys, loadgen; print([m for m in {heavy!r} if m in sys.modules])").strip() == "[]"


def test_every_name_it_promises_is_there() -> None:
    """And no other."""
    for name in set(dir(loadgen)) - {"annotations"}:
        assert getattr(loadgen, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'simulat'"):
        _ = loadgen.simulat


def test_a_scenario_is_asked_for_by_any_of_its_forms(tmp_path: Path) -> None:
    """Plain data, a file, a shipped name, a Scenario; changed by key path."""
    path = tmp_path / "chat.yaml"
    path.write_text(json.dumps(CHAT))
    faster = {"load.arrivals.rate": "8/s"}
    for asked in (CHAT, path, str(path), read_scenario(CHAT)):
        found = read_scenario(asked, faster)
        assert isinstance(found, Scenario)
        assert found.name == "chat"
        assert isinstance(found.load.arrivals, Constant)
        assert found.load.arrivals.rate_rps == 8
    assert read_scenario("quickstart").name == "quickstart"


@pytest.mark.parametrize(
    ("asked", "changes", "rule"),
    [
        ({"load": {"arivals": 1}}, None, r"did you mean arrivals\?"),
        (CHAT, {"load.arrivals.rate": "fast"}, r"\(changes, load.arrivals.rate: 'fast'\)"),
        ("quickstrt", None, r"did you mean quickstart\?"),
    ],
)
def test_a_mistake_is_named(asked: Any, changes: dict[str, Any] | None, rule: str) -> None:
    """As on the command line."""
    with pytest.raises(ScenarioError, match=rule):
        read_scenario(asked, changes)


def test_a_star_imports_what_is_promised_and_no_other() -> None:
    """Functions, not the modules of the same names; nothing of how the package is made."""
    code = "from loadgen import *; print(sorted(n for n in dir() if n[:1] != '_')); print(callable(run))"
    names, are_callable = python(code).splitlines()
    assert {"run", "merge", "judge", "Scenario", "ScenarioError"} <= {*ast.literal_eval(names)}
    assert not {"import_module", "sys", "Any", "annotations"} & {*ast.literal_eval(names)}
    assert are_callable == "True"


def test_shards_of_one_run_are_merged_to_the_whole() -> None:
    """Odd rows and even rows, of two processes say, mean together what all of them mean."""
    whole = simulate(CHAT)
    odd = whole.records.index % 2 == 1
    shards = [Run(whole.header, whole.records.only(rows)) for rows in (odd, ~odd)]
    assert summarize(merge(shards)).metrics == summarize(whole).metrics


@pytest.mark.parametrize("make", [run, simulate])
def test_repeats_are_not_passed_over(make: Callable[[dict[str, Any]], Run]) -> None:
    """One call is one run; it says how to have more."""
    with pytest.raises(ScenarioError, match=r"^repeats: this makes one run, and 3 are asked for: call it so"):
        make(CHAT | {"repeats": 3})


def test_a_simulation_leaves_nothing_behind_unless_it_is_told_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without `out` the run is in memory alone; with it the folder reads back as the same run."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "t"))
    (tmp_path / "t").mkdir()
    monkeypatch.chdir(tmp_path)
    found = simulate(CHAT)
    assert isinstance(found, Run)
    assert [*tmp_path.rglob("*")] == [tmp_path / "t"]
    kept = simulate(CHAT, tmp_path / "kept")
    assert kept.records.ended_s.tolist() == found.records.ended_s.tolist()
    summary = summarize(load(tmp_path / "kept"))
    assert isinstance(summary, Summary)
    assert summary.source == "virtual"
    assert (tmp_path / "kept" / "summary.json").is_file()


def test_a_run_that_breaks_keeps_what_was_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The temporary folder stays, and the error says where it is."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def breaks(_folder: Path) -> Run:
        raise RuntimeError("cut")

    monkeypatch.setattr(sys.modules["loadgen.drive"], "load", breaks)
    with pytest.raises(RuntimeError, match="cut"):
        simulate(CHAT)
    (folder,) = tmp_path.iterdir()
    assert (folder / "records.jsonl").is_file()


@pytest.mark.parametrize(
    ("more", "rule"),
    [
        ({"target": {"base_url": "http://127.0.0.1:1"}}, "only the bundled engine can be simulated"),
        ({"variants": {"a": {}, "b": {"engine": {"max_sequences": 1}}}}, r"give scenario.single\(name\)"),
        ({"vary": {"seed": [1, 2]}}, r"one run is of one cell"),
    ],
)
def test_what_is_not_one_simulation_is_refused(more: dict[str, Any], rule: str) -> None:
    """With what to do instead."""
    with pytest.raises(ScenarioError, match=rule):
        simulate(CHAT | more)


def test_an_assertion_that_fails_says_what_was_found() -> None:
    """4 tokens in steps of 10 ms last 40 ms: within 50 ms is kept, within 30 ms is not."""
    found = simulate(CHAT)
    good = judge(found, "p99(e2e) <= 50ms")
    assert good.passed
    assert good.verdict == "PASS"
    bad = judge(found, ["p99(e2e) <= 50ms", "p99(e2e) <= 30ms"])
    assert not bad.passed
    lines = str(bad).splitlines()
    assert lines[0] == "FAIL"
    assert lines[1].startswith("PASS p99(e2e) <= 50ms: found 100 % of 400, between 99.")
    assert lines[2].startswith("FAIL p99(e2e) <= 30ms: found 0 % of 400")
    assert all(line in repr(bad) for line in lines)  # which is what pytest shows
    assert "\n" not in repr(bad)
    rates = str(judge(found, ["mean(e2e) <= 50ms", "output_tokens_per_s >= 1"]))
    assert "found 0.04 s of 400" in rates
    assert "found 0 %" not in rates


def test_too_few_requests_do_not_pass() -> None:
    """Of 20 no p99 can be told: neither passed nor failed."""
    few = judge(simulate(CHAT | {"load": CHAT["load"] | {"num_requests": 20}}), "p99(e2e) <= 50ms")
    assert (few.verdict, few.passed) == ("UNRESOLVED", False)
    assert "too few to tell" in str(few)


def test_the_scenarios_own_slos_are_judged_by_where_no_others_are_given() -> None:
    """And without any there is no verdict to give."""
    assert judge(simulate(CHAT | {"slos": ["p99(e2e) <= 50ms"]})).passed
    with pytest.raises(ScenarioError, match="there is none to judge by"):
        judge(simulate(CHAT))
    with pytest.raises(ScenarioError, match=r"did you mean ttft\?"):
        judge(simulate(CHAT), "p99(tftt) <= 1s")
    with pytest.raises(ScenarioError, match="slos: 5 is none"):
        judge(simulate(CHAT), 5)  # type: ignore[arg-type]


def test_runs_of_one_plan_are_compared_and_of_two_are_not() -> None:
    """Half the step time halves the E2E; names are the scenarios' own, numbered where they are one."""
    slow, fast = simulate(CHAT), simulate(read_scenario(CHAT, {"engine.cost.step": "5ms"}))
    found = compare(slow, fast)
    assert [*found.variants] == ["chat 1", "chat 2"]
    row = next(row for row in found.rows if row.key == "e2e_p50_s")
    assert row.ratios["chat 2"] == pytest.approx(0.5)
    assert [*compare(slow, fast, names=["old", "new"]).variants] == ["old", "new"]
    with pytest.raises(ScenarioError, match="another plan"):
        compare(slow, simulate(read_scenario(CHAT, {"load.num_requests": 300})))
    with pytest.raises(ScenarioError, match="2 runs need as many different names"):
        compare(slow, fast, names=["a", "a"])


def test_a_gate_of_runs_and_folders_finds_a_slower_engine(tmp_path: Path) -> None:
    """A tenth longer steps are 10 % more TPOT: more than 5 %, less than 15 %; the same runs pass."""
    jitter = {"engine": CHAT["engine"] | {"jitter": {"step": 0.05}}}
    seeds = [read_scenario(CHAT | jitter, {"engine.seed": seed}) for seed in range(1, 8)]
    old = [simulate(asked, tmp_path / str(i)) for i, asked in enumerate(seeds[:5])]
    same = simulate(seeds[5])
    slower = simulate(read_scenario(seeds[6], {"engine.cost.step": "11ms"}))
    only = ["tpot_mean"]
    assert gate(same, [tmp_path / str(i) for i in range(5)], metrics=only).verdict == "PASS"
    found = gate([slower], old, metrics=only)
    assert found.verdict == "FAIL"
    assert found.changes[0].change == pytest.approx(0.1, abs=0.02)
    assert gate([slower], old, metrics=iter(only)).verdict == "FAIL"  # type: ignore[arg-type]
    loose = gate(slower, tmp_path, metrics=only, tolerances={"tpot_mean": Tolerance(relative=0.15)})
    assert loose.verdict == "PASS"


def test_a_capacity_is_that_of_the_queue() -> None:
    """One slot, 40 ms a request, constant arrivals: it keeps up until 25/s, and queues without end above."""
    one = read_scenario(CHAT, {"engine.max_sequences": 1, "load.num_requests": 300})
    found = find_capacity(one, "p99(e2e) <= 60ms", seeds=1)
    assert found.answer == "BOUNDED"
    assert found.load == pytest.approx(25, rel=0.03)


async def test_a_run_reaches_the_target_with_the_key_that_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """An argument goes before the variable that the scenario names; one that is not set is said."""
    burst = {"arrivals": {"kind": "burst"}, "num_requests": 2, "tail": False}
    async with ScriptedServer(stream_reply()) as server:
        target = {"base_url": server.url, "model": "tiny", "api_key_env": "THE_KEY", "metrics": "none"}
        monkeypatch.delenv("THE_KEY", raising=False)
        with pytest.raises(ScenarioError, match="the variable THE_KEY is not set"):
            await run_async({"target": target, "load": burst}, preflight=False)
        monkeypatch.setenv("THE_KEY", "sk-variable")
        for key in (None, "sk-argument"):
            found = await run_async({"target": target, "load": burst}, api_key=key, preflight=False)
            assert (found.header.source, len(found.records)) == ("http", 2)
    sent = [request.headers["authorization"] for request in server.requests]
    assert sent == ["Bearer sk-variable"] * 2 + ["Bearer sk-argument"] * 2


def test_no_server_is_said_so() -> None:
    """As Unreachable, before anything is sent; nothing is kept."""
    with pytest.raises(Unreachable, match=r"nothing listens on port 9 "):
        run({"target": {"base_url": "http://127.0.0.1:9"}, "load": CHAT["load"]})


@pytest.mark.slow
def test_the_bundled_engine_answers_over_http_where_no_target_is(tmp_path: Path) -> None:
    """A second of load is a second of load: measured, not simulated."""
    found = run(CHAT | {"load": CHAT["load"] | {"num_requests": 5}}, tmp_path / "r")
    assert found.header.source == "http"
    assert summarize(found).outcomes == {"ok": 5}
    assert (tmp_path / "r" / "vllm.json").is_file()


@pytest.mark.slow
def test_a_users_file_type_checks_strictly(tmp_path: Path) -> None:
    """What is exported has types that a strict checker sees."""
    user = tmp_path / "user.py"
    user.write_text(
        "from loadgen import Capacity, Gate, Scenario, Summary, compare, find_capacity, gate, judge\n"
        "from loadgen import load, read_scenario, run, run_async, simulate, summarize\n"
        "asked: Scenario = read_scenario('quickstart', {'load.duration': '1s'})\n"
        "summary: Summary = summarize(simulate(asked))\n"
        "print(summary.metrics['ttft_s'].quantiles['p99'], judge(run('a.yaml'), 'max(ttft) <= 1s').passed)\n"
        "found: Capacity = find_capacity(asked)\n"
        "gated: Gate = gate(load('a'), ['b', 'c'])\n"
        "print(compare(load('a'), load('b')).winner)\n"
    )
    words = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path), str(user)]
    checked = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert checked.returncode == 0, checked.stdout
