"""One load, measured: a run folder a seed, and what all of them together say of the SLOs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import log
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from loadgen.client.unreachable import Unreachable
from loadgen.drive import conclude
from loadgen.earlier import set_aside
from loadgen.laws import Closed
from loadgen.level import at_concurrency, at_rate, pace_rps
from loadgen.looks import Looks
from loadgen.order import Order
from loadgen.records import Floats, Outcome
from loadgen.run import Run, RunHeader
from loadgen.run_folder import load
from loadgen.scenario import Scenario, ScenarioError
from loadgen.slo import AllWithin, Mean, Rate, Refused, Within, parse
from loadgen.stats import summarize
from loadgen.stats.outcomes import messages
from loadgen.stats.pooled import pooled
from loadgen.stats.summary import SloResult, Summary, Verdict
from loadgen.stats.verdict import judge, overall

Over = Literal["rate", "concurrency"]
Measure = Callable[[Order, Looks | None], Run]
BEHIND = "the server does not keep up"
FAILING = "requests fail"
_OFF = 0.05  # an excess that is known by its sign alone
_CUT_OFF = 10  # so many requests in a row without a connection: the server was away, whatever the load
_BEHIND = 0.9  # so much slower than they came requests end, where too few of them tell more


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """One load: the verdict on its `runs` together, and the figures of the curve, means over those.

    `excess`: how far the point estimate of the limiting SLO is beyond its limit, as a logarithm (of odds,
    where it is a share); at most 0 where all are met, None where the measurement cannot be trusted.
    `ended_early`: why, where a run was decided before its end. `requests`: offered, in all runs.
    `served_rps`: how fast the middle 80 % of the measured requests ended, so that neither a server that fills
    up nor the end of a short run is in it; `output_tokens_per_s`: that many times their mean length.
    `n_to_decide`: how many would decide an UNRESOLVED one, were the figures to stay; None where not known.
    """

    load: float
    folders: list[str]
    verdict: Verdict
    reason: str = ""
    excess: float | None = None
    limiting: str | None = None
    slos: list[SloResult] = []
    ended_early: str | None = None
    overloaded: bool | None = None
    requests: int = 0
    n_to_decide: int | None = None
    served_rps: float | None = None
    output_tokens_per_s: float | None = None
    ttft_p50_s: float | None = None
    ttft_p99_s: float | None = None
    itl_p99_s: float | None = None
    e2e_mean_s: float | None = None
    e2e_p50_s: float | None = None
    e2e_p99_s: float | None = None
    attainment: float | None = None
    rejection_rate: float | None = None
    error_rate: float | None = None
    in_flight_mean: float | None = None

    @property
    def runs(self) -> int:
        return len(self.folders)

    @property
    def is_clear(self) -> bool:
        """Whether more runs would tell nothing: it was decided early, or cannot be measured."""
        return self.ended_early is not None or self.verdict == "INVALID"

    @property
    def meets(self) -> bool:
        """Whether every point estimate is within its limit, the server keeping up."""
        return self.excess is not None and self.excess <= 0


class Interrupted(Exception):  # noqa: N818  a wish, not an error
    """The user ended a probe, and the search with it."""


# --- measured -----------------------------------------------------------------------------------------------


class AnsweredBy(NamedTuple):
    """Who answered the probes, as their summaries say."""

    source: Literal["http", "virtual", "merged"] | None = None
    target: str | None = None
    model: str | None = None
    accelerators: int | None = None
    usd_per_hour: float | None = None


@dataclass(slots=True)
class Probing:
    """Measures a scenario at one load after another, each in a folder of its own below `out`.

    `virtual`: `measure` simulates, so that no run that was fired may be taken for one of its own.
    """

    scenario: Scenario
    over: Over
    out: Path
    measure: Measure
    run_id: str
    command: list[str] = field(default_factory=list)
    virtual: bool = False
    _pace_rps: float = field(init=False, default=1.0)
    answered_by: AnsweredBy = field(init=False, default=AnsweredBy())
    _folders: dict[float, list[Path]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        if self.over == "rate":
            self._pace_rps = pace_rps(self.scenario)

    @property
    def own_load(self) -> float:
        """The scenario's."""
        law = self.scenario.load.arrivals
        return float(law.concurrency) if isinstance(law, Closed) else self._pace_rps

    def probe(self, at: float, runs: int) -> Probe:
        """So many runs at a load, of which those that were made already count."""
        folders = self._folders.setdefault(at, [])
        made = [load_judged(folder, self.scenario) for folder in folders]
        while len(made) < runs:
            made.append(self._run(at, len(made)))
        last = made[-1][1]
        self.answered_by = AnsweredBy(*(getattr(last, name) for name in AnsweredBy._fields))
        return _probe(at, [folder.name for folder in folders], made, with_users=self.over == "concurrency")

    def _run(self, at: float, repeat: int) -> tuple[Run, Summary]:
        from loadgen.workload import draw

        scenario = self._at(at, repeat)
        plan = draw(scenario)
        word = f"{self.over}={at:g}-seed{scenario.seed}"
        folder = self._kept(word, scenario, plan.digest())
        if folder is not None:
            self._folders[at].append(folder)
            return load_judged(folder, self.scenario)
        for _ in range(2):  # a server that was away may be back
            number = 1 + len([*self.out.glob("*[0-9][0-9][0-9]-*=*-seed*")])
            folder = self.out / f"{number:03}-{word}"
            order = Order(scenario, plan, folder, f"{self.run_id}-{number:03}", self.command)
            run = self.measure(order, None if repeat else Looks(plan))
            if run.header.interrupted:
                raise Interrupted
            summary = conclude(run, folder)
            if (cut_off := _cut_off(run)) is None:
                self._folders[at].append(folder)
                return run, summary
            set_aside(folder)
        where = f"{self.scenario.target.base_url}: " if self.scenario.target else ""
        raise Unreachable(f"{where}at a {self.over} of {at:g}, twice, {cut_off}: see whether it still runs")

    def _at(self, at: float, repeat: int) -> Scenario:
        """The scenario at a load; a repeat has the next seed, of its plan and of its engine."""
        one = at_concurrency(self.scenario, at) if self.over == "concurrency" else None
        one = one or at_rate(self.scenario, at, self._pace_rps)
        engine = one.engine.model_copy(update={"seed": one.engine.seed + repeat})
        return one.model_copy(update={"seed": one.seed + repeat, "engine": engine, "repeats": 1})

    def _kept(self, word: str, scenario: Scenario, digest: str) -> Path | None:
        """The folder of a run that was made before.

        One that did not come to its end, or cannot be trusted, is set aside: it is to be made again.
        """
        folder = next(self.out.glob(f"[0-9][0-9][0-9]-{word}"), None)
        if folder is None:
            return None
        header = _header(folder)
        if header is None:
            set_aside(folder)
            return None
        was, asked = header.scenario, scenario.as_asked()
        same = header.plan_digest == digest and was | {"slos": 0} == asked | {"slos": 0}
        same &= (header.source == "virtual") == self.virtual
        if not same or (header.ended_early is not None and was["slos"] != asked["slos"]):
            raise ScenarioError(
                f"{folder} is a probe of another scenario, or of other flags: "
                "choose another folder with --out"
            )
        return folder


