"""The highest load that meets the SLOs: bracketed, bisected, its edges decided, its curve kept."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import msgspec

from loadgen import drive
from loadgen.drive import Order
from loadgen.edges import Search, Spent, between, crossing, settled
from loadgen.laws import Closed
from loadgen.looks import Looks
from loadgen.probe import Interrupted, Measure, Over, Probe, Probing
from loadgen.run import Run, refuse_used, write_whole
from loadgen.scenario import Scenario, ScenarioError, build
from loadgen.slo import Rate, promises

SCHEMA = 1
FILE = "capacity.json"

Answer = Literal["BOUNDED", "FAIL", "UNRESOLVED", "INVALID"]


class Capacity(msgspec.Struct, kw_only=True):
    """capacity.json. Loads are in `unit`: requests/s, sessions/s or users.

    `load`: where the point estimates cross the limits. It lies in [`low`, `high`]: the highest load that
    passed, and the lowest that failed; None where none did. `limiting`: the SLO that is missed first. `knee`:
    the probed load of the most power, completed per second over mean E2E. `above`: what happens past it all.

    `answer`: BOUNDED between a PASS and a FAIL; FAIL where the lowest load tried fails; UNRESOLVED where an
    edge is not decided; INVALID where no probe could be trusted. `reason` says it in words. `undecided`: what
    would decide the UNRESOLVED loads next to the edges. `probes` are by load; `requests`: of all of them.
    """

    schema: int = SCHEMA
    name: str
    source: Literal["http", "virtual", "merged"] | None = None
    target: str | None = None
    model: str | None = None
    over: Over
    unit: str
    slos: list[str]
    resolution: float
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
    interrupted: bool = False
    accelerators: int | None = None
    usd_per_million_output_tokens: float | None = None
    probes: list[Probe] = []


def find_capacity(
    scenario: Scenario,
    slos: Sequence[str] = (),
    *,
    over: Over | None = None,
    out: Path | None = None,
    measure: Measure | None = None,
    resolution: float = 0.02,
    repeats: int = 3,
    most_runs: int = 60,
    command: Sequence[str] = (),
    on_probe: Callable[[Probe, Capacity], None] = lambda _probe, _so_far: None,
) -> Capacity:
    """The highest load at which `scenario` meets `slos` (without any: its own).

    `over`: what is raised, the rate or, of a closed loop, the concurrency; by default what the load has.
    Every run is a folder below `out` (None: they are not kept); called again with the same `out`, the search
    goes on from those. `measure` makes an order a run; without it, the bundled engine does in virtual time.
    `resolution`: how far apart, as a share, the last load that meets the SLOs and the first that misses them
    may be. `repeats`: runs at one load at most, with one seed after another; `most_runs`: in all.

    Raises ScenarioError for a load that cannot be scaled, without SLOs, and for a server without `measure`.
    """
    if measure is None and scenario.target is not None:
        raise ScenarioError("target: only the bundled engine can be simulated: give a measure")
    asked = _promised(scenario, slos)
    over = over or ("concurrency" if isinstance(asked.load.arrivals, Closed) else "rate")
    found = Capacity(
        name=asked.name, over=over, unit=_unit(asked, over), slos=[*asked.slos], resolution=resolution
    )
    with _taken_up(out, found) as folder:
        probing = Probing(
            asked, over, folder, measure or _simulated, drive.new_run_id(asked.name), [*command]
        )

        def told(probe: Probe, probes: Collection[Probe]) -> None:
            _conclude(found, probes)
            found.source, found.target, found.model, found.accelerators = probing.answered_by
            _write(found, folder)
            on_probe(probe, found)

        start = probing.own_load
        search = Search(probing.probe, start, resolution, repeats, most_runs, over == "concurrency", told)
        try:
            search.run()
        except (Interrupted, KeyboardInterrupt):  # the second between two runs
            found.interrupted = True
            found.reason = f"interrupted: {found.reason}"
        except Spent:
            found.reason += f"; {most_runs} runs were not enough for more"
        _write(found, folder)
    return found


def _simulated(order: Order, looks: Looks | None) -> Run:
    return drive.simulate(order, looks=looks)


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
        _refuse_other(load(out), found, out)
    else:
        refuse_used(out)
        out.mkdir(parents=True, exist_ok=True)
        _write(found, out)
    yield out


def load(folder: Path) -> Capacity:
    """The search that `folder` keeps. Raises ScenarioError."""
    path = folder / FILE
    try:
        schema = msgspec.json.decode(path.read_bytes(), type=dict[str, object]).get("schema")
        if schema != SCHEMA:
            raise ScenarioError(
                f"{path}: schema {schema} is not {SCHEMA}, which this version of loadgen reads"
            )
        return msgspec.json.decode(path.read_bytes(), type=Capacity)
    except (OSError, msgspec.DecodeError) as problem:
        raise ScenarioError(f"{path}: {problem}") from None


def _refuse_other(before: Capacity, now: Capacity, out: Path) -> None:
    if (before.name, before.over) != (now.name, now.over):
        raise ScenarioError(
            f"{out} holds a search of {before.name} over {before.over}: choose another folder with --out"
        )


def to_json(found: Capacity) -> bytes:
    """Strict JSON, as in capacity.json."""
    return msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n"


def _write(found: Capacity, folder: Path) -> None:
    write_whole(folder / FILE, to_json(found))


# --- what is concluded --------------------------------------------------------------------------------------


def _conclude(found: Capacity, probes: Collection[Probe]) -> None:
    """Say of the search what its probes tell by now."""
    found.probes = sorted(probes, key=lambda p: p.load)
    found.requests = sum(p.requests for p in probes)
    telling = settled(found.probes)
    below, above = crossing(telling)
    if below is None or above is None:
        below, above = crossing(probes)
    found.high = min((p.load for p in telling if p.verdict == "FAIL"), default=None)
    passes = [p.load for p in telling if p.verdict == "PASS" and p.load < (found.high or inf)]
    found.low = max(passes, default=None)
    found.load = None
    if below is not None and above is not None and above.excess is not None:
        crossed = below.load if found.over == "concurrency" else float(f"{between(below, above):.5g}")
        found.load = max(min(crossed, found.high or crossed), found.low or 0.0)
    found.limiting = above.limiting if above is not None else None
    found.usd_per_million_output_tokens = below.usd_per_million_output_tokens if below else None
    doubtful = [
        f"{p.load:g} {found.unit}: {p.reason}"
        for p in telling
        if p.verdict == "UNRESOLVED" and (found.low or 0) < p.load < (found.high or inf)
    ]
    found.undecided = doubtful[:1] + doubtful[1:][-1:]
    found.knee, found.above = _knee(telling), _above(found)
    found.answer, found.reason = _answer(found)


def _answer(found: Capacity) -> tuple[Answer, str]:
    judged = [p for p in found.probes if p.verdict != "INVALID"]
    if not judged:
        return "INVALID", f"no measurement could be trusted: {found.probes[0].reason}"
    if found.low is not None and found.high is not None:
        return "BOUNDED", f"passes at {found.low:g} and fails at {found.high:g} {found.unit}"
    if found.low is None and judged[0].verdict == "FAIL":
        return "FAIL", f"fails at {judged[0].load:g} {found.unit}, the lowest load tried"
    walls = [p for p in found.probes if p.verdict == "INVALID" and p.load > judged[-1].load]
    if found.high is None and walls:
        return "UNRESOLVED", f"nothing fails up to where the client cannot follow: {walls[0].reason}"
    lacking = [word for edge, word in ((found.low, "passes"), (found.high, "fails")) if edge is None]
    return "UNRESOLVED", f"no load tried {' or '.join(lacking)} for certain"


def _knee(probes: Collection[Probe]) -> float | None:
    """Kleinrock's: the load of the most power, completed per second over mean E2E."""
    powers = [(p.completed_rps / p.e2e_mean_s, p.load) for p in probes if p.completed_rps and p.e2e_mean_s]
    return max(powers)[1] if powers else None


def _above(found: Capacity) -> str | None:
    """What happens past the crossing: at twice it, or as near to that as was probed."""
    edge = found.load or 0.0
    past = [p for p in found.probes if p.load > edge and p.excess is not None and p.excess > 0]
    if not past or not edge:
        return None
    p = min(past, key=lambda p: abs(p.load - 2 * edge))
    where = f"at {p.load:g} {found.unit}"
    if p.rejection_rate:
        return f"{where} {p.rejection_rate:.1%} are rejected"
    if p.overloaded:
        return f"{where} requests pile up: latencies grow for as long as the load goes on"
    return f"{where} answers come late, and nothing shows yet that requests pile up or are rejected"
