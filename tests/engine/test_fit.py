"""Fitting a step's cost, against constants that made the data."""

from __future__ import annotations

from collections.abc import Sequence
from math import hypot
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.engine.fit import Measured, fit, read
from loadgen.scenario import ScenarioError

WEIGHTS_S, TOKEN_S, CONTEXT_S, OVERHEAD_S = 0.022, 1.2e-4, 7e-7, 0.005


def measured(
    tokens: Sequence[float], contexts: Sequence[float], noise: float = 0.0, seed: int = 1
) -> list[Measured]:
    """Steps of known constants, each with a relative error of that deviation."""
    errors = noise * np.random.default_rng(seed).standard_normal(len(tokens))
    return [
        Measured(t, c, (hypot(WEIGHTS_S, TOKEN_S * t) + CONTEXT_S * c + OVERHEAD_S) * (1 + error))
        for t, c, error in zip(tokens, contexts, errors.tolist(), strict=True)
    ]


def spread_steps(n: int) -> tuple[list[float], list[float]]:
    random = np.random.default_rng(3)
    tokens = np.exp(random.uniform(0, np.log(4096), n)).round()
    return tokens.tolist(), random.integers(0, 60_000, n).astype(float).tolist()


def test_constants_come_back_from_noisy_steps() -> None:
    """300 steps with errors of 2 %: each constant within a tenth, overhead (the least told) a fifth."""
    found = fit(measured(*spread_steps(300), noise=0.02))
    assert found.cost.weights_s == pytest.approx(WEIGHTS_S, rel=0.1)
    assert found.cost.per_token_s == pytest.approx(TOKEN_S, rel=0.02)
    assert found.cost.per_context_token_s == pytest.approx(CONTEXT_S, rel=0.02)
    assert found.cost.overhead_s == pytest.approx(OVERHEAD_S, rel=0.2)
    assert (found.n, found.notes) == (300, [])


def test_the_residuals_are_those_of_the_noise() -> None:
    """|N(0, 2 %)| has its median at 0.6745 and its 95th percentile at 1.96 deviations."""
    found = fit(measured(*spread_steps(2000), noise=0.02))
    assert found.error_p50 == pytest.approx(0.6745 * 0.02, rel=0.06)
    assert found.error_p95 == pytest.approx(1.96 * 0.02, rel=0.06)


@given(
    st.floats(1e-3, 0.1), st.floats(1e-6, 1e-3), st.floats(1e-9, 1e-5), st.floats(0, 0.05), st.integers(0, 99)
)
def test_exact_steps_are_met_exactly(
    weights_s: float, token_s: float, context_s: float, overhead_s: float, seed: int
) -> None:
    """Without noise, whatever the constants are, no step is off by more than 0.1 %."""
    random = np.random.default_rng(seed)
    tokens, contexts = random.integers(1, 4096, 40), random.integers(0, 100_000, 40)
    seconds = np.hypot(weights_s, token_s * tokens) + context_s * contexts + overhead_s
    rows = [Measured(*row) for row in zip(tokens.tolist(), contexts.tolist(), seconds.tolist(), strict=True)]
    found = fit(rows)
    assert found.error_p95 < 1e-3
    assert min(found.cost.weights_s, found.cost.per_token_s, found.cost.overhead_s) >= 0


def test_a_long_step_counts_no_more_than_a_short_one() -> None:
    """Errors are relative: a few steps of seconds do not bend the constants of those of milliseconds."""
    tokens, contexts = spread_steps(200)
    rows = measured(tokens, contexts, noise=0.01)
    rows += measured([200_000.0] * 4, [0.0] * 4, noise=0.05, seed=9)
    assert fit(rows).cost.weights_s == pytest.approx(WEIGHTS_S, rel=0.1)


def test_contexts_all_alike_tell_nothing_of_themselves() -> None:
    """Their cost goes elsewhere, and the note says so."""
    tokens, _ = spread_steps(50)
    found = fit(measured(tokens, [1000.0] * 50))
    assert found.cost.per_context_token_s == 0
    assert found.cost.overhead_s == pytest.approx(OVERHEAD_S + 1000 * CONTEXT_S, rel=0.01)
    assert found.notes[0].startswith("contexts are 1000 in every row: per_context_token is taken as 0")


