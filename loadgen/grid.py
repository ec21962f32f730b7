"""A grid over any keys of a scenario: each cell is a scenario of its own, and a row of one table."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, product
from math import prod
from typing import Any

from loadgen.scenario import Scenario, ScenarioError, build
from loadgen.stats.summary import Summary
from loadgen.units import duration_s, quoted, rate_rps

MOST_CELLS = 10_000

_FIGURES = (
    "offered",
    "offered_rps",
    "completed_rps",
    "output_tokens_per_s",
    "makespan_s",
    "makespan_output_tokens_per_s",
    "rejection_rate",
    "error_rate",
    "in_flight_max",
)
_METRICS = ("ttft_s", "itl_s", "tpot_s", "e2e_s")
_QUANTILES = ("p50", "p90", "p99")


@dataclass(frozen=True, slots=True)
class Cell:
    """One choice of a value for every key that varies, and the scenario with them."""

    name: str
    values: dict[str, Any]
    scenario: Scenario


@dataclass(frozen=True, slots=True)
class Ran:
    """A cell that was run: its summary and exit code. Its run folder has the cell's name."""

    cell: Cell
    summary: Summary
    code: int


def cells(scenario: Scenario, where: str, by: str = "vary") -> list[Cell]:
    """Every combination of `vary`, the last key changing fastest; values that have an order rise.

    A rise matters where the first cell that fails ends the grid: above a rate that fails all others do.
    `by`: what errors call `vary`, where it came from elsewhere.

    Raises ScenarioError, naming the key and the value, for one that makes no scenario.
    """
    axes = {key: _risen(values) for key, values in scenario.vary.items()}
    for key, values in axes.items():
        if any(a == b for a, b in combinations(values, 2)):
            raise ScenarioError(f"{where}: {by}.{key}: a value is given twice")
    if (number := prod(map(len, axes.values()))) > MOST_CELLS:
        raise ScenarioError(f"{where}: {by}: {number:,} cells are more than {MOST_CELLS:,}")
    plain = scenario.model_dump(mode="json", by_alias=True, exclude={"vary"})
    choices = [dict(zip(axes, chosen, strict=True)) for chosen in product(*axes.values())]
    found = [
        Cell(_name(i, chosen), chosen, _with(plain, chosen, where, by)) for i, chosen in enumerate(choices, 1)
    ]
    _refuse_secrets(found, where, by)
    return found


def _refuse_secrets(found: list[Cell], where: str, by: str) -> None:
    """What varies is told in the names of folders and in tables. Raises ScenarioError."""
    for cell in found:
        plain, shown = cell.scenario.model_dump(mode="json", by_alias=True), cell.scenario.as_asked()
        for key in cell.values:
            if _at(plain, key.split(".")) != _at(shown, key.split(".")):
                raise ScenarioError(f"{where}: {by}.{key}: a secret would be told in names and tables")


def _at(data: Any, path: list[str]) -> Any:
    for key in path:
        data = data.get(key) if isinstance(data, dict) else data
    return data


def table(ran: list[Ran]) -> str:
    """All cells as CSV: what was varied, its folder, and its figures; empty where one is undefined."""
    text = io.StringIO()
    figures = [f"{metric}_{q}" for metric in _METRICS for q in _QUANTILES]
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        ["folder", *ran[0].cell.values, "run_id", "exit_code", "validity", "ok", *_FIGURES, *figures]
    )
    for one in ran:
        summary = one.summary
        told = [getattr(summary, name) for name in _FIGURES]
        ok = summary.outcomes.get("ok", 0)
        head = [one.cell.name, *one.cell.values.values(), summary.run_id, one.code, summary.validity, ok]
        writer.writerow([*head, *told, *_quantiles(summary)])
    return text.getvalue()


def _quantiles(summary: Summary) -> Iterator[float | None]:
    for metric in _METRICS:
        for q in _QUANTILES:
            yield summary.metrics[metric].quantiles[q]


def _risen(values: tuple[Any, ...]) -> list[Any]:
    """In rising order where they are all numbers, with a unit or without; else as they were given."""
    sizes = [_size(value) for value in values]
    if any(size is None for size in sizes):
        return list(values)
    return [value for _, value in sorted(zip(sizes, values, strict=True), key=lambda pair: pair[0] or 0.0)]


def _size(value: Any) -> float | None:
    for read in (rate_rps, duration_s):
        try:
            return read(value)
        except ValueError:
            continue
    return None


def _name(number: int, chosen: dict[str, Any]) -> str:
    """A folder's name that says what is in it: `003-rate=8_s-max_sequences=16`."""
    words = [f"{_plain(key.rsplit('.', 1)[-1])}={_word(value)}" for key, value in chosen.items()]
    return "-".join([f"{number:03}", *words])[:100]


def _word(value: Any) -> str:
    return _plain(value.get("kind", "") if isinstance(value, dict) else str(value))[:24]


def _plain(text: str) -> str:
    return re.sub(r"[^\w.]+", "_", text)


def changed(scenario: Scenario, values: Mapping[str, Any], by: str) -> Scenario:
    """The scenario with a value at each key path; errors call that `by`. Raises ScenarioError."""
    return _with(scenario.model_dump(mode="json", by_alias=True), values, scenario.name, by)


def _with(plain: dict[str, Any], chosen: Mapping[str, Any], where: str, by: str) -> Scenario:
    data = plain
    for key, value in chosen.items():
        data = _put(data, key.split("."), value)
    said = ", ".join(f"{key}: {quoted(value)}" for key, value in chosen.items())
    try:
        return build(data, where)
    except ScenarioError as problem:
        lines = str(problem).splitlines()
        raise ScenarioError("\n".join(f"{line} ({by}, {said})" for line in lines)) from None


def _put(data: Any, path: list[str], value: Any) -> Any:
    """A copy of `data` with `value` at `path`; a list's entries go by number."""
    if not path:
        return value
    key, *rest = path
    if isinstance(data, list) and key.isdecimal() and int(key) < len(data):
        return [_put(inner, rest, value) if i == int(key) else inner for i, inner in enumerate(data)]
    room = data if isinstance(data, dict) else {}
    return room | {key: _put(room.get(key), rest, value)}
