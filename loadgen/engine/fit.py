"""A step's cost out of measurements: the constants with which the formula comes nearest to them."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from loadgen.knobs import FittedCost
from loadgen.scenario import ScenarioError
from loadgen.units import about, quoted, told

_NAMES = ("weights", "per_token", "per_context_token", "overhead")
_LEAST_ROWS = len(_NAMES)
_RANGES = {"tokens": (1, 1e9), "contexts": (0, 1e12), "seconds": (1e-9, 1e6)}
_GRID = 121
_SLOW_S = 2.0  # for a step, and likely a slip of units
_WIDE = 0.5  # an interval wider than this share of its constant is told

_Array = NDArray[np.float64]


class Measured(NamedTuple):
    """A step: tokens computed in it, positions that its decodes attended to in all, and what it took."""

    tokens: float
    contexts: float
    seconds: float


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """`error_p50`, `error_p95`: quantiles of |fitted / measured - 1| over the `n` rows. `notes`: sentences on
    constants that these rows do not tell.
    """

    cost: FittedCost
    n: int
    error_p50: float
    error_p95: float
    notes: list[str]


# --- reading ------------------------------------------------------------------------------------------------


def read(path: Path) -> list[Measured]:
    """The rows of a CSV whose header names tokens, contexts and seconds, in any order, among others or not.

    Raises ScenarioError, with the line, for what is no number or out of range; and for fewer than 4 rows.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except (OSError, ValueError) as problem:
        why = getattr(problem, "strerror", None) or "not UTF-8 text"
        raise ScenarioError(f"{path}: cannot be read: {why}") from None
    try:
        rows = list(_rows(csv.DictReader(io.StringIO(text, newline=""), skipinitialspace=True), path))
    except csv.Error as problem:
        raise ScenarioError(f"{path}: not CSV: {problem}") from None
    if len(rows) < _LEAST_ROWS:
        raise ScenarioError(f"{path}: {len(rows)} rows; four constants need at least {_LEAST_ROWS}")
    return rows


def _rows(table: csv.DictReader[str], path: Path) -> Iterator[Measured]:
    header = [name.strip() for name in table.fieldnames or ()]
    table.fieldnames = header
    missing = [name for name in Measured._fields if name not in header]
    if missing:
        raise ScenarioError(
            f"{path}:1: no column {', '.join(missing)}: the header must name tokens, contexts and seconds"
        )
    if twice := [name for name in Measured._fields if header.count(name) > 1]:
        raise ScenarioError(f"{path}:1: column {', '.join(twice)} is there twice")
    for row in table:
        where = f"{path}:{table.line_num}"
        yield Measured(*(_cell(row[name], name, where) for name in Measured._fields))


def _cell(text: str | None, name: str, where: str) -> float:
    try:
        value = float(text or "")
    except ValueError:
        raise ScenarioError(f"{where}: {name}: {quoted(text or 'nothing')} is not a number") from None
    least, most = _RANGES[name]
    if not least <= value <= most:
        raise ScenarioError(f"{where}: {name}: {told(text, 60)} must be from {least:g} to {most:g}")
    return value


# --- fitting ------------------------------------------------------------------------------------------------


def fit(rows: list[Measured]) -> Fit:
    """The constants, none negative, with the least sum of squared relative errors.

    What does not vary tells nothing: per_context_token is zero where contexts are all alike, per_token and
    overhead where tokens are. Raises ScenarioError for fewer than 4 rows.
    """
    if len(rows) < _LEAST_ROWS:
        raise ScenarioError(f"{len(rows)} rows; four constants need at least {_LEAST_ROWS}")
    steps = _Steps(*(np.array(column, dtype=np.float64) for column in zip(*rows, strict=True)))
    tried = _tried(steps)
    best = min(tried, key=lambda one: one.missed)
    errors = np.abs(_relative_errors(steps, best.constants))
    asked = {name: f"{seconds:.6g}s" for name, seconds in zip(_NAMES, best.constants.tolist(), strict=True)}
    return Fit(
        cost=FittedCost.model_validate({"kind": "fitted", **asked}),
        n=len(rows),
        error_p50=float(np.quantile(errors, 0.5)),
        error_p95=float(np.quantile(errors, 0.95)),
        notes=[*_slow(steps), *_unvaried(steps), *_unsure(best, tried, len(rows))],
    )


