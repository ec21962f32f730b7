"""Quantities: what a person writes is what is meant, and what is printed reads back the same."""

from __future__ import annotations

import contextlib
import math
import re
import shlex
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.units import (
    about,
    argument,
    duration_s,
    quoted,
    rate_rps,
    roughly,
    share,
    show_duration,
    show_rate,
)

FINITE = st.floats(allow_nan=False, allow_infinity=False)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("35ms", 0.035),
        ("2s", 2.0),
        (" 2 s ", 2.0),
        ("10m", 600.0),
        ("10min", 600.0),
        ("1.5h", 5400.0),
        ("250us", 0.00025),
        ("250µs", 0.00025),
        ("3ns", 3e-9),
        (".5s", 0.5),
        ("2.s", 2.0),
        ("1e3ms", 1.0),
        ("-1s", -1.0),
        (0, 0.0),
        (0.0, 0.0),
    ],
)
def test_a_duration_is_its_number_in_its_unit(text: object, seconds: float) -> None:
    """Each unit scales as its name says, to the nearest float of the decimal figure."""
    assert duration_s(text) == seconds


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (30, "30 is not a duration: write a number with a unit, such as 30s or 30ms"),
        ("30", "'30' is not a duration: write a number with a unit, such as 30s or 30ms"),
        ("2 weeks", "'2 weeks' is not a duration: write a number with a unit, such as 500ms, 2s or 10m"),
        ("8/s", "'8/s' is not a duration: write a number with a unit, such as 500ms, 2s or 10m"),
        (True, "true is not a duration: write a number with a unit, such as 500ms, 2s or 10m"),
        (False, "false is not a duration: write a number with a unit, such as 500ms, 2s or 10m"),
        (None, "null is not a duration: write a number with a unit, such as 500ms, 2s or 10m"),
        ([1], "a list is not a duration: write a number with a unit, such as 500ms, 2s or 10m"),
        ("1e999s", "'1e999s' is not a finite number"),
    ],
)
def test_what_is_no_duration_is_refused_with_the_way_to_write_it(text: object, words: str) -> None:
    """The message holds the value, the rule and an example, made of the number given where there is one."""
    with pytest.raises(ValueError, match=f"^{re.escape(words)}$"):
        duration_s(text)


@pytest.mark.parametrize(
    ("text", "rps"),
    [("8/s", 8.0), ("90/min", 1.5), ("90 / m", 1.5), ("7200/h", 2.0), ("8", 8.0), (8, 8.0), (0.5, 0.5)],
)
def test_a_rate_is_a_number_per_unit_or_bare_requests_per_second(text: object, rps: float) -> None:
    """`90/min` is 1.5 a second; a bare number is a number a second."""
    assert rate_rps(text) == rps


@pytest.mark.parametrize(
    "text", ["5s", "/s", "8/d", "nan", "inf", math.nan, math.inf, 10**400, True, None, {}]
)
def test_what_is_no_rate_is_refused(text: object) -> None:
    """Durations, unknown units, booleans and numbers that are not finite are not rates."""
    with pytest.raises(ValueError, match=r"is not a (rate|finite number)"):
        rate_rps(text)


@given(FINITE)
def test_a_printed_duration_reads_back_as_the_same_float(seconds: float) -> None:
    """Printing loses nothing, whatever unit it chose."""
    assert duration_s(show_duration(seconds)) == seconds


@given(FINITE)
def test_a_printed_rate_reads_back_as_the_same_float(rps: float) -> None:
    """Printing loses nothing."""
    assert rate_rps(show_rate(rps)) == rps


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.5, "500ms"),
        (2, "2s"),
        (90, "90s"),
        (600, "10m"),
        (7200, "2h"),
        (5e-6, "5us"),
        (1.25, "1.25s"),
    ],
)
def test_a_duration_is_printed_in_the_unit_a_person_would_choose(seconds: float, text: str) -> None:
    """Whole hours and minutes as such; else the largest of s, ms, us and ns that is not above it."""
    assert show_duration(seconds) == text


@given(st.text(max_size=200) | st.integers() | st.floats())
def test_a_reader_of_units_answers_with_a_finite_float_or_a_value_error(value: object) -> None:
    """No input makes it raise anything else or answer inf or nan."""
    for read in (duration_s, rate_rps):
        with contextlib.suppress(ValueError):
            assert math.isfinite(read(value))


def test_a_long_value_is_quoted_briefly() -> None:
    """Sixty characters of it are shown, and that it goes on."""
    assert quoted("y" * 1000) == "'" + "y" * 59 + "..."
    assert quoted("short") == "'short'"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.00201, "2.01ms"), (0.0326, "32.6ms"), (0.000374, "374us"), (0.9999, "1s"), (63.24, "63.2s"),
     (1800, "1800s"), (0.02, "20ms"), (1.05e-6, "1.05us"), (4e-9, "4ns"), (0, "0s")],
)  # fmt: skip
def test_durations_to_be_compared_have_three_digits_and_a_unit_of_their_size(
    seconds: float, words: str
) -> None:
    """Whatever the float, never a fraction of a second where milliseconds read better."""
    assert about(seconds) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (3.4, "3.4 seconds"),
        (30, "30 seconds"),
        (59.6, "60 seconds"),
        (60, "1 minute"),
        (372, "6.2 minutes"),
        (3590, "1 hour"),
        (588.5 * 60, "9.8 hours"),
        (3.6e6, "1,000 hours"),
    ],
)
def test_waiting_is_told_to_two_digits(seconds: float, words: str) -> None:
    """As a person would plan it."""
    assert roughly(seconds) == words


@pytest.mark.parametrize(
    ("text", "seconds"), [("5m30s", 330.0), ("1h 30m", 5400.0), ("1h2m3s", 3723.0), ("1s500ms", 1.5)]
)
def test_a_duration_may_be_written_in_several_units(text: str, seconds: float) -> None:
    """The largest first, as people write them."""
    assert duration_s(text) == seconds


@pytest.mark.parametrize("text", ["30s5m", "5s5s", "5m30", "5m-3s", "5m1.5.2s", "2h1e3s"])
def test_units_in_disorder_are_no_duration(text: str) -> None:
    """Nor are a second sign, a part without a unit, or a number with two points."""
    with pytest.raises(ValueError, match="is not a duration"):
        duration_s(text)


@given(st.decimals(min_value=0, max_value=10_000, places=3))
def test_a_share_is_the_nearest_float_to_its_hundredths(percent: Decimal) -> None:
    """Divided as a decimal: 0.1 % as 0.1 / 100 would be the float beside 0.001."""
    assert share(f"{percent}%") == share(f" {percent} % ") == float(percent / 100)


@pytest.mark.parametrize("text", ["5", "-5%", "nan%", "%", "1e2%", "٣%", "5 pp", 5, None, "9" * 400 + "%"])
def test_what_is_no_percentage_is_no_share(text: object) -> None:
    """Digits are ASCII's; the sign says what is meant."""
    with pytest.raises(ValueError, match=r"is no share: write a percentage|is not a finite number"):
        share(text)


@pytest.mark.parametrize("path", ["-rf", "--", "-a b", "my run; rm", "runs/-x", "/a/b"])
def test_a_path_in_a_command_is_no_option(path: str) -> None:
    """A shell reads it as one word, which names the same file."""
    [word] = shlex.split(argument(Path(path)))
    assert not word.startswith("-")
    assert Path(word) == Path(path)
