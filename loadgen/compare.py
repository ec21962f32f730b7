"""A Comparison: several Summaries of one Plan side by side, each figure as a ratio to the first variant's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from math import exp, hypot, log, sqrt
from typing import Any, Literal, NamedTuple

import msgspec

from loadgen.run import Source
from loadgen.scenario import ScenarioError
from loadgen.stats.asked import law_in_words
from loadgen.stats.change import ASSUMED_NOISE
from loadgen.stats.summary import Distribution, Interval, Summary
from loadgen.stats.validity import OTHER_LENGTHS, due_unknown

_DRIFT = 0.1  # the noise that is assumed of a makespan: what drifts in a run moves all of it
_NOISE_SAID, _DRIFT_SAID = f"{100 * ASSUMED_NOISE:.0f} %", f"{100 * _DRIFT:.0f} %"
_GROSS = 2  # so many times as good is no chance, even where too few requests tell how sure a figure is

# The rows that decide.
_MAKESPAN, _ATTAINMENT, _E2E = "makespan_output_tokens_per_s", "attainment", "e2e_p99_adjusted_s"
_MAKESPANS = (_MAKESPAN, "makespan_s")
_FAILING = ("rejection_rate", "error_rate")

_OF_NAMES = ("name", "variants")  # that change nothing in a run

Unit = Literal["s", "s/token", "tokens/s", "requests/s", "share"]


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """Where one variant's figures come from, whether they can be trusted, and how many SLOs it met.

    `differs`: what its scenario has where another's has something else, by key.
    """

    source: Source
    target: str
    model: str | None
    validity: Literal["VALID", "INVALID"]
    offered: int
    ok: int
    slos: str = ""
    differs: dict[str, str] = {}


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One figure by variant, in `unit`.

    `ratios`: value / the baseline's value ("x baseline"); None where either is None or the baseline is 0.
    `n`: the samples behind each value. A None value is undefined; in an `adjusted` row with samples it is
    infinitely late.
    `intervals`: of the ratios, at 95 %, by variant; only of those of which it can be told.
    """

    key: str
    label: str
    unit: Unit
    better: Literal["higher", "lower"]
    values: dict[str, float | None]
    ratios: dict[str, float | None]
    n: dict[str, int]
    adjusted: bool = False
    intervals: dict[str, Interval] = {}


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Variants in the order given, the first being the baseline.

    `asked`: the load of each in words. `rule` says in words which row decides (its key: `decided_by`);
    `winner` is None where it cannot be told, and `reason` says why in either case. `notes`: what a reader
    must know before using the figures.
    """

    baseline: str
    asked: str
    plan_digest: str
    variants: dict[str, Side]
    rows: list[Row]
    rule: str
    decided_by: str
    winner: str | None
    reason: str
    notes: list[str]


def compare(
    summaries: dict[str, Summary], digests: dict[str, str], scenarios: Mapping[str, Mapping[str, Any]] = {}
) -> Comparison:
    """Compare summaries of one plan by variant name; `digests` holds each variant's plan digest, `scenarios`
    what was asked of it.

    Raises ScenarioError for fewer than two variants, or where the plans differ.
    """
    if len(summaries) < 2:
        raise ScenarioError(f"a comparison needs at least two variants, and got {len(summaries)}")
    baseline = next(iter(summaries))
    _refuse_other_plans({name: digests[name] for name, s in summaries.items() if not due_unknown(s)})
    rows = [row for figure in _figures(summaries) if (row := _row(figure, summaries, baseline))]
    decided_by, rule = _rule(summaries)
    deciding = next(figure for figure in _figures(summaries) if figure.key == decided_by)
    winner, reason = _winner(summaries, deciding)
    differences = _differences(scenarios)
    return Comparison(
        baseline=baseline,
        asked=summaries[baseline].asked,
        plan_digest=digests[baseline],
        variants={name: _side(s, differences.get(name, {})) for name, s in summaries.items()},
        rows=rows,
        rule=rule,
        decided_by=decided_by,
        winner=winner,
        reason=reason,
        notes=_notes(summaries, rows),
    )


def _refuse_other_plans(digests: dict[str, str]) -> None:
    baseline = next(iter(digests), "")
    for name, digest in digests.items():
        if digest != digests[baseline]:
            raise ScenarioError(
                f"{name} ran another plan ({digest[:12]}) than {baseline} ({digests[baseline][:12]}): "
                "a difference could come from the load. Run both from one scenario with one seed"
            )


def _side(s: Summary, differs: dict[str, str]) -> Side:
    return Side(
        source=s.source,
        target=s.target,
        model=s.model,
        validity=s.validity,
        offered=s.offered,
        ok=_ok(s),
        slos=", ".join(f"{verdict} {n}" for verdict, n in Counter(r.verdict for r in s.slos).items()),
        differs=differs,
    )


def _differences(scenarios: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """What each asked for where not all asked for the same: `engine.batching` is `static`."""
    flat = {name: dict(_flat(asked)) for name, asked in scenarios.items()}
    keys = dict.fromkeys(key for asked in flat.values() for key in asked)
    if not all("seed" in asked for asked in flat.values()):
        keys.pop("seed", None)  # an imported run's is unknown
    unlike = [key for key in keys if len({asked.get(key) for asked in flat.values()}) > 1]
    return {name: {key: asked[key] for key in unlike if key in asked} for name, asked in flat.items()}


def _flat(asked: Mapping[str, Any], within: str = "") -> Iterator[tuple[str, str]]:
    for key, value in asked.items():
        if within or key not in _OF_NAMES:
            if key.endswith("_tokens"):
                yield f"{within}{key}", law_in_words(value)
            elif isinstance(value, Mapping):
                yield from _flat(value, f"{within}{key}.")
            else:
                yield (
                    f"{within}{key}",
                    value if isinstance(value, str) else msgspec.json.encode(value).decode(),
                )


# --- rows -----------------------------------------------------------------------------------------


class _Figure(NamedTuple):
    """Where a row's values come from: a Summary's field `key`, or a statistic of one of its metrics."""

    key: str
    label: str
    unit: Unit
    better: Literal["higher", "lower"] = "lower"
    metric: str | None = None
    stat: Literal["mean", "p50", "p99", "p99 adjusted"] = "mean"

    def value(self, s: Summary) -> float | None:
        if self.metric is not None:
            return _stat(s.metrics[self.metric], self.stat) if self.metric in s.metrics else None
        if self.key == _ATTAINMENT:
            return s.goodput.attainment if s.goodput else None
        found: float | None = getattr(s, self.key)
        return found

    def n(self, s: Summary) -> int:
        if self.metric is None:
            return s.offered if self.unit == "share" else _ok(s)
        found = s.metrics.get(self.metric)
        return 0 if found is None else found.offered if self.adjusted else found.n

    def interval(self, s: Summary) -> Interval | None:
        """Of the value without its noise. Of a plain figure only where all offered were ok."""
        if self.key in _MAKESPANS:
            return Interval(low=self.value(s), high=self.value(s), decided=True)
        if self.metric is None:
            return s.intervals.get(self.key)
        found = s.metrics.get(self.metric)
        if found is None or not (self.adjusted or found.n == found.offered):
            return None
        return found.intervals.get(self.stat.removesuffix(" adjusted"))

    @property
    def noise(self) -> float:
        """That is assumed in each run, as one run does not show it. Of shares none: one near 0 or 1 does not
        move by a percentage.
        """
        return 0.0 if self.unit == "share" else _DRIFT if self.key in _MAKESPANS else ASSUMED_NOISE

    @property
    def adjusted(self) -> bool:
        return self.stat == "p99 adjusted"


def _stat(d: Distribution, stat: str) -> float | None:
    if stat == "mean":
        return d.mean
    return d.adjusted.get("p99") if stat == "p99 adjusted" else d.quantiles.get(stat)


def _figures(summaries: dict[str, Summary]) -> list[_Figure]:
    """Latencies from due, which is what a user waits; from start on all sides where one knows no better."""
    since, words = ("_from_start", " from start") if any(map(due_unknown, summaries.values())) else ("", "")
    return [
        _Figure("makespan_s", "makespan", "s"),
        _Figure(_MAKESPAN, "makespan throughput", "tokens/s", "higher"),
        _Figure("completed_rps", "completed", "requests/s", "higher"),
        _Figure(_ATTAINMENT, "goodput attainment", "share", "higher"),
        _Figure("rejection_rate", "rejection rate", "share"),
        _Figure("error_rate", "error rate", "share"),
        *_quantiles(f"ttft{since}", f"TTFT{words}"),
        *_gaps(summaries),
        *_quantiles("tpot", "TPOT"),
        *_quantiles(f"e2e{since}", f"E2E{words}"),
        _Figure(_E2E, f"E2E{words} p99 adjusted", "s", metric=f"e2e{since}_s", stat="p99 adjusted"),
        _Figure("normalized_latency_mean_s", "normalized latency", "s/token", metric="normalized_latency_s"),
    ]


def _quantiles(metric: str, word: str) -> list[_Figure]:
    return [
        _Figure(f"{metric}_p50_s", f"{word} p50", "s", metric=f"{metric}_s", stat="p50"),
        _Figure(f"{metric}_p99_s", f"{word} p99", "s", metric=f"{metric}_s", stat="p99"),
    ]


def _gaps(summaries: dict[str, Summary]) -> list[_Figure]:
    """ITL where every variant has it, else chunk gaps: never one beside the other."""
    have_itl = all("itl_s" in s.metrics and s.metrics["itl_s"].n for s in summaries.values())
    return _quantiles("itl", "ITL") if have_itl else _quantiles("chunk_gap", "chunk gap")


def _ok(s: Summary) -> int:
    return s.outcomes.get("ok", 0)


def _row(figure: _Figure, summaries: dict[str, Summary], baseline: str) -> Row | None:
    """The figure by variant, or None where no variant has it."""
    values = {name: figure.value(s) for name, s in summaries.items()}
    n = {name: figure.n(s) for name, s in summaries.items()}
    if all(v is None for v in values.values()) and not (figure.adjusted and any(n.values())):
        return None
    ratios = {name: _ratio(v, values[baseline]) for name, v in values.items()}
    sure = {
        name: _interval(figure, s, summaries[baseline]) for name, s in summaries.items() if name != baseline
    }
    return Row(
        key=figure.key,
        label=figure.label,
        unit=figure.unit,
        better=figure.better,
        values=values,
        ratios=ratios,
        n=n,
        adjusted=figure.adjusted,
        intervals={name: interval for name, interval in sure.items() if interval is not None},
    )


def _ratio(value: float | None, baseline: float | None) -> float | None:
    return None if value is None or not baseline else value / baseline


def _interval(figure: _Figure, one: Summary, other: Summary) -> Interval | None:
    """Of the figure's ratio, one over the other; None where either is not known, or it could be anything.

    MOVER (Zou and Donner, Statistics in Medicine 27, 2008, 1693-1702) on the logarithms: a difference's
    bound is as far away as the root of the squares of how far away the two that make for it are. Two standard
    deviations of the noise of both runs are a third.
    """
    a, b = figure.value(one), figure.value(other)
    of_a, of_b = figure.interval(one), figure.interval(other)
    if not (a and b and of_a and of_b and of_a.decided and of_b.decided):
        return None
    noise = 2 * sqrt(2) * figure.noise
    down = _away(a, of_a.low, b, of_b.high, noise)
    up = _away(b, of_b.low, a, of_a.high, noise)
    if down is None and up is None:
        return None
    low = 0.0 if down is None else a / b * exp(-down)
    return Interval(low=low, high=None if up is None else a / b * exp(up), decided=True)


def _away(above: float, low: float | None, below: float, high: float | None, noise: float) -> float | None:
    """How far one may fall and the other rise, together, in logarithms; None where there is no end to it."""
    if not low or high is None:
        return None
    return hypot(max(0.0, log(above / low)), max(0.0, log(high / below)), noise)


# --- winner ---------------------------------------------------------------------------------------


def _rule(summaries: dict[str, Summary]) -> tuple[str, str]:
    """Which row decides, and the rule in words: chosen by the kind of load, never by the result."""
    key, rule = _figure_of_load([*summaries.values()])
    noise = {_MAKESPAN: _DRIFT_SAID, _E2E: _NOISE_SAID}.get(key)
    chance = f"chance, with {noise} of noise in each run," if noise else "chance"
    return key, f"{rule}; nobody where {chance} may make the difference"


def _figure_of_load(every: list[Summary]) -> tuple[str, str]:
    if every[0].window_by == "burst":
        return _MAKESPAN, (
            "a burst is won by the highest makespan throughput "
            "(output tokens of ok requests / time from first due to last end)"
        )
    good = every[0].goodput
    if good and all(s.goodput and s.goodput.limits() == good.limits() for s in every):
        return _ATTAINMENT, (
            f"the highest goodput attainment wins (share of offered requests with {good.limits()})"
        )
    return _E2E, (
        "the lowest adjusted p99 of E2E wins "
        "(over all offered requests; a failed one counts as infinitely late)"
    )


def _winner(summaries: dict[str, Summary], figure: _Figure) -> tuple[str | None, str]:
    if invalid := [name for name, s in summaries.items() if s.validity == "INVALID"]:
        return None, f"the measurement of {_and(invalid)} is INVALID"
    if others := [name for name, s in summaries.items() if any(f.name == OTHER_LENGTHS for f in s.findings)]:
        return None, f"{_and(others)} did not keep to the output lengths asked: the work was not the same"
    if imported := [name for name, s in summaries.items() if due_unknown(s)]:
        return None, f"nothing tells whether {_and(imported)} had the same load, or a client that kept up"
    known = [(v, name) for name, s in summaries.items() if (v := figure.value(s)) is not None]
    if not known:
        return None, "no variant has the figure that decides: too many requests failed"
    is_higher = figure.better == "higher"
    _, best = (max if is_higher else min)(known)
    behind = [name for name, s in summaries.items() if name != best and _ahead(figure, summaries[best], s)]
    if near := [name for name in summaries if name not in (best, *behind)]:
        rest = f"; behind: {_and(behind)}" if behind else ""
        return None, f"a tie: {_and([best, *near])} cannot be told apart in {figure.label}{rest}"
    return best, f"{'highest' if is_higher else 'lowest'} {figure.label}"


def _ahead(figure: _Figure, best: Summary, other: Summary) -> bool:
    """Whether it is beyond chance that the `best` is better: the interval of the ratio is without 1. An
    infinitely late one must surely fail more.
    """
    if figure.value(other) is None:
        return any(_apart(best.intervals.get(rate), other.intervals.get(rate)) for rate in _FAILING)
    if sure := _interval(figure, best, other):
        return (sure.low or 0) > 1 or (sure.high is not None and sure.high < 1)
    if figure.unit == "share":  # of which one is 0
        return _apart(figure.interval(other), figure.interval(best))
    least, most = sorted((figure.value(best) or 0, figure.value(other) or 0))
    return most > _GROSS * least


def _apart(below: Interval | None, above: Interval | None) -> bool:
    if below is None or above is None or below.high is None or above.low is None:
        return False
    return below.high < above.low


def _and(names: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def _notes(summaries: dict[str, Summary], rows: list[Row]) -> list[str]:
    def having(test: Callable[[Summary], object]) -> str:
        return _and([name for name, s in summaries.items() if test(s)])

    notes = ["One run of one plan for each variant: a ratio near 1 may be chance."]
    if any(row.intervals for row in rows):
        notes.append(
            "Intervals are of the ratio, at 95 %: by chance within the runs, and by "
            f"{_NOISE_SAID} of noise in each that is assumed, since one run of each cannot show it "
            f"(repeats and gate measure it). Of the makespan, by {_DRIFT_SAID} of it and nothing else; of "
            "rejection and error rate, without it. What drifts more slowly than a twentieth of a run is not "
            "seen within it: where something does, the other intervals are too narrow."
        )
    sources = {s.source for s in summaries.values()}
    if "virtual" in sources:
        beside = " beside measured ones" if len(sources) > 1 else ""
        notes.append(f"SIMULATED figures{beside}: {having(lambda s: s.source == 'virtual')}.")
    if names := having(due_unknown):
        notes.append(
            f"Imported: {names}. TTFT and E2E count from the start of a request, on all sides; attainment "
            "and normalized latency from due, where that is known. A difference could come from the load, "
            "and on chat that of TTFT and gaps from which event is taken for the first token: no file tells."
        )
    if names := having(lambda s: s.overloaded):
        notes.append(f"Overloaded: {names}. There, latencies depend on how long one measured.")
    if names := having(lambda s: s.partly_closed_loop):
        notes.append(f"Partly closed loop: {names}. A concurrency cap was set.")
    if names := having(lambda s: s.itl_assumed and s.itl_valid):
        notes.append(f"ITL assumes one token per event, for want of usage: {names}.")
    if names := having(lambda s: not s.itl_valid):
        notes.append(f"Gaps between tokens are not to be used: {names}. The findings of that run say why.")
    return notes
