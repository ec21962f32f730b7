"""loadgen from Python: ask, run, judge. A second door, beside the command line.

    from loadgen import judge, run

    def test_chat_is_fast_enough():
        verdict = judge(run("chat.yaml"), ["p99(ttft) <= 500ms", "error_rate <= 0.1%"])
        assert verdict.passed, verdict

Times are seconds, rates are per second, shares go from 0 to 1; None is unknown or undefined. Nothing prints,
and no signal is caught: Ctrl-C raises KeyboardInterrupt.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from loadgen import drive, shipped
from loadgen.baseline import sides
from loadgen.bundled import bundled_server
from loadgen.capacity import Capacity
from loadgen.capacity import find_capacity as search
from loadgen.client.loop import on_loop
from loadgen.compare import Comparison
from loadgen.compare import compare as side_by_side
from loadgen.gate import Gate
from loadgen.gate import gate as judge_change
from loadgen.grid import changed
from loadgen.looks import Looks
from loadgen.order import Order, new_run_id
from loadgen.probe import Over, Probe
from loadgen.run import Run
from loadgen.run_folder import load as run_in
from loadgen.scenario import Scenario, ScenarioError, build
from loadgen.scenario import load as scenario_in
from loadgen.slo import Mean, Rate, Slo, parse
from loadgen.stats import Finding, SloResult, Summary, Verdict, summarize
from loadgen.stats.figures import GATED, Tolerance
from loadgen.stats.sample import Sample, sample
from loadgen.workload import draw

if TYPE_CHECKING:
    from loadgen.client.preflight import Preflight

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
    return on_loop(run_async(scenario, out, api_key=api_key, preflight=preflight, wait_ready_s=wait_ready_s))


async def run_async(
    scenario: Asked,
    out: Path | str | None = None,
    *,
    api_key: str | None = None,
    preflight: bool = True,
    wait_ready_s: float | None = None,
) -> Run:
    """As `run`, on the event loop that is running. What else it does delays requests, and is judged."""
    asked = _once(scenario)
    with _folder(out) as folder:
        order = _order(asked, folder)
        reached = await _reach(order, api_key, looks=preflight, wait_s=wait_ready_s)
        done = await _fired(order, reached)
        if out is not None:
            drive.conclude(done, folder)
    return done


def simulate(scenario: Asked, out: Path | str | None = None) -> Run:
    """The scenario's plan on the bundled engine in virtual time: nothing is sent, and it takes a moment.

    out: as of `run`. Raises ScenarioError, also for a scenario with a target; WriteError.
    """
    asked = _once(scenario)
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

    def __repr__(self) -> str:
        return f"<Judgement: {'; '.join(str(self).splitlines())}>"


def _told(r: SloResult) -> str:
    slo = parse(r.slo)
    found = "no figure" if r.value is None else f"found {_figure(slo, r.value)} of {r.n:,}"
    bounds = ""
    if r.low is not None and r.high is not None:
        bounds = f", between {_figure(slo, r.low)} and {_figure(slo, r.high)}"
    return f"{r.verdict} {r.name}: {found}{bounds}{r.reason and '; '}{r.reason}"


def _figure(slo: Slo, value: float) -> str:
    match slo:
        case Mean():
            return f"{value:.4g} s"
        case Rate():
            return f"{value:.4g}/s"
        case _:
            return f"{100 * value:.4g} %"


def judge(run: Run, slos: Sequence[str] | str | None = None) -> Judgement:
    """Hold a run against SLOs, such as "p99(ttft) <= 500ms".

    slos: instead of the scenario's own (those of its classes stand); None: the scenario's.
    Raises ScenarioError where one cannot be read, or there is none.
    """
    if run.header.shard is not None:
        raise ScenarioError(f"judge: the run is shard {run.header.shard}: merge all, and judge the whole")
    summary = summarize(run if slos is None else run.promising(_listed(slos)))
    if summary.verdict is None:
        raise ScenarioError('slos: there is none to judge by: give one, such as "p99(ttft) <= 500ms"')
    against = [finding for finding in summary.findings if finding.effect != "info"]
    return Judgement(verdict=summary.verdict, slos=summary.slos, findings=against)


def _listed(slos: Sequence[str] | str) -> list[str]:
    if not isinstance(slos, Iterable):
        raise ScenarioError(f'slos: {slos!r} is none: give some, such as "p99(ttft) <= 500ms"')
    return [slos] if isinstance(slos, str) else [*slos]


def compare(*runs: Run, names: Sequence[str] = ()) -> Comparison:
    """Two or more runs of one plan side by side; the first is the baseline, its figures the unit of ratios.

    names: of the runs, in order; else the names of their scenarios, numbered where those are the same.
    Raises ScenarioError where plans differ. Whether a difference is more than chance, `gate` tells.
    """
    told = list(names) or _names(runs)
    if len({*told}) != len(runs):
        raise ScenarioError(f"compare: {len(runs)} runs need as many different names")
    summaries: dict[str, Summary] = dict(zip(told, map(summarize, runs), strict=True))
    scenarios = {name: run.header.scenario for name, run in zip(told, runs, strict=True)}
    return side_by_side(summaries, {name: s.plan_digest for name, s in summaries.items()}, scenarios)


def _names(runs: Sequence[Run]) -> list[str]:
    names = [run.header.name for run in runs]
    return names if len({*names}) == len(names) else [f"{name} {i}" for i, name in enumerate(names, 1)]


def gate(
    candidates: Run | Path | str | Sequence[Run | Path | str],
    baselines: Run | Path | str | Sequence[Run | Path | str],
    *,
    tolerances: Mapping[str, Tolerance] | None = None,
    noise: float | None = None,
    paired: bool = True,
    metrics: Sequence[str] = GATED,
) -> Gate:
    """Did the candidate get worse than the baseline, by more than is allowed? See `Gate.verdict`.

    Either side: a Run, a run folder, a baseline file, a folder of several, or several of these. The more
    runs, the better the noise between them is known; with one baseline 3 % is assumed for the difference of
    two runs.
    tolerances: by metric, {"ttft_p99": Tolerance(relative=0.1, absolute=0.02)}; others keep their own.
    noise: the standard deviation of one run's figure between runs of the same, relative, instead of what
    they show.
    paired: pair requests by index, which takes runs of one plan. metrics: those that are gated.

    Raises ScenarioError where a side is empty, pairs cannot be made, or a metric or a number cannot be.
    """
    new, old = [*_sides(candidates)], [*_sides(baselines)]
    return judge_change(
        [each for each, _ in new],
        [each for each, _ in old],
        summaries=[summary for _, summary in (*new, *old) if summary is not None],
        tolerances=tolerances or {},
        noise=noise,
        paired=paired,
        metrics=metrics,
    )


def _sides(given: Run | Path | str | Sequence[Run | Path | str]) -> Iterator[tuple[Sample, Summary | None]]:
    for one in [given] if isinstance(given, Run | Path | str) else given:
        if isinstance(one, Run):
            summary = summarize(one)
            yield sample(one, summary), summary
        else:
            yield from ((side.sample, side.summary) for side in sides(Path(one)))


def find_capacity(
    scenario: Asked,
    slos: Sequence[str] | str = (),
    out: Path | str | None = None,
    *,
    over: Over | None = None,
    resolution: float = 0.02,
    seeds: int | None = None,
    most_runs: int = 60,
    usd_per_hour: float | None = None,
    api_key: str | None = None,
    on_probe: Callable[[Probe, Capacity], None] = lambda _probe, _so_far: None,
) -> Capacity:
    """The highest load at which the scenario meets `slos` (without any: its own): requests/s, or users.

    With a target, each load is fired at it; without, the bundled engine is searched in virtual time.
    out: keeps each probe, and a search with the same `out` goes on from those. over: "rate" or "concurrency";
    by default what the scenario's load has. resolution: how near, as a share, the last load that meets the
    SLOs is to the first that misses them. seeds: runs at one load at most (by default the
    scenario's repeats, or 3); most_runs: in all. usd_per_hour: what the server costs. on_probe:
    told of each load, and of what is known so far.

    Raises ScenarioError for a load that cannot be scaled, and without SLOs; Unreachable; WriteError.
    """
    asked = _single(scenario)
    reached: list[_Reached] = []  # the target is looked at once, before the first probe

    def measured(order: Order, looks: Looks | None) -> Run:
        async def work() -> Run:
            if not reached:
                reached.append(await _reach(order, api_key))
            return await _fired(order, reached[0], looks)

        return on_loop(work())

    return search(
        asked,
        _listed(slos),
        over=over,
        out=None if out is None else Path(out),
        measure=measured if asked.target else None,
        resolution=resolution,
        seeds=seeds,
        most_runs=most_runs,
        usd_per_hour=usd_per_hour,
        on_probe=on_probe,
    )


# --- a run --------------------------------------------------------------------------------------------------


def _single(scenario: Asked) -> Scenario:
    asked = read_scenario(scenario)
    if asked.variants:
        raise ScenarioError("variants: one run is of one of them: give scenario.single(name)")
    if asked.vary:
        raise ScenarioError('vary: one run is of one cell: read_scenario(asked, {"vary": {}, key: value})')
    return asked


def _once(scenario: Asked) -> Scenario:
    asked = _single(scenario)
    if asked.repeats > 1:
        raise ScenarioError(
            f"repeats: this makes one run, and {asked.repeats} are asked for: call it so often, "
            'each time with another engine.seed, of read_scenario(asked, {"repeats": 1})'
        )
    return asked


def _order(asked: Scenario, folder: Path) -> Order:
    return Order(asked, draw(asked), folder, new_run_id(asked.name))


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


class _Reached(NamedTuple):
    """The scenario's target, looked at before any load, and its key; the bundled engine needs neither."""

    key: str | None
    preflight: Preflight | None


async def _reach(
    order: Order, api_key: str | None, *, looks: bool = True, wait_s: float | None = None
) -> _Reached:
    from loadgen.client.preflight import preflighted
    from loadgen.client.secrets import key_in

    asked = order.scenario
    if (target := asked.target) is None:
        return _Reached(None, None)
    key = api_key or key_in(os.environ, target.api_key_env)
    found = await preflighted(asked, order.plan, target, key, looks=looks, wait_ready_s=wait_s)
    return _Reached(key, found)


async def _fired(order: Order, reached: _Reached, looks: Looks | None = None) -> Run:
    from loadgen.client.control import Counters, Stop
    from loadgen.client.headroom import check

    scenario, plan, target = order.scenario, order.plan, order.scenario.target
    notes = check(plan, scenario)
    is_bundled = target is None
    async with AsyncExitStack() as stack:
        if target is None:
            target = await stack.enter_async_context(bundled_server(scenario, plan))
        return await drive.fire(
            order,
            target,
            preflight=reached.preflight,
            api_key=reached.key,
            counters=Counters(),
            stop=Stop(),
            is_bundled=is_bundled,
            notes=notes,
            looks=looks,
        )