def _header(folder: Path) -> RunHeader | None:
    """None where the run in `folder` is of no use."""
    try:
        run = load(folder)
    except ScenarioError:
        return None
    is_fit = run.header.is_whole and _cut_off(run) is None and _unfit(summarize(run)) is None
    return run.header if is_fit else None


def load_judged(folder: Path, scenario: Scenario) -> tuple[Run, Summary]:
    """A run that was kept, and its summary, by the SLOs that are asked for now."""
    run = load(folder)
    run.header.scenario["slos"] = scenario.as_asked()["slos"]
    return run, conclude(run, folder)


# --- judged -------------------------------------------------------------------------------------------------


def _probe(at: float, folders: list[str], made: list[tuple[Run, Summary]], *, with_users: bool) -> Probe:
    good = [pair for pair in made if _unfit(pair[1]) is None]
    early = next((run.header.ended_early.why for run, _ in made if run.header.ended_early), None)
    if not good:
        why = _unfit(made[-1][1]) or ""
        return Probe(load=at, folders=folders, verdict="INVALID", reason=why, ended_early=early)
    runs, summaries = [run for run, _ in good], [summary for _, summary in good]
    whole = _together(summaries, with_users=with_users)
    results = judge(pooled(runs), whole)
    excess, limiting = _excess(results, is_behind=any(map(_is_behind, runs, summaries)))
    figures = _figures(runs, summaries)
    if _fail_alone(limiting, results, figures["error_rate"]):
        limiting = FAILING
    verdict = overall(results)
    assert verdict is not None
    return Probe(
        load=at,
        folders=folders,
        verdict=verdict,
        reason=next((f"{r.slo}: {r.reason}" for r in results if r.verdict == verdict and r.reason), ""),
        excess=excess,
        limiting=limiting,
        slos=results,
        ended_early=early,
        overloaded=whole.overloaded,
        requests=sum(s.offered for s in summaries),
        n_to_decide=max((r.n_to_decide for r in results if r.n_to_decide), default=None),
        **figures,
    )


def _unfit(s: Summary) -> str | None:
    """Why a measurement cannot be trusted, and what to do; None where it can."""
    invalid = [finding for finding in s.findings if finding.effect == "invalid"]
    return ": ".join(filter(None, [invalid[0].text, invalid[0].remedy])) if invalid else None


