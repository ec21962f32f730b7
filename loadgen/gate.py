"""A Gate: did the candidate get worse than the baseline, by more than is allowed, and is it good enough?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Literal

import msgspec

from loadgen.faults import nearest
from loadgen.scenario import ScenarioError
from loadgen.stats.change import ASSUMED_NOISE, Change, changes
from loadgen.stats.figures import GATED, METRICS, Tolerance
from loadgen.stats.sample import Sample
from loadgen.stats.summary import SloResult, Summary, Verdict
from loadgen.stats.validity import OTHER_LENGTHS
from loadgen.units import duration_s, rate_rps

_OF_THE_PLAN = ("load.", "seed")
_NO_SETTINGS = (
    *("name", "repeats", "slos", "policy", "goodput", "fluidity"),
    *("engine.seed", "variants", "vary"),
)
_MOST_NOTES = 8
_WORST_FIRST: tuple[Verdict, ...] = ("INVALID", "FAIL", "UNRESOLVED", "PASS")


class Gated(msgspec.Struct, frozen=True, kw_only=True):
    """One run of either side. `host`: the name of the client's machine."""

    run_id: str
    name: str
    source: Literal["http", "virtual", "merged"]
    target: str
    model: str | None
    host: str | None
    started_at: str | None
    validity: Literal["VALID", "INVALID"]
    interrupted: bool
    offered: int
    ok: int


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """`verdict`: the worst of `faults` (each makes it INVALID), `changes`, and `slos`, those of each
    candidate run by its id. `noise`: between runs, where the user stated it. `notes`: what differs beside
    what was to be compared.
    """

    verdict: Verdict
    plan_digest: str
    paired: bool
    noise: float | None
    baselines: list[Gated]
    candidates: list[Gated]
    faults: list[str]
    changes: list[Change]
    slos: dict[str, list[SloResult]]
    notes: list[str]


def gate(
    candidates: Sequence[Sample],
    baselines: Sequence[Sample],
    *,
    summaries: Sequence[Summary] = (),
    tolerances: Mapping[str, Tolerance] = {},
    noise: float | None = None,
    paired: bool = True,
    metrics: Sequence[str] = GATED,
) -> Gate:
    """Judge `candidates` by `baselines`, and by the SLOs in the candidates' `summaries`.

    `tolerances`: by metric, where not METRICS'. `noise`: the sd between runs, relative, instead of what they
    show. `metrics`: the gated ones. Raises ScenarioError where a side is empty or a run is given twice, and,
    if `paired`, where the runs are not of one plan.
    """
    _refuse(candidates, baselines, paired)
    faults = [*_faults(candidates, baselines, summaries)]
    found = _changes(candidates, baselines, tolerances, noise, paired, metrics)
    own = {s.about.run_id for s in candidates}
    slos = {s.run_id: s.slos for s in summaries if s.run_id in own and s.slos}
    verdicts: list[Verdict] = [change.verdict for change in found]
    verdicts += [result.verdict for results in slos.values() for result in results]
    return Gate(
        verdict="INVALID" if faults else min(verdicts, key=_WORST_FIRST.index, default="UNRESOLVED"),
        plan_digest=candidates[0].about.plan_digest,
        paired=paired,
        noise=noise,
        baselines=[_gated(s) for s in baselines],
        candidates=[_gated(s) for s in candidates],
        faults=faults,
        changes=found,
        slos=slos,
        notes=[*_notes(candidates, baselines, noise)],
    )


def _changes(
    candidates: Sequence[Sample],
    baselines: Sequence[Sample],
    tolerances: Mapping[str, Tolerance],
    noise: float | None,
    paired: bool,
    metrics: Sequence[str],
) -> list[Change]:
    if not all(map(len, (*candidates, *baselines))):
        return []  # which is a fault
    try:
        return changes(
            baselines, candidates, tolerances=tolerances, noise=noise, paired=paired, metrics=metrics
        )
    except ValueError as problem:
        raise ScenarioError(str(problem)) from None