def test_tokens_all_alike_leave_one_constant_for_three() -> None:
    """What every step takes is in weights; what contexts add is still told."""
    _, contexts = spread_steps(50)
    found = fit(measured([32.0] * 50, contexts))
    assert (found.cost.per_token_s, found.cost.overhead_s) == (0, 0)
    assert found.cost.weights_s == pytest.approx(hypot(WEIGHTS_S, TOKEN_S * 32) + OVERHEAD_S, rel=1e-6)
    assert found.cost.per_context_token_s == pytest.approx(CONTEXT_S, rel=1e-6)
    assert found.notes[0].startswith("tokens are 32 in every row")


def test_small_batches_do_not_tell_weights_from_overhead_and_the_fit_says_so() -> None:
    """Up to 64 tokens the formula is all but flat: the figures fit, the constants are not to be trusted."""
    random = np.random.default_rng(2)
    tokens, contexts = random.integers(1, 64, 100), random.integers(0, 60_000, 100)
    found = fit(measured(tokens.tolist(), contexts.tolist(), noise=0.02))
    assert found.error_p95 < 0.05
    assert any("hardly told" in note for note in found.notes)


def test_a_table_is_read_by_its_header(tmp_path: Path) -> None:
    """Columns in any order, others beside them, spaces, a byte order mark and blank lines."""
    path = tmp_path / "steps.csv"
    path.write_text(
        "\ufeffseconds, gpu ,contexts,tokens\n0.02,a,100,1\n\n 0.03,b,0,2\n1e-1,,5.5, 3\n0.4,d,7,4\n", "utf-8"
    )
    assert read(path) == [(1, 100, 0.02), (2, 0, 0.03), (3, 5.5, 0.1), (4, 7, 0.4)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tokens,seconds\n1,1\n", ":1: no column contexts"),
        ("", ":1: no column tokens, contexts, seconds"),
        ("tokens,contexts,seconds\n1,0,0.1\n2,0,x\n", ":3: seconds: 'x' is not a number"),
        ("tokens,contexts,seconds\n1,0\n", ":2: seconds: 'nothing' is not a number"),
        ("tokens,contexts,seconds\n1,0,nan\n", ":2: seconds: nan must be from 1e-09 to 1e+06"),
        ("tokens,contexts,seconds\n1,0,inf\n", ":2: seconds: inf must be from"),
        ("tokens,contexts,seconds\n1,-1,0.1\n", ":2: contexts: -1 must be from 0 to 1e+12"),
        ("tokens,contexts,seconds\n0,0,0.1\n", ":2: tokens: 0 must be from 1 to 1e+09"),
        ("tokens,contexts,seconds\n1,0,-0.1\n", ":2: seconds: -0.1 must be from"),
        ("tokens,contexts,seconds\n" + "1,0,0.1\n" * 3, "3 rows; four constants need at least 4"),
    ],
)
def test_a_table_that_cannot_be_fitted_is_refused_with_its_line(
    tmp_path: Path, text: str, words: str
) -> None:
    """ScenarioError with the file, the line, the column and the value."""
    path = tmp_path / "steps.csv"
    path.write_text(text)
    with pytest.raises(ScenarioError) as caught:
        read(path)
    assert str(caught.value).startswith(str(path))
    assert words in str(caught.value)


def test_a_file_that_is_none_or_no_text_is_the_users_mistake(tmp_path: Path) -> None:
    """Not a traceback."""
    with pytest.raises(ScenarioError, match="No such file"):
        read(tmp_path / "absent.csv")
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ScenarioError, match="not UTF-8"):
        read(tmp_path / "binary.csv")
    (tmp_path / "huge.csv").write_text(f'tokens,contexts,seconds\n"{"1" * 200_000}",0,1\n')
    with pytest.raises(ScenarioError, match="not CSV"):
        read(tmp_path / "huge.csv")


def test_three_rows_are_too_few_to_fit() -> None:
    """Four constants need four."""
    with pytest.raises(ScenarioError, match="at least 4"):
        fit(measured([1, 2, 3], [0, 0, 0]))


def test_steps_of_many_seconds_are_suspected_to_be_milliseconds() -> None:
    """Twelve to thirty "seconds" a step are told; twelve to thirty milliseconds are not."""
    rows = [Measured(n, 9 * n, 12 + n / 50) for n in range(1, 900, 40)]
    assert any("is the column in milliseconds?" in note for note in fit(rows).notes)
    rows = [row._replace(seconds=row.seconds / 1e3) for row in rows]
    assert not any("milliseconds" in note for note in fit(rows).notes)
