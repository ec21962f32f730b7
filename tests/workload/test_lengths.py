"""How many tokens, against each law's probabilities written out by another road."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from loadgen import scenario
from loadgen.laws import LengthLaw
from loadgen.scenario import ScenarioError
from loadgen.workload import lengths
from tests.workload.laws import LAWS, law, probabilities

N = 200_000


def drawn_of(law: LengthLaw, n: int = N) -> np.ndarray:
    return lengths.draw(law, 5, "output_tokens", 0, n)


def truncated(mean: float, cap: int, least: int = 1, rounding: str = "ceil") -> Any:
    return law("truncated_exponential", mean=mean, cap=cap, min=least, rounding=rounding)


def theory(law: LengthLaw) -> tuple[float, float]:
    """Mean and sd, by adding up."""
    numbers, p = probabilities(law)
    mean = math.fsum(numbers * p)
    return mean, math.sqrt(math.fsum((numbers - mean) ** 2 * p))


# --- draws ----


def pools(p: np.ndarray) -> np.ndarray:
    """A number for each of p, alike for neighbours of which 50 are expected together, or more."""
    pool, first, expected = np.zeros(len(p), int), 0, 0.0
    for place in range(len(p)):
        expected += p[place] * N
        pool[first : place + 1] = place if expected >= 50 else pool[first - 1]
        if expected >= 50:
            first, expected = place + 1, 0.0
    return np.unique(pool, return_inverse=True)[1]


@pytest.mark.parametrize("name", LAWS)
def test_lengths_follow_their_law(name: str) -> None:
    """Chi-square of 200,000 draws over pools of lengths; each length is one that the law gives."""
    numbers, p = probabilities(LAWS[name])
    drawn = drawn_of(LAWS[name])
    place = np.searchsorted(numbers, drawn)
    assert (numbers[place] == drawn).all()
    wanted = np.bincount(pools(p), p * N)
    seen = np.bincount(pools(p), np.bincount(place, minlength=len(p)))
    assert len(wanted) == 1 or stats.chisquare(seen, wanted).pvalue > 0.001


@pytest.mark.parametrize("name", LAWS)
def test_the_mean_of_draws_is_the_exact_mean(name: str) -> None:
    """Within 5 standard errors."""
    mean, sd = theory(LAWS[name])
    assert drawn_of(LAWS[name]).mean() == pytest.approx(mean, abs=5 * sd / math.sqrt(N) + 1e-9)


@pytest.mark.parametrize("name", LAWS)
def test_a_row_has_its_length_however_many_are_drawn(name: str) -> None:
    """Rows 0 to 1000 at once and in three parts are the same, as int32; another purpose is another stream."""
    whole = drawn_of(LAWS[name], 1000)
    parts = [
        lengths.draw(LAWS[name], 5, "output_tokens", a, b - a) for a, b in ((0, 3), (3, 501), (501, 1000))
    ]
    assert whole.dtype == np.int32
    assert whole.tolist() == np.concatenate(parts).tolist()
    other = lengths.draw(LAWS[name], 5, "prompt_tokens", 0, 1000)
    assert len(set(whole.tolist())) == 1 or whole.tolist() != other.tolist()


@pytest.mark.parametrize("rounding", ["ceil", "redraw"])
def test_no_mass_is_heaped_at_the_cap(rounding: str) -> None:
    """With mean = cap = 128 clipping would put e^-1 = 36.8 % there; truncating leaves about 0.46 %."""
    at_cap = (drawn_of(truncated(128, 128, rounding=rounding)) == 128).mean()
    share = math.exp(-1) / 128 / (1 - math.exp(-1))
    assert at_cap == pytest.approx(share, rel=0.01, abs=5 * math.sqrt(share / N))


def test_an_exponential_is_the_truncated_one_of_the_same_mean_and_bounds() -> None:
    """Rounded from min - 1/2 on, or rounded up from min - 1 on: no memory, no difference."""
    one, other = law("exponential", mean=77, min=5, max=300), truncated(77, 300, 5)
    assert drawn_of(one, 1000).tolist() == drawn_of(other, 1000).tolist()


# --- exact figures ----


@pytest.mark.parametrize("name", LAWS)
def test_exact_mean_and_sd_are_those_of_the_probabilities(name: str) -> None:
    """To nine digits, by adding up."""
    mean, sd = theory(LAWS[name])
    assert lengths.exact_mean(LAWS[name]) == pytest.approx(mean, rel=1e-9)
    assert lengths.exact_sd(LAWS[name]) == pytest.approx(sd, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("p", [1e-9, 0.1, 0.5, 0.9, 0.99, 1 - 1e-9])
def test_a_quantile_is_the_smallest_length_that_reaches_the_share(name: str, p: float) -> None:
    """P(X <= x) >= p, and not for the length before it; by adding up, to 1e-12."""
    numbers, shares = probabilities(LAWS[name])
    x = lengths.quantile(LAWS[name], p)
    assert math.fsum(shares[numbers <= x]) >= p - 1e-12
    assert math.fsum(shares[numbers < x]) < p + 1e-12


def test_quantiles_of_an_even_law_are_those_counted_by_hand() -> None:
    """Of 1 to 4: a quarter is reached at 1, and a hair more at 2."""
    four = law("uniform", min=1, max=4)
    assert [lengths.quantile(four, p) for p in (1e-300, 0.25, 0.2501, 0.5, 0.75, 0.7501)] == [
        1,
        1,
        2,
        2,
        3,
        4,
    ]
    with pytest.raises(ValueError, match="between 0 and 1"):
        lengths.quantile(four, 0)


def test_the_exact_mean_of_128_before_truncation_at_512_is_118_948() -> None:
    """By the closed form of a truncated geometric, q = e^(-1/128)."""
    q = math.exp(-1 / 128)
    assert lengths.exact_mean(truncated(128, 512)) == pytest.approx(118.948, abs=5e-4)
    assert lengths.exact_mean(truncated(128, 512)) == pytest.approx(
        1 / (1 - q) - 512 * q**512 / (1 - q**512), rel=1e-12
    )


def test_a_mean_far_above_the_cap_is_flat() -> None:
    """The limit of the truncated exponential is the uniform law, mean (1 + cap) / 2."""
    assert lengths.exact_mean(truncated(1e9, 5)) == pytest.approx(3, rel=1e-8)
    assert lengths.exact_mean(truncated(1e9, 511)) == pytest.approx(256, rel=1e-6)
    assert lengths.exact_sd(truncated(1e9, 511)) == pytest.approx(math.sqrt((511**2 - 1) / 12), rel=1e-6)


@st.composite
def exponentials(draw: st.DrawFn, means: st.SearchStrategy[float], most: int) -> Any:
    least, cap = sorted(draw(st.tuples(st.integers(1, most), st.integers(1, most))))
    mean = draw(means)
    rounding = "ceil" if mean > 100 * cap else draw(st.sampled_from(["ceil", "redraw"]))
    return truncated(mean, cap, least, rounding)


@given(law=exponentials(means=st.floats(0.05, 1e9), most=300))
def test_closed_forms_are_the_sums_of_probabilities(law: Any) -> None:
    """Mean to nine digits, sd to seven of the width; both roundings, from steep to flat."""
    mean, sd = theory(law)
    assert lengths.exact_mean(law) == pytest.approx(mean, rel=1e-9)
    assert lengths.exact_sd(law) == pytest.approx(sd, rel=1e-7, abs=1e-7)


@given(law=exponentials(means=st.floats(1e-300, 1e9), most=2**31 - 1))
def test_any_exponential_that_can_be_written_stays_within_its_bounds(law: Any) -> None:
    """Draws and exact mean lie in min..cap however extreme the numbers."""
    drawn = drawn_of(law, 50)
    assert law.min <= drawn.min()
    assert drawn.max() <= law.cap
    assert law.min <= (lengths.exact_mean(law) or 0) <= law.cap


BOUNDS = st.tuples(st.integers(1, 3000), st.integers(1, 3000)).map(sorted)
MEANS, SPREADS = st.floats(1e-6, 1e9), st.floats(1e-6, 1e9)
SHAPES = st.one_of(
    st.fixed_dictionaries({"kind": st.just("exponential"), "mean": MEANS}),
    st.fixed_dictionaries({"kind": st.just("normal"), "mean": st.floats(-1e9, 1e9), "sd": SPREADS}),
    st.fixed_dictionaries({"kind": st.just("normal"), "mean": st.floats(-99, 3999), "sd": st.floats(5, 500)}),
    st.fixed_dictionaries({"kind": st.just("lognormal"), "median": MEANS, "sigma": st.floats(1e-6, 10)}),
    st.fixed_dictionaries({"kind": st.just("lognormal"), "mean": MEANS, "cv": st.floats(1e-6, 1e4)}),
    st.fixed_dictionaries({"kind": st.just("gamma"), "mean": MEANS, "cv": st.floats(0.001, 31)}),
    st.fixed_dictionaries({"kind": st.just("zipf"), "alpha": st.floats(0, 20)}),
)


@given(shape=SHAPES, bounds=BOUNDS)
def test_a_law_is_refused_or_sound(shape: dict[str, Any], bounds: list[int]) -> None:
    """Draws are within its bounds; the mean of 2,000 is within 5 standard errors, a few rare ones apart."""
    low, high = bounds
    try:
        asked = law(**shape, min=low, max=high)
    except ValueError as problem:
        if "is outside min..max" not in str(problem):
            raise
        return
    mean, sd, drawn = lengths.exact_mean(asked), lengths.exact_sd(asked), drawn_of(asked, 2000)
    assert low <= drawn.min() <= drawn.max() <= high
    assert mean is not None
    assert sd is not None
    assert 0 <= sd <= (high - low) / 2 + 1e-6
    assert drawn.mean() == pytest.approx(mean, abs=5 * sd / math.sqrt(2000) + 10 * (high - low) / 2000 + 1e-6)


# --- range ratios ----


@pytest.mark.parametrize(
    ("kind", "tokens", "ratio", "low", "high"),
    [
        ("vllm_range", 1024, 0.0, 1024, 1024),
        ("vllm_range", 1024, 0.8, 204, 1844),
        ("vllm_range", 1, 0.5, 1, 2),
        ("vllm_range", 100, 0.9, 9, 190),  # 100 x (1 - 0.9) is a hair below 10 in doubles, as in vLLM
        ("sglang_range", 1024, 0.0, 1, 1024),
        ("sglang_range", 1024, 0.8, 819, 1024),
        ("sglang_range", 1024, 1.0, 1024, 1024),
        ("sglang_range", 3, 0.1, 1, 3),
    ],
)
def test_the_two_meanings_of_range_ratio(kind: str, tokens: int, ratio: float, low: int, high: int) -> None:
    """vLLM's is symmetric about the length, SGLang's goes up to it."""
    drawn = drawn_of(law(kind, tokens=tokens, ratio=ratio))
    assert (drawn.min(), drawn.max()) == (low, high)


def test_a_range_ratio_beyond_what_is_countable_is_refused() -> None:
    """Lengths are 32-bit numbers."""
    with pytest.raises(ValueError, match=r"tokens x \(1 \+ ratio\) is above 2147483647"):
        law("vllm_range", tokens=2**31 - 1, ratio=0.5)


# --- impossible laws ----


@pytest.mark.parametrize(
    "asked",
    [
        {"kind": "exponential", "mean": 1.0, "min": 1000},
        {"kind": "normal", "mean": -1000.0, "sd": 10.0},
        {"kind": "normal", "mean": 10_000.0, "sd": 10.0, "max": 512},
        {"kind": "lognormal", "median": 1e8, "sigma": 0.1},
        {"kind": "gamma", "mean": 1000.0, "cv": 0.01, "max": 300},
    ],
)
def test_a_law_that_never_falls_in_its_bounds_is_refused(asked: dict[str, Any]) -> None:
    """One line, with the key and the rule."""
    with pytest.raises(ScenarioError) as refused:
        scenario.build({"load": {"arrivals": {"kind": "burst"}, "num_requests": 1, "output_tokens": asked}})
    said = str(refused.value)
    assert said.startswith("command line: load.output_tokens")
    assert "is outside min..max" in said
    assert "\n" not in said


# --- files ----


def written(folder: Path, text: str | bytes, column: str = "output") -> Any:
    file = folder / "lengths.csv"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return law("empirical", file=str(file), column=column)


def test_a_column_of_a_file_is_drawn_row_by_row_alike(tmp_path: Path) -> None:
    """Chi-square against the rows; a mark before the header, blank lines and 12.0 are read."""
    asked = written(tmp_path, "\ufeffid,output\r\na,12.0\r\n\r\nb,12\r\nc, 40 \r\nd,7\r\n")
    drawn = drawn_of(asked)
    seen = [(drawn == n).sum() for n in (7, 12, 40)]
    assert sum(seen) == N
    assert stats.chisquare(seen, [N / 4, N / 2, N / 4]).pvalue > 0.001
    assert lengths.exact_mean(asked) == pytest.approx((12 + 12 + 40 + 7) / 4)
    assert lengths.dropped(asked) == 0


def test_rows_without_a_token_are_dropped_and_counted(tmp_path: Path) -> None:
    """0 and nothing at all; the line that tells of the law says so."""
    asked = written(tmp_path, "id,output\na,0\nb,8\nc,\nd,0\n")
    assert set(drawn_of(asked, 100).tolist()) == {8}
    assert lengths.dropped(asked) == 3
    assert lengths.describe(asked).endswith("8..8, 3 without a token dropped, exact mean 8")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("id,output\na,8\nb,many\n", ":3: output is 'many'"),
        ("id,output\na,8.5\n", ":2: output is '8.5'"),
        ("id,output\na,-1\n", ":2: output is '-1'"),
        ("id,output\na,99999999999\n", ":2: output is 99999999999"),
        ("id,tokens\na,8\n", ":1: must have one column 'output': its first line has id, tokens"),
        ("output,output\n8,9\n", ":1: must have one column 'output'"),
        ("", ":1: must have one column 'output': its first line has nothing"),
        ("id,output\n", ": column 'output' has no length of 1 token or more"),
        (b"id,output\na,\xff\n", ":2: output is"),
    ],
)
def test_a_file_that_cannot_be_read_is_an_error_with_its_line(
    tmp_path: Path, text: str | bytes, said: str
) -> None:
    """One line: the file, the line, the rule."""
    asked = written(tmp_path, text)
    with pytest.raises(ScenarioError) as refused:
        drawn_of(asked, 1)
    assert f"lengths.csv{said}" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    """It names the file."""
    with pytest.raises(ScenarioError, match=r"nowhere\.csv: cannot be read: No such file"):
        drawn_of(law("empirical", file=str(tmp_path / "nowhere.csv"), column="x"), 1)


# --- in words ----


def test_each_law_is_told_in_one_line() -> None:
    """What `plan` prints, the exact mean with it."""
    told = {name: lengths.describe(law) for name, law in LAWS.items()}
    assert told["fixed"] == "fixed, 9"
    assert told["uniform"] == "uniform, 3..12, exact mean 7.5"
    assert told["vllm_range"] == "uniform, vLLM's range ratio 0.25 of 100, 75..125, exact mean 100"
    assert (
        told["truncated exponential"]
        == "truncated exponential, mean 128 before truncation, 1..512, exact mean 118.948"
    )
    assert "1..512, rounded and redrawn, exact mean" in told["redrawn"]
    assert told["lognormal by mean"].startswith("lognormal, mean 512 and cv 2 before truncation, 16..4096, ")
    assert told["zipf, even"] == "zipf, alpha 0, 5..14, exact mean 9.5"
    assert told["empirical"] == "a histogram, 16..2000, exact mean 140"


def test_the_lengths_of_a_trace_are_not_drawn() -> None:
    """They have no mean of their own, and drawing them is a mistake of the program."""
    asked = law("trace")
    assert lengths.exact_mean(asked) is lengths.exact_sd(asked) is None
    assert lengths.describe(asked) == "as in the trace"
    with pytest.raises(TypeError):
        drawn_of(asked, 1)
