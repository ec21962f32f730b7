"""The highest load that meets the SLOs: bracketed, bisected, its edges decided, its curve kept."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from math import ceil, inf, log
from numbers import Integral, Real
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Literal

import msgspec

from loadgen import drive
from loadgen.client.unreachable import Unreachable
from loadgen.edges import Search, Spent, between, crossing, edges, follows, settled
from loadgen.laws import Closed
from loadgen.looks import Looks
from loadgen.order import Order, new_run_id
from loadgen.plan import Phase
from loadgen.probe import AnsweredBy, Interrupted, Measure, Over, Probe, Probing
from loadgen.run import Run, Source
from loadgen.run_folder import make_folder
from loadgen.scenario import Scenario, ScenarioError, build
from loadgen.slo import Rate, promises
from loadgen.stats.decidable import hopeless
from loadgen.strict_json import as_json, read_json
from loadgen.whole_file import write_whole
from loadgen.workload import draw

SCHEMA = 1
FILE = "capacity.json"
SEEDS = 3
WIDE = 0.1  # edges that lie so much farther apart than was asked for are no answer

Answer = Literal["BOUNDED", "FAIL", "UNRESOLVED", "INVALID"]


class Capacity(msgspec.Struct, kw_only=True):
    """capacity.json. Loads are in `unit`: requests/s, sessions/s or users.

    `load`: where the point estimates cross the limits. It lies in [`low`, `high`]: the highest load that
    passed below all that failed, and the lowest that failed; None where none did. `limiting`: the SLO that is
    missed first. `knee`: the probed load of the most power, requests served per second over mean E2E.
    `above`: what happens past it all. `per_accelerator`: loads and tokens/s for each of `accelerators`.

    `answer`: BOUNDED between a PASS and a FAIL that lie at most 10 % farther apart than the resolution;
    FAIL where the lowest load tried fails; UNRESOLVED where an edge is not decided; INVALID where no probe
    could be trusted. `reason` says it in words, and what to do. `ended`: the search came to its end; until
    then nothing is FAIL, and what to do is to go on. `undecided`: what would decide the UNRESOLVED loads next
    to the edges. `probes` are by load; `requests`: of all of them. `scenario`: as asked, without its SLOs;
    `seeds`: runs at one load at most.
    """

    schema: int = SCHEMA
    name: str
    source: Source | None = None
    target: str | None = None
    model: str | None = None
    over: Over
    unit: str
    slos: list[str]
    resolution: float
    seeds: int = SEEDS
    scenario: dict[str, Any] = {}
    answer: Answer = "UNRESOLVED"
    reason: str = ""
    load: float | None = None
    low: float | None = None
    high: float | None = None
    limiting: str | None = None
    knee: float | None = None
    above: str | None = None
    undecided: list[str] = []
    requests: int = 0
    ended: bool = True
    interrupted: bool = False
    accelerators: int | None = None
    per_accelerator: dict[str, float | None] = {}
    usd_per_hour: float | None = None
    usd_per_million_output_tokens: float | None = None
    probes: list[Probe] = []


def find_capacity(
    scenario: Scenario,
    slos: Sequence[str] = (),
    *,
    over: Over | None = None,
    out: Path | None = None,
    measure: Measure | None = None,
    virtual: bool = False,
    resolution: float = 0.02,
    seeds: int | None = None,
    most_runs: int = 60,
    usd_per_hour: float | None = None,
    command: Sequence[str] = (),
    on_probe: Callable[[Probe, Capacity], None] = lambda _probe, _so_far: None,
) -> Capacity:
    """The highest load at which `scenario` meets `slos` (without any: its own).

    `over`: what is raised, the rate or, of a closed loop, the concurrency; by default what the load has.
    Every run is a folder below `out` (None: they are not kept); called again with the same `out`, the search
    goes on from those. `measure` makes an order a run, `virtual` says that it simulates; without it, the
    bundled engine does in virtual time.
    `resolution`: how far apart, as a share, the last load that meets the SLOs and the first that misses them
    may be. `seeds`: runs at one load at most, with one seed after another, by default as many as the
    scenario's `repeats`, or 3 where it has none; `most_runs`: in all. `usd_per_hour`: what the server costs,
    by default as its target says: prices a million output tokens. SLOs that the plan cannot show to hold end
    it before anything is measured.

    Raises ScenarioError for a load that cannot be scaled, without SLOs, and for a server without `measure`;
    Unreachable where a server is not there any more: twice, at one load, ten requests in a row found none.
    """
    _refuse_unsound(over, resolution, seeds, most_runs, usd_per_hour)
    if measure is None and scenario.target is not None:
        raise ScenarioError("target: only the bundled engine can be simulated: give a measure")
    asked = _promised(scenario, slos)
    over = over or ("concurrency" if isinstance(asked.load.arrivals, Closed) else "rate")
    if seeds is None:
        seeds = asked.repeats if asked.repeats > 1 else SEEDS
    found = Capacity(
        name=asked.name,
        over=over,
        unit=_unit(asked, over),
        slos=[*asked.slos],
        resolution=resolution,
        seeds=seeds,
        scenario=asked.as_asked() | {"slos": [], "repeats": 1},
        reason="no load was measured",
        ended=False,
    )
    with _taken_up(out, found) as folder:
        probing = Probing(
            *(asked, over, folder, measure or _simulated, new_run_id(asked.name), [*command]),
            virtual=virtual or measure is None,
        )

        def told(probe: Probe, probes: Collection[Probe]) -> None:
            _conclude(found, probes)
            _told_by(found, probing.answered_by, usd_per_hour)
            _write(found, folder)
            on_probe(probe, found)

        start = probing.own_load
        search = Search(
            probing.probe,
            start,
            resolution,
            seeds,
            most_runs,
            over == "concurrency",
            _doublings(found),
            told,
        )
        try:
            if cannot := _hopeless(asked, seeds):
                found.ended = True
                found.reason = f"nothing was sent, since no load could pass: {'; '.join(cannot)}"
            else:
                search.run()
                _end(found)
        except (Interrupted, KeyboardInterrupt):  # the second between two runs
            found.interrupted = True
            found.reason = f"interrupted: {found.reason}"
        except Unreachable as gone:
            found.reason = f"{gone}"
            _write(found, folder)
            raise
        except Spent:
            _end(found)
            found.reason += f"; the {most_runs} runs allowed are spent (most_runs)"
        _write(found, folder)
    return found


def _simulated(order: Order, looks: Looks | None) -> Run:
    return drive.simulate(order, looks=looks)


def _refuse_unsound(
    over: str | None, resolution: float, seeds: int | None, most_runs: int, usd_per_hour: float | None
) -> None:
    rules = [
        ("over", over in (None, "rate", "concurrency"), over, "rate or concurrency"),
        ("resolution", _is_in(resolution, 0.001, 1), resolution, "a share from 0.001 to 1"),
        ("seeds", seeds is None or _is_in(seeds, 1, 100, Integral), seeds, "a whole number from 1 to 100"),
        ("most_runs", _is_in(most_runs, 2, 1000, Integral), most_runs, "a whole number from 2 to 1,000"),
        ("usd_per_hour", usd_per_hour is None or _is_in(usd_per_hour, 1e-9, 1e9), usd_per_hour, "above 0"),
    ]
    for name, is_sound, value, rule in rules:
        if not is_sound:
            raise ScenarioError(f"{name}: {value!r}: choose {rule}")


def _is_in(value: Any, low: float, high: float, kind: Any = Real) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool) and low <= value <= high


def _hopeless(asked: Scenario, seeds: int) -> list[str]:
    """The SLOs that no load can be shown to meet, since all runs at one load together are too few.

    None of a load that ends by time and waits for answers, whose rows are not known before.
    """
    plan = draw(asked)
    if asked.policy == "point" or plan.goes_on or (plan.has_chains and plan.window.by == "duration"):
        return []
    return hopeless(asked, seeds * int((plan.phase == Phase.MEASURED).sum()))


def _promised(scenario: Scenario, slos: Sequence[str]) -> Scenario:
    """The scenario with the SLOs that are searched by. Raises ScenarioError."""
    plain = scenario.model_copy(update={"variants": {}, "vary": {}})
    data = plain.model_dump(mode="json", by_alias=True)
    asked = build(data | {"slos": list(slos)}, "slos") if slos else plain
    every = [*asked.slos, *(text for own in asked.load.classes.values() for text in own.slos)]
    if not every:
        raise ScenarioError(
            "capacity is the highest load that meets the SLOs: give some, with --slo or in slos"
        )
    for promise in promises(every):
        if isinstance(promise.slo, Rate):
            raise ScenarioError(
                f"{promise.text}: more load meets it, so it bounds no load from above: search by the others"
            )
    return asked


def _doublings(found: Capacity) -> int:
    """So often the load is doubled without more answers. Users and sessions may wait and think for long."""
    return 1 if found.unit == "requests/s" else 5


def _unit(scenario: Scenario, over: Over) -> str:
    if over == "concurrency":
        return "users"
    return "sessions/s" if scenario.load.has_sessions else "requests/s"


# --- what is kept -------------------------------------------------------------------------------------------


@contextmanager
def _taken_up(out: Path | None, found: Capacity) -> Iterator[Path]:
    """The folder of the search: a new one, or that of an earlier one, or one for the time being."""
    if out is None:
        with TemporaryDirectory(prefix="loadgen-capacity-") as name:
            yield Path(name)
        return
    if (out / FILE).is_file():
        try:
            before = load(out)
        except ScenarioError as problem:
            raise ScenarioError(f"{problem}; choose another folder with --out, or remove it") from None
        _refuse_other(before, found, out)
    else:
        make_folder(out)
        _write(found, out)
    yield out


def load(folder: Path) -> Capacity:
    """The search that `folder` keeps. Raises ScenarioError."""
    path = folder / FILE
    try:
        return read_json(path, Capacity, SCHEMA)
    except OSError as problem:
        raise ScenarioError(f"{path}: {problem.strerror}") from None
    except ValueError as problem:
        raise ScenarioError(
            f"{path}: {problem}: it is cut short or damaged, search again into another folder"
        ) from None


def _refuse_other(before: Capacity, now: Capacity, out: Path) -> None:
    """Other SLOs may be asked of the same runs, nothing else."""
    keys = {*before.scenario, *now.scenario}
    other = sorted(key for key in keys if before.scenario.get(key) != now.scenario.get(key))
    if before.over != now.over or other:
        what = f"in {other[0]}" if other else f"over {before.over}"
        raise ScenarioError(f"{out} holds another search ({what}): choose another folder with --out")


def _write(found: Capacity, folder: Path) -> None:
    write_whole(folder / FILE, as_json(found))


# --- what is concluded --------------------------------------------------------------------------------------


def _conclude(found: Capacity, probes: Collection[Probe]) -> None:
    """Say of the search what its probes tell by now."""
    found.probes = sorted(probes, key=lambda p: p.load)
    found.requests = sum(p.requests for p in probes)
    telling = settled(found.probes)
    below, above = crossing(telling)
    if below is None or above is None:
        below, above = crossing(probes)
    found.low, found.high = edges(probes)
    found.load = None
    if below is not None and above is not None:
        crossed = below.load if found.over == "concurrency" else float(f"{between(below, above):.5g}")
        found.load = max(min(crossed, found.high or crossed), found.low or 0.0)
    found.limiting = above.limiting if above is not None else None
    doubtful = _doubtful(found)
    ends = doubtful[:1] + doubtful[1:][-1:]
    found.undecided = [f"{p.load:g} {found.unit}: {p.reason}" for p in ends]
    found.knee, found.above = _knee(telling), _above(found)
    found.answer, found.reason = _answer(found, doubtful)


def _end(found: Capacity) -> None:
    found.ended = True
    found.answer, found.reason = _answer(found, _doubtful(found))


def _told_by(found: Capacity, by: AnsweredBy, usd_per_hour: float | None) -> None:
    """What the server says of itself, and what its loads come to for each accelerator and each dollar."""
    found.source, found.target, found.model = by.source, by.target, by.model
    found.accelerators = by.accelerators
    found.usd_per_hour = by.usd_per_hour if usd_per_hour is None else usd_per_hour
    below = next((p for p in reversed(found.probes) if p.meets and p.load <= (found.load or 0)), None)
    tokens_per_s = below.output_tokens_per_s if below else None
    if found.usd_per_hour is not None and tokens_per_s:
        found.usd_per_million_output_tokens = found.usd_per_hour / 3600 / tokens_per_s * 1e6
    if many := found.accelerators:
        figures = {name: getattr(found, name) for name in ("load", "low", "high", "knee")}
        figures["output_tokens_per_s"] = tokens_per_s
        found.per_accelerator = {name: value and value / many for name, value in figures.items()}


def _answer(found: Capacity, doubtful: list[Probe]) -> tuple[Answer, str]:
    judged = [p for p in found.probes if p.verdict != "INVALID"]
    if not judged:
        return "INVALID", f"no measurement could be trusted: {found.probes[0].reason}"
    users = found.over == "concurrency"
    if found.low is not None and found.high is not None:
        said = f"passes at {found.low:g} and fails at {found.high:g} {found.unit}"
        near = found.high <= found.low * (1 + found.resolution) * (1 + WIDE)
        if near or (users and found.high - found.low <= 1):
            return "BOUNDED", said
        return "UNRESOLVED", f"{said}, and nothing is decided between{_remedy(found, doubtful)}"
    if found.low is None and judged[0].verdict == "FAIL":
        said = f"fails at {judged[0].load:g} {found.unit}, the lowest load tried"
        return "FAIL" if found.ended else "UNRESOLVED", said
    lacking = [word for edge, word in ((found.low, "passes"), (found.high, "fails")) if edge is None]
    said = f"no load tried {' or '.join(lacking)} for certain"
    walls = [p for p in found.probes if p.verdict == "INVALID" and p.load > judged[-1].load]
    if found.high is None and walls:
        return "UNRESOLVED", f"{said} up to what cannot be measured: {walls[0].reason}"
    if found.high is None and judged[-1].meets and not follows(judged, _doublings(found)):
        served = f"{judged[-1].served_rps or 0:.3g} requests/s were answered at {judged[-1].load:g}"
        remedy = f"{served}, no more than before: limit a latency too, or make the load longer"
        return "UNRESOLVED", f"{said}: {remedy}"
    return "UNRESOLVED", f"{said}{_remedy(found, doubtful)}"


def _doubtful(found: Capacity) -> list[Probe]:
    """The UNRESOLVED loads between the edges."""
    low, high = found.low or 0, found.high or inf
    return [p for p in found.probes if p.verdict == "UNRESOLVED" and low < p.load < high]


def _remedy(found: Capacity, doubtful: list[Probe]) -> str:
    """How much longer the load is to be for an answer: the need falls with the square of the distance.

    Nothing while the search can still find it by itself.
    """
    if not found.ended:
        return ""
    wanted = log((1 + found.resolution) * (1 + WIDE)) / 3  # half, less what strides leave over
    times = []
    for p in doubtful:
        near = (log(p.load / found.load) / wanted) ** 2 if found.load else 1.0
        if p.n_to_decide and near:
            times.append(near * p.n_to_decide * p.runs / p.requests / found.seeds)
    others = [p for p in doubtful if not p.n_to_decide]
    if 2 * len(others) > len(doubtful):  # it is no figure that keeps most undecided
        return f": {others[0].reason}"
    if times and median(times) > 1:
        return f": make the load at least {ceil(median(times))} times as long (num_requests, or duration)"
    return f": {doubtful[0].reason}" if doubtful and not times else ""


def _knee(probes: Collection[Probe]) -> float | None:
    """Kleinrock's: the load of the most power, requests served per second over mean E2E."""
    powers = [(p.served_rps / p.e2e_mean_s, p.load) for p in probes if p.served_rps and p.e2e_mean_s]
    return max(powers)[1] if powers else None


def _above(found: Capacity) -> str | None:
    """What happens past the crossing: at twice it, or as near to that as was probed."""
    edge = found.load or 0.0
    past = [p for p in found.probes if p.load > edge and p.excess is not None and p.excess > 0]
    if not past or not edge:
        return None
    p = min(past, key=lambda p: abs(p.load - 2 * edge))
    where = f"at {p.load:g} {found.unit}"
    shares = {"are rejected": p.rejection_rate, "fail": p.error_rate}
    if told := [f"{share:.1%} {word}" for word, share in shares.items() if share]:
        return f"{where} {' and '.join(told)}"
    if p.overloaded:
        return f"{where} requests pile up: latencies grow for as long as the load goes on"
    return f"{where} answers come late, and nothing shows yet that requests pile up or are rejected"