def _gated(s: Sample) -> Gated:
    about = s.about
    return Gated(
        run_id=about.run_id,
        name=about.name,
        source=about.source,
        target=about.target,
        model=about.model,
        host=about.host.get("name"),
        started_at=about.started_at,
        validity=about.validity,
        interrupted=about.interrupted,
        offered=len(s),
        ok=int(s.ok.sum()),
    )


# --- what cannot be compared ------------------------------------------------------------------------


def _refuse(candidates: Sequence[Sample], baselines: Sequence[Sample], paired: bool) -> None:
    if not candidates or not baselines:
        raise ScenarioError("a gate needs a candidate and a baseline: a run folder each, at least")
    seen: set[str] = set()
    for s in (*baselines, *candidates):
        if s.about.run_id in seen:
            raise ScenarioError(f"run {s.about.run_id} is given twice: a run says nothing about itself")
        seen.add(s.about.run_id)
    for s in (*baselines[1:], *candidates) if paired else ():
        if s.about.plan_digest != baselines[0].about.plan_digest:
            raise ScenarioError(_other_plan(baselines[0], s))


def _other_plan(a: Sample, b: Sample) -> str:
    """That `b` is of another plan than `a`, and what made it so."""
    differ = [*_differences(a.about.scenario, b.about.scenario)]
    of_the_plan = [said for key, said in differ if f"{key}.".startswith(_OF_THE_PLAN)]
    why = "; ".join(of_the_plan[:4]) or (
        "their scenarios ask for the same load, so that a trace, or loadgen itself, has changed "
        f"({_version(a)} and {_version(b)})"
    )
    return (
        f"{b.about.run_id} ran another plan ({b.about.plan_digest[:12]}) than {a.about.run_id} "
        f"({a.about.plan_digest[:12]}): {why}. Run both from one scenario, "
        "or give --unpaired, which finds only larger changes"
    )


def _faults(
    candidates: Sequence[Sample], baselines: Sequence[Sample], summaries: Sequence[Summary]
) -> Iterator[str]:
    """Why nothing can be told, whatever the figures are."""
    invalid = {s.run_id: f.text for s in summaries for f in s.findings if f.effect == "invalid"}
    lengths = {s.run_id for s in summaries if any(f.name == OTHER_LENGTHS for f in s.findings)}
    for role, samples in (("candidate", candidates), ("baseline", baselines)):
        for s in samples:
            where = f"{role} {s.about.run_id}"
            if not len(s):
                yield f"no request of {where} fell due"
            elif s.about.interrupted or not s.about.complete:
                yield f"{where} did not come to its end"
            elif s.about.validity == "INVALID":
                why = invalid.get(s.about.run_id, "loadgen report says why")
                yield f"the measurement of {where} is INVALID: {why}"
            elif s.about.run_id in lengths:
                yield f"{where} did not keep to the output lengths asked: the work was not the same"


# --- what else differs ------------------------------------------------------------------------------


def _notes(candidates: Sequence[Sample], baselines: Sequence[Sample], noise: float | None) -> Iterator[str]:
    if noise is None and len(baselines) == 1:
        yield (
            "One baseline run: how much runs of the same differ is unknown, and "
            f"{100 * ASSUMED_NOISE:.0f} % is assumed. Several baseline runs would show it."
        )
    sources = {s.about.source for s in (*baselines, *candidates)}
    if "virtual" in sources:
        beside = " beside measured ones" if len(sources) > 1 else ""
        yield f"SIMULATED figures{beside}: no server was measured for them."
    first = baselines[0]
    others = (*baselines[1:], *candidates)
    said = [*dict.fromkeys(chain.from_iterable(_other(first, s) for s in others))]
    yield from said[:_MOST_NOTES]
    if len(said) > _MOST_NOTES:
        yield f"{len(said) - _MOST_NOTES} more settings differ."


