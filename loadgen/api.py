"""loadgen from Python: ask, run, judge. A second door, beside the command line.

    from loadgen import judge, run

    def test_chat_is_fast_enough():
        verdict = judge(run("chat.yaml"), ["p99(ttft) <= 500ms", "error_rate <= 0.1%"])
        assert verdict.passed, verdict

Times are seconds, rates are per second, shares go from 0 to 1; None is unknown or undefined. Nothing prints,
and no signal is caught: Ctrl-C raises KeyboardInterrupt.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import msgspec

from loadgen import drive, shipped
from loadgen.compare import Comparison
from loadgen.compare import compare as side_by_side
from loadgen.grid import changed
from loadgen.run import Run
from loadgen.run import load as run_in
from loadgen.scenario import Scenario, ScenarioError, build
from loadgen.scenario import load as scenario_in
from loadgen.stats import Finding, SloResult, Summary, Verdict, summarize
from loadgen.workload import draw

Asked = Scenario | Mapping[str, Any] | str | Path
"""A Scenario, the path of a YAML file, the name of a shipped scenario, or plain data, keyed as in YAML."""


def read_scenario(asked: Asked, changes: Mapping[str, Any] | None = None) -> Scenario:
    """The scenario that is asked, with `changes` by key path: `{"load.arrivals.rate": "20/s"}`.

    Values are written as in YAML, with their units. Raises ScenarioError.
    """
    match asked:
        case Scenario():
            read = asked
        case str():
            read = shipped.read(asked)
        case Path():
            read = scenario_in(asked)
        case _:
            read = build(dict(asked), "scenario")
    return changed(read, changes, "changes") if changes else read


def run(
    scenario: Asked,
    out: Path | str | None = None,
    *,
    api_key: str | None = None,
    preflight: bool = True,
    wait_ready_s: float | None = None,
) -> Run:
    """Fire the scenario's plan over HTTP, in real time; without a target the bundled engine answers.

    out: an empty or new folder for the run's files. None: none is kept, and the Run has everything in memory.
    api_key: the key to the target; None: what the variable that target.api_key_env names holds.
    preflight: look at the server and its model before any load. wait_ready_s: wait at most so long for it.
    Of the environment nothing else is read: a proxy is asked for in `target.proxy`.

    Where an event loop runs already (a notebook), await `run_async`.

    Raises ScenarioError for what cannot be asked, Unreachable where the server is not there or refuses us,
    WriteError where records cannot be written.
    """
    from loadgen.client.headroom import allow_many_descriptors

    work = run_async(scenario, out, api_key=api_key, preflight=preflight, wait_ready_s=wait_ready_s)
    allow_many_descriptors()
    if sys.platform == "win32":
        return asyncio.run(work)
    import uvloop

    return uvloop.run(work)


async def run_async(
    scenario: Asked,
    out: Path | str | None = None,
    *,
    api_key: str | None = None,
    preflight: bool = True,
    wait_ready_s: float | None = None,
) -> Run:
    """As `run`, on the event loop that is running. What else it does delays requests, and is judged."""
    asked = _single(scenario)
    with _folder(out) as folder:
        order = _order(asked, folder)
        done = await _fired(order, api_key, preflight, wait_ready_s)
        if out is not None:
            drive.conclude(done, folder)
    return done


def simulate(scenario: Asked, out: Path | str | None = None) -> Run:
    """The scenario's plan on the bundled engine in virtual time: nothing is sent, and it takes a moment.

    out: as of `run`. Raises ScenarioError, also for a scenario with a target; WriteError.
    """
    asked = _single(scenario)
    if asked.target is not None:
        raise ScenarioError("target: only the bundled engine can be simulated")
    with _folder(out) as folder:
        done = drive.simulate(_order(asked, folder))
        if out is not None:
            drive.conclude(done, folder)
    return done


def load(folder: Path | str) -> Run:
    """The run in a folder that `run`, `simulate` or the command line left. Raises ScenarioError."""
    return run_in(Path(folder))


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """What SLOs came to. `verdict`: of all together, INVALID before FAIL before UNRESOLVED before PASS.

    `slos`: each, with the figure it hangs on and its bounds. `findings`: what speaks against the measurement.
    """

    verdict: Verdict
    slos: list[SloResult]
    findings: list[Finding]

    @property
    def passed(self) -> bool:
        """Whether all hold. One that cannot be told does not."""
        return self.verdict == "PASS"

    def __str__(self) -> str:
        """Some lines for whom an assertion failed."""
        found = [f"{f.effect}: {f.text}. {f.remedy}".rstrip(". ") for f in self.findings]
        return "\n".join([self.verdict, *map(_told, self.slos), *found])


def _told(r: SloResult) -> str:
    found = "no figure" if r.value is None else f"found {r.value:.4g} of {r.n:,}"
    bounds = "" if r.low is None or r.high is None else f", between {r.low:.4g} and {r.high:.4g}"
    name = f"{r.class_}: {r.slo}" if r.class_ else r.slo
    return f"{r.verdict} {name}: {found}{bounds}{r.reason and '; '}{r.reason}"


def judge(run: Run, slos: Sequence[str] | str | None = None) -> Judgement:
    """Hold a run against SLOs, such as "p99(ttft) <= 500ms".

    slos: instead of the scenario's own (those of its classes stand); None: the scenario's.
    Raises ScenarioError where one cannot be read, or there is none.
    """
    summary = summarize(run if slos is None else _promising(run, [slos] if isinstance(slos, str) else slos))
    if summary.verdict is None:
        raise ScenarioError('slos: there is none to judge by: give one, such as "p99(ttft) <= 500ms"')
    against = [finding for finding in summary.findings if finding.effect != "info"]
    return Judgement(verdict=summary.verdict, slos=summary.slos, findings=against)


def _promising(run: Run, slos: Sequence[str]) -> Run:
    scenario = run.header.scenario | {"slos": list(slos)}
    asked = build(scenario, "judge", unknown="ignore").as_asked()
    header = msgspec.structs.replace(run.header, scenario=scenario | {"slos": asked["slos"]})
    return Run(header, run.records, run.torn_lines)


def compare(*runs: Run, names: Sequence[str] = ()) -> Comparison:
    """Two or more runs of one plan side by side; the first is the baseline, its figures the unit of ratios.

    names: of the runs, in order; else the names of their scenarios, numbered where those are the same.
    Raises ScenarioError where plans differ. Whether a difference is more than chance, `gate` tells.
    """
    told = list(names) or _names(runs)
    if len({*told}) != len(runs):
        raise ScenarioError(f"compare: {len(runs)} runs need as many different names")
    summaries: dict[str, Summary] = dict(zip(told, map(summarize, runs), strict=True))
    return side_by_side(summaries, {name: s.plan_digest for name, s in summaries.items()})


def _names(runs: Sequence[Run]) -> list[str]:
    names = [run.header.name for run in runs]
    return names if len({*names}) == len(names) else [f"{name} {i}" for i, name in enumerate(names, 1)]


# --- a run --------------------------------------------------------------------------------------------------


def _single(scenario: Asked) -> Scenario:
    asked = read_scenario(scenario)
    if asked.variants:
        raise ScenarioError("variants: one run is of one of them: give scenario.single(name)")
    if asked.vary:
        raise ScenarioError('vary: one run is of one cell: read_scenario(asked, {"vary": {}, key: value})')
    return asked


def _order(asked: Scenario, folder: Path) -> drive.Order:
    return drive.Order(asked, draw(asked), folder, drive.new_run_id(asked.name))


@contextmanager
def _folder(out: Path | str | None) -> Iterator[Path]:
    """`out`, or one that is removed; that of a run that broke stays, and the error says where."""
    if out is not None:
        yield Path(out)
        return
    folder = Path(mkdtemp(prefix="loadgen-"))
    broke = True
    try:
        yield folder
        broke = False
    finally:
        if not (broke and (folder / "run.json").is_file()):
            shutil.rmtree(folder)


async def _fired(order: drive.Order, api_key: str | None, looks: bool, wait_ready_s: float | None) -> Run:
    from loadgen.client import Counters, Stop
    from loadgen.client.headroom import check
    from loadgen.client.preflight import preflight, wait_ready
    from loadgen.client.secrets import key_in
    from loadgen.client.word_tokens import mean_of_words

    scenario, plan, target = order.scenario, order.plan, order.scenario.target
    notes, found = check(plan, scenario), None
    key = api_key or key_in(os.environ, target.api_key_env if target else None)
    if target and wait_ready_s is not None:
        await wait_ready(target, key, wait_ready_s, scenario.timeouts.connect_s)
    if target and looks:
        words = mean_of_words(plan)
        asks = scenario.load.ignore_eos
        found = await preflight(target, key, scenario.timeouts, ignore_eos=asks, mean_of_words=words)
    async with AsyncExitStack() as stack:
        is_bundled = target is None
        if target is None:
            target = await stack.enter_async_context(drive.bundled_server(scenario, plan))
        return await drive.fire(
            order,
            target,
            preflight=found,
            api_key=key,
            counters=Counters(),
            stop=Stop(),
            is_bundled=is_bundled,
            notes=notes,
        )
