"""A Gate: did the candidate get worse than the baseline, by more than is allowed, and is it good enough?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from math import inf
from typing import Any, Literal

import msgspec

from loadgen.faults import hint
from loadgen.run import Source
from loadgen.scenario import ScenarioError
from loadgen.stats.asked import law_in_words
from loadgen.stats.change import ASSUMED_NOISE, Change, changes
from loadgen.stats.figures import GATED, METRICS, Metric, Tolerance
from loadgen.stats.sample import Sample
from loadgen.stats.summary import SloResult, Summary, Verdict, worst
from loadgen.stats.validity import OTHER_LENGTHS
from loadgen.units import quoted

_OF_THE_PLAN = ("load.", "seed")
_NO_SETTINGS = (
    *("name", "repeats", "slos", "policy", "goodput", "fluidity"),
    *("engine.seed", "variants", "vary"),
)
_MOST_NOTES = 8
SCHEMA = 1


class Gated(msgspec.Struct, frozen=True, kw_only=True):
    """One run of either side. `host`: the name of the client's machine."""

    run_id: str
    name: str
    source: Source
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
    candidate run by its id. `noise`: as the user stated it, of one run. `notes`: what differs beside
    what was to be compared.
    """

    schema: int = SCHEMA
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

    @property
    def passed(self) -> bool:
        """Whether nothing got worse by more than is allowed. What cannot be told does not pass."""
        return self.verdict == "PASS"

    def __str__(self) -> str:
        """Some lines for whom an assertion failed."""
        slos = [(run_id, result) for run_id, results in self.slos.items() for result in results]
        return "\n".join(
            [
                *(self.verdict, *self.faults),
                *(_told(change) for change in self.changes if change.verdict != "PASS"),
                *(f"{r.verdict} {run}: {r.name}: {r.reason}" for run, r in slos if r.verdict != "PASS"),
            ]
        )

    def __repr__(self) -> str:
        return f"<Gate: {'; '.join(str(self).splitlines())}>"


def _told(c: Change) -> str:
    if c.change is None:
        return f"{c.verdict} {c.label}: {c.reason}"
    worse = (
        f"{100 * c.change:.1f} {'points' if c.unit == 'share' else '%'} worse, {100 * c.allowed:.1f} allowed"
    )
    return f"{c.verdict} {c.label}: {worse}{c.reason and '; '}{c.reason}"


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

    `tolerances`: by metric, where not METRICS'. `noise`: the standard deviation of one run's figure between
    runs of the same, relative, instead of what they show. `metrics`: the gated ones. Raises ScenarioError for
    any of these that cannot be, where a side is empty or a run is given twice, and, if `paired`, where the
    runs are not of one plan.
    """
    metrics = tuple(metrics)
    refuse_senseless(tolerances, noise, metrics)
    _refuse(candidates, baselines, paired)
    if any(map(_is_imported, (*candidates, *baselines))):
        candidates, baselines = ([s.from_start() for s in side] for side in (candidates, baselines))
    faults = [*_faults(candidates, baselines, summaries)]
    found = _changes(candidates, baselines, tolerances, noise, paired, metrics)
    own = {s.about.run_id for s in candidates}
    slos = {s.run_id: s.slos for s in summaries if s.run_id in own and s.slos}
    verdicts: list[Verdict] = [change.verdict for change in found]
    verdicts += [result.verdict for results in slos.values() for result in results]
    return Gate(
        verdict="INVALID" if faults else worst(verdicts) or "UNRESOLVED",
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


def metric_of(name: str) -> Metric:
    """The metric of that name. Raises ScenarioError, with the nearest there is."""
    if name not in METRICS:
        raise ScenarioError(f"{quoted(name)} is no metric of a gate{hint(name, METRICS)}")
    return METRICS[name]


def refuse_senseless(
    tolerances: Mapping[str, Tolerance], noise: float | None, metrics: Sequence[str]
) -> None:
    """Raises ScenarioError for an unknown metric, and for what cannot be allowed, or be noise."""
    if not metrics:
        raise ScenarioError("metrics: a gate of none tells nothing: give one at least, such as ttft_p99")
    for name in (*metrics, *tolerances):
        metric_of(name)
    for name, tolerance in tolerances.items():
        if not isinstance(tolerance, Tolerance):
            raise ScenarioError(f"the tolerance of {name} is {tolerance!r}: write Tolerance(relative=0.05)")
        for kind in ("relative", "absolute"):
            _refuse_unreal(f"the {kind} tolerance of {name}", getattr(tolerance, kind))
    if noise is not None:
        _refuse_unreal("noise", noise)


def _refuse_unreal(what: str, value: Any) -> None:
    if not (isinstance(value, int | float) and 0 <= value < inf):
        raise ScenarioError(f"{what} is {value!r}: it is a number from 0 on, 0.05 being 5 %")


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
    if imported := next(filter(_is_imported, (a, b)), None):
        return (
            f"{imported.about.run_id} is imported, and nothing tells its plan: "
            "not paired (--unpaired), only larger changes can be found"
        )
    differ = [*_differences(a.about.scenario, b.about.scenario)]
    of_the_plan = [said for key, said in differ if f"{key}.".startswith(_OF_THE_PLAN)]
    why = "; ".join(of_the_plan[:4]) or (
        "their scenarios ask for the same load, so that a trace, or loadgen itself, has changed "
        f"({_version(a)} and {_version(b)})"
    )
    return (
        f"{b.about.run_id} ran another plan ({b.about.plan_digest[:12]}) than {a.about.run_id} "
        f"({a.about.plan_digest[:12]}): {why}. Run both from one scenario; "
        "not paired (--unpaired), only larger changes can be found"
    )


def _is_imported(s: Sample) -> bool:
    return s.about.source == "imported"


def _faults(
    candidates: Sequence[Sample], baselines: Sequence[Sample], summaries: Sequence[Summary]
) -> Iterator[str]:
    at_hand = {s.run_id: s for s in summaries}
    for role, samples in (("candidate", candidates), ("baseline", baselines)):
        for s in samples:
            if why := unfit(s, at_hand.get(s.about.run_id)):
                yield f"{role} {s.about.run_id}: {why}"


def unfit(s: Sample, summary: Summary | None) -> str | None:
    """Why nothing can be told by a run, whatever its figures; None where it can. `summary`: if at hand."""
    findings = summary.findings if summary else []
    if not len(s):
        return "no request of it fell due"
    if s.about.interrupted or not s.about.complete:
        return "it did not come to its end"
    if s.about.validity == "INVALID":
        whys = [finding.text for finding in findings if finding.effect == "invalid"]
        return f"its measurement is INVALID: {(*whys, 'loadgen report says why')[0]}"
    if any(finding.name == OTHER_LENGTHS for finding in findings):
        return "it did not keep to the output lengths asked: the work was not the same"
    return None


# --- what else differs ------------------------------------------------------------------------------


def _notes(candidates: Sequence[Sample], baselines: Sequence[Sample], noise: float | None) -> Iterator[str]:
    if noise is None and len(baselines) == 1:
        yield (
            "One baseline run: how much runs of the same differ is unknown, and "
            f"{100 * ASSUMED_NOISE:.0f} % is assumed for the difference of two. "
            "Several baseline runs would show it."
        )
    sides = {"candidate": candidates, "baseline": baselines}
    if over := [role for role, runs in sides.items() if any(s.about.overloaded for s in runs)]:
        yield f"Overloaded, {' and '.join(over)}: percentiles depend on the run length."
    sources = {s.about.source for s in (*baselines, *candidates)}
    if "virtual" in sources:
        beside = " beside measured ones" if len(sources) > 1 else ""
        yield f"SIMULATED figures{beside}: no server was measured for them."
    if imported := [role for role, runs in sides.items() if any(map(_is_imported, runs))]:
        yield (
            f"Imported, {' and '.join(imported)}: nothing tells whether that client kept up, nor how late it "
            "was; TTFT and E2E count from the start of a request on both sides, and a PASS is of that."
        )
    first = baselines[0]
    others = (*baselines[1:], *candidates)
    said = [*dict.fromkeys(chain.from_iterable(_other(first, s) for s in others))]
    yield from said[:_MOST_NOTES]
    if len(said) > _MOST_NOTES:
        yield f"{len(said) - _MOST_NOTES} more settings differ."


def _other(a: Sample, b: Sample) -> Iterator[str]:
    """In what `b` differs from the baseline `a`, beside its figures."""
    facts = {
        "another machine": (_host(a) or "unknown", _host(b) or "unknown"),
        "another way to measure": (a.about.source, b.about.source),
        "another version of loadgen": (_version(a), _version(b)),
        "another server": (a.about.server.get("server"), b.about.server.get("server")),
        "another model": (a.about.model, b.about.model),
    }
    for what, (mine, others) in facts.items():
        if mine != others:
            yield f"{what}: {mine or 'unknown'}, then {others or 'unknown'}."
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
    """Each key at which two scenarios differ, and both values in words. What one is silent of is unknown."""
    if a == b or path in _NO_SETTINGS:
        return
    if path.endswith("_tokens"):
        a, b = law_in_words(a) or None, law_in_words(b) or None
    if isinstance(a, dict) and isinstance(b, dict):
        for key in dict.fromkeys([*a, *b]) if path else [key for key in a if key in b]:
            yield from _differences(a.get(key), b.get(key), f"{path}.{key}".lstrip("."))
    else:
        yield path, f"{path}: {_shown(a)}, then {_shown(b)}"


def _shown(value: Any) -> str:
    text = msgspec.json.encode(value).decode() if isinstance(value, dict | list) else str(value)
    return "nothing" if value is None else text if len(text) <= 60 else text[:59] + "…"
