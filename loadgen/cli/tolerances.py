"""`--tolerance` and `--noise` of a gate, as they are written."""

from __future__ import annotations

from collections.abc import Sequence

from loadgen.gate import metric_of
from loadgen.scenario import ScenarioError
from loadgen.stats.figures import METRICS, Tolerance, Unit
from loadgen.units import duration_s, quoted, rate_rps, share


def tolerances_from(texts: Sequence[str]) -> dict[str, Tolerance]:
    """`5%` for all metrics, or `METRIC=5%,20ms` for one; the latter comes first, wherever it stands.

    A share of the baseline's figure, an absolute allowance in the metric's unit (20ms, 50/s, 0.5pp), or both:
    the larger counts. Raises ScenarioError, naming the word.
    """
    for_all: dict[str, Tolerance] = {}
    own: dict[str, Tolerance] = {}
    for text in texts:
        try:
            metric, equals, words = (word.strip() for word in text.rpartition("="))
            if metric in own or (for_all and not equals):
                raise ValueError(f"{metric or 'all'} has one already")
            if equals:
                own[metric] = _tolerance(metric, words)
            else:
                for key, one in METRICS.items():
                    absolute = one.tolerance.absolute if one.unit == "share" else 0.0
                    for_all[key] = Tolerance(relative=share(text), absolute=absolute)
        except ValueError as problem:
            raise ScenarioError(f"--tolerance {quoted(text)}: {problem}") from None
    return for_all | own


def noise_from(text: str) -> float:
    """`1%`, as a share. Raises ScenarioError."""
    try:
        return share(text)
    except ValueError as problem:
        raise ScenarioError(f"--noise: {problem}") from None


def _tolerance(metric: str, words: str) -> Tolerance:
    unit, found = metric_of(metric).unit, {"relative": 0.0, "absolute": 0.0}
    for word in map(str.strip, words.split(",")):
        kind = "relative" if word.endswith("%") else "absolute"
        if found[kind]:
            raise ValueError(f"{quoted(word)} is its second {kind} one")
        found[kind] = share(word) if word.endswith("%") else _absolute(word, unit)
    return Tolerance(**found)


def _absolute(word: str, unit: Unit) -> float:
    if unit != "share":
        return duration_s(word) if unit == "s" else rate_rps(word)
    if not word.endswith("pp"):
        raise ValueError(f"{quoted(word)} is not percentage points, such as 0.5pp")
    return share(word.removesuffix("pp") + "%")