def _cut_off(run: Run) -> str | None:
    """What befell many requests in a row without a connection, or all: no answer to how much a server takes.

    None where no such thing did. Single ones that fail under load are an answer.
    """
    offered = run.records.only(run.records.offered)
    r = offered.at(np.argsort(offered.due_s, kind="stable"))
    lost = r.has(Outcome.CONNECT_ERROR, Outcome.BROKEN)
    longest = int(np.diff(np.flatnonzero(np.r_[True, ~lost, True])).max()) - 1
    if longest < min(_CUT_OFF, max(len(r), 1)):
        return None
    said = "; ".join(text for text, _ in messages(r.only(lost)))
    return f"{longest} requests in a row had no connection ({said})"


def _is_behind(run: Run, s: Summary) -> bool:
    """Whether requests pile up, or, where they are too few to say, end clearly slower than they came."""
    if s.overloaded is not None:
        return s.overloaded
    rows = run.records.measured & run.records.has(Outcome.OK)
    came, ended = _middle_rps(run.records.due_s[rows]), _middle_rps(run.records.ended_s[rows])
    return came is not None and ended is not None and ended < _BEHIND * came


def _together(summaries: list[Summary], *, with_users: bool) -> Summary:
    """What of all runs bears on SLOs. Over users, what is searched is what a closed loop of so many gets."""
    known = {s.overloaded for s in summaries}
    return msgspec.structs.replace(
        summaries[0],
        overloaded=True if True in known else None if None in known else False,
        closed_loop=summaries[0].closed_loop and not with_users,
        itl_valid=all(s.itl_valid for s in summaries),
        findings=[finding for s in summaries for finding in s.findings],
    )


def _excess(results: list[SloResult], *, is_behind: bool) -> tuple[float | None, str | None]:
    known = [(over, r.name) for r in results if (over := _beyond(r)) is not None]
    excess, limiting = max(known, default=(None, None))
    if is_behind and (excess is None or excess <= 0) and any(_is_of_latency(r) for r in results):
        return _OFF, BEHIND
    return excess, limiting


def _fail_alone(limiting: str | None, results: list[SloResult], error_rate: float | None) -> bool:
    """Whether requests that failed miss that limit of a latency, however quick the others were."""
    slo = next((parse(r.slo) for r in results if r.name == limiting and r.class_ is None), None)
    return isinstance(slo, Within) and error_rate is not None and error_rate > 1 - slo.least


def _is_of_latency(result: SloResult) -> bool:
    return isinstance(parse(result.slo), Within | AllWithin | Mean)


def _beyond(result: SloResult) -> float | None:
    """How far the figure is beyond its limit: a miss above 0, and about linear in the load near it."""
    if (value := result.value) is None:
        return None
    match parse(result.slo):
        case Within(least=limit):
            return _log_odds(limit, result.n) - _log_odds(value, result.n)
        case Refused(most=limit):
            return _log_odds(value, result.n) - _log_odds(limit, result.n)
        case AllWithin():
            return -_OFF if value == 1 else _OFF
        case Mean(limit_s=limit):
            return log(max(value, 1e-9) / limit)
        case Rate(least=limit):
            return log(limit / max(value, 1e-9))


def _log_odds(share: float, n: int) -> float:
    least = 0.5 / max(n, 1)
    share = min(max(share, least), 1 - least)
    return log(share / (1 - share))


def _figures(runs: list[Run], summaries: list[Summary]) -> dict[str, float | None]:
    names = ("rejection_rate", "error_rate", "in_flight_mean")
    found = {name: _mean(getattr(s, name) for s in summaries) for name in names}
    served = [_served(run) for run in runs]
    found["served_rps"] = _mean(rps for rps, _ in served)
    found["output_tokens_per_s"] = _mean(tokens for _, tokens in served)
    for metric, stat in (("ttft", "p50"), ("ttft", "p99"), ("itl", "p99"), ("e2e", "p50"), ("e2e", "p99")):
        adjusted = (s.metrics[f"{metric}_s"].adjusted[stat] for s in summaries)
        found[f"{metric}_{stat}_s"] = _mean(adjusted)
    found["e2e_mean_s"] = _mean(s.metrics["e2e_s"].mean for s in summaries)
    found["attainment"] = _mean(s.goodput.attainment if s.goodput else None for s in summaries)
    return found


def _served(run: Run) -> tuple[float | None, float | None]:
    """Requests, and output tokens, a second."""
    r = run.records
    rows = r.measured & r.has(Outcome.OK)
    rps = _middle_rps(r.ended_s[rows])
    return rps, None if rps is None else rps * float(r.received_tokens[rows].mean())


def _middle_rps(instants_s: Floats) -> float | None:
    """Of the middle 80 %."""
    if len(instants_s) < 2:
        return None
    first_s, last_s = np.quantile(instants_s, [0.1, 0.9])
    return 0.8 * (len(instants_s) - 1) / float(last_s - first_s) if last_s > first_s else None


def _mean(values: Iterable[float | None]) -> float | None:
    """None where it is unknown, or infinite, for any."""
    every = [*values]
    known = [value for value in every if value is not None]
    return float(np.mean(known)) if len(known) == len(every) else None