def _other(a: Sample, b: Sample) -> Iterator[str]:
    """In what `b` differs from the baseline `a`, beside its figures."""
    facts = {
        "another machine": (_host(a), _host(b)),
        "another way to measure": (a.about.source, b.about.source),
        "another version of loadgen": (_version(a), _version(b)),
        "another server": (a.about.server.get("server"), b.about.server.get("server")),
        "another model": (a.about.model, b.about.model),
    }
    for what, (mine, others) in facts.items():
        if mine != others:
            yield f"{what}: {mine}, then {others}."
    for _, said in _differences(a.about.scenario, b.about.scenario):
        yield f"other settings: {said}."


def _host(s: Sample) -> str:
    host = s.about.host
    return ", ".join(
        str(host[k]) + (" CPUs" if k == "cpus" else "") for k in ("name", "system", "cpus") if k in host
    )


def _version(s: Sample) -> str | None:
    return s.about.versions.get("loadgen")


def _differences(a: Any, b: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Each key at which two scenarios differ, and both values in words."""
    if a == b or path in _NO_SETTINGS:
        return
    if isinstance(a, dict) and isinstance(b, dict):
        for key in dict.fromkeys([*a, *b]):
            yield from _differences(a.get(key), b.get(key), f"{path}.{key}".lstrip("."))
    else:
        yield path, f"{path}: {_shown(a)}, then {_shown(b)}"


def _shown(value: Any) -> str:
    text = msgspec.json.encode(value).decode() if isinstance(value, dict | list) else str(value)
    return "nothing" if value is None else text if len(text) <= 60 else text[:59] + "…"


# --- what the user asks -----------------------------------------------------------------------------


def tolerances_from(texts: Sequence[str]) -> dict[str, Tolerance]:
    """`5%` for all metrics, or `METRIC=5%,20ms` for one; the latter comes first, wherever it stands.

    A share of the baseline's figure, an absolute allowance in the metric's unit (20ms, 50/s, 0.5pp), or both:
    the larger counts. Raises ScenarioError, naming the word.
    """
    for_all: dict[str, Tolerance] = {}
    own: dict[str, Tolerance] = {}
    for text in texts:
        metric, equals, words = text.rpartition("=")
        if equals:
            own[known(metric.strip(), "--tolerance")] = _tolerance(text, metric.strip(), words)
        else:
            for key, one in METRICS.items():
                for_all[key] = msgspec.structs.replace(one.tolerance, relative=_relative(text, text))
    return for_all | own


def known(metric: str, flag: str) -> str:
    """`metric`, where a gate has such a one. Raises ScenarioError, with the nearest there is."""
    if metric in METRICS:
        return metric
    near = nearest(metric, METRICS)
    say = f"did you mean {near}?" if near else f"there are {', '.join(METRICS)}"
    raise ScenarioError(f"{flag} {metric[:60]!r}: no metric of a gate; {say}")


def noise_from(text: str) -> float:
    """`1%`, as a share. Raises ScenarioError."""
    return _number(text, "%", "a share such as 1%", f"--noise {text[:60]!r}")


def _tolerance(text: str, metric: str, words: str) -> Tolerance:
    relative = absolute = 0.0
    for word in map(str.strip, words.split(",")):
        if word.endswith("%"):
            relative = _relative(word, text)
        else:
            absolute = _absolute(word, METRICS[metric].unit, text)
    return Tolerance(relative=relative, absolute=absolute)


def _relative(word: str, text: str) -> float:
    return _number(word, "%", "a share such as 5%, or METRIC=5%,20ms", f"--tolerance {text[:60]!r}")


def _absolute(word: str, unit: str, text: str) -> float:
    where = f"--tolerance {text[:60]!r}"
    if unit == "share":
        return _number(word, "pp", "percentage points, such as 0.5pp", where)
    try:
        return duration_s(word) if unit == "s" else rate_rps(word)
    except ValueError as problem:
        raise ScenarioError(f"{where}: {problem}") from None


def _number(word: str, unit: str, what: str, where: str) -> float:
    """Hundredths, of either unit."""
    number = word.removesuffix(unit).strip()
    if word.endswith(unit) and number.replace(".", "", 1).isdecimal():
        return float(number) / 100
    raise ScenarioError(f"{where}: {word[:60]!r} is not {what}")