class _Steps(NamedTuple):
    tokens: _Array
    contexts: _Array
    seconds: _Array


class _Try(NamedTuple):
    """The best constants with a given ridge, and the root of their squared relative errors' sum."""

    constants: _Array
    missed: float


def _tried(steps: _Steps) -> list[_Try]:
    """With the ridge given, which is weights / per_token, the formula is linear in the rest. So the ridge
    alone is searched, on a grid and then about the best of it, and no start has to be guessed.
    """
    from scipy.optimize import minimize_scalar

    if not _varies(steps.tokens):
        return [_at_ridge(steps, math.inf)]
    grid = np.linspace(np.log(steps.tokens.min()) - 3, np.log(steps.tokens.max()) + 3, _GRID)
    tried = [_at_ridge(steps, math.exp(ridge)) for ridge in grid]
    best = int(np.argmin([one.missed for one in tried]))
    near = grid[max(best - 1, 0)], grid[min(best + 1, _GRID - 1)]
    found = minimize_scalar(
        lambda ridge: _at_ridge(steps, math.exp(ridge)).missed, bounds=near, method="bounded"
    )
    return [*tried, _at_ridge(steps, math.exp(found.x))]


def _at_ridge(steps: _Steps, ridge_tokens: float) -> _Try:
    from scipy.optimize import nnls

    n = len(steps.seconds)
    columns = np.stack((np.hypot(1, steps.tokens / ridge_tokens), steps.contexts, np.ones(n))) / steps.seconds
    columns[1] *= _varies(steps.contexts)
    columns[2] *= _varies(steps.tokens)
    sizes = np.linalg.norm(columns, axis=1)
    sizes[sizes == 0] = 1.0
    solution, missed = nnls((columns.T / sizes), np.ones(n))
    weights_s, context_s, overhead_s = solution / sizes
    return _Try(np.array([weights_s, weights_s / ridge_tokens, context_s, overhead_s]), float(missed))


def _relative_errors(steps: _Steps, constants: _Array) -> _Array:
    weights_s, token_s, context_s, overhead_s = constants
    fitted = np.hypot(weights_s, token_s * steps.tokens) + context_s * steps.contexts + overhead_s
    return np.asarray(fitted / steps.seconds - 1)


# --- what the rows do not tell ------------------------------------------------------------------------------


def _varies(column: _Array) -> bool:
    return bool(column.min() < column.max())


def _slow(steps: _Steps) -> Iterator[str]:
    median_s = float(np.median(steps.seconds))
    if median_s > _SLOW_S:
        yield f"half of the steps take {about(median_s)} or more: is the column in milliseconds?"


def _unvaried(steps: _Steps) -> Iterator[str]:
    if not _varies(steps.tokens):
        yield (
            f"tokens are {steps.tokens[0]:g} in every row: per_token and overhead are taken as 0, "
            "weights hold what they cost"
        )
    if not _varies(steps.contexts):
        yield (
            f"contexts are {steps.contexts[0]:g} in every row: per_context_token is taken as 0, "
            "what they cost is in the others"
        )


def _unsure(best: _Try, tried: list[_Try], n: int) -> Iterator[str]:
    """The constants that differ much among ridges which fit about as well: the likelihood's interval of two
    standard errors along the ridge.
    """
    limit = best.missed * math.sqrt(1 + 4 / max(1, n - len(_NAMES)))
    as_good = np.array([one.constants for one in tried if one.missed <= limit])
    for which, name in enumerate(_NAMES):
        low, high = as_good[:, which].min(), as_good[:, which].max()
        if high - low > _WIDE * best.constants[which]:
            yield (
                f"{name} is hardly told: from {about(low)} to {about(high)} the rows fit as well; "
                "rows with other tokens and contexts would tell"
            )
