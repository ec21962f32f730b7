"""Figures and server text as people read them."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.report.figures import clean, duration, harmless, number, percent, unit_of


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),
        (0.0, "0"),
        (67.1234, "67.1"),
        (8.0, "8.00"),
        (0.12345, "0.123"),
        (905.2, "905"),
        (999.7, "1,000"),
        (2853.4, "2,853"),
        (123_456.0, "123,500"),
        (-0.5, "-0.500"),
        (0.00000001, "<0.000001"),
    ],
)
def test_a_number_has_three_digits_or_four(value: float | None, shown: str) -> None:
    """Three digits that count, four from 1,000 on, none invented below the resolution."""
    assert number(value) == shown


@given(st.floats(0.001, 1e12))
def test_a_number_is_shown_to_within_half_a_percent(value: float) -> None:
    """Rounding to three digits errs by at most 0.5 %."""
    assert float(number(value).replace(",", "")) == pytest.approx(value, rel=0.005)


def test_milliseconds_have_no_digits_below_a_microsecond() -> None:
    """Instants are kept to the microsecond."""
    assert number(0.0123456, places=3) == "0.012"


def test_a_row_is_in_seconds_once_its_largest_is_ten() -> None:
    """One unit for a whole row, so that it can be read across."""
    assert unit_of([0.002, 9.99, None])[0] == "ms"
    assert unit_of([0.002, 10.0])[0] == "s"
    assert unit_of([None])[0] == "ms"


@pytest.mark.parametrize(
    ("value_s", "shown"), [(None, "–"), (0.42, "420 ms"), (63.24, "63.2 s"), (0.00025, "0.250 ms")]
)
def test_a_duration_has_its_own_unit(value_s: float | None, shown: str) -> None:
    """Seconds from one second on, milliseconds below."""
    assert duration(value_s) == shown


@pytest.mark.parametrize(
    ("fraction", "n", "shown"),
    [
        (None, 10, "–"),
        (0.0, 10, "0 %"),
        (1.0, 10, "100 %"),
        (1 / 3, 3, "33 %"),
        (0.0416, 240, "4.2 %"),
        (0.0001, 1000, "<0.1 %"),
        (0.9999, 1000, ">99.9 %"),
        (0.12344, 50_000, "12.34 %"),
    ],
)
def test_a_share_has_no_more_digits_than_its_n_carries(fraction: float | None, n: int, shown: str) -> None:
    """And one lost request in ten thousand is never shown as 0 % or 100 %."""
    assert percent(fraction, n) == shown


@given(st.text(), st.integers(1, 300))
def test_cleaned_text_is_one_harmless_line(text: str, limit: int) -> None:
    """No control, format or surrogate character survives, and cleaning again changes nothing."""
    cleaned = clean(text, limit)
    assert not [c for c in cleaned if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")]
    assert len(cleaned) <= limit
    assert clean(cleaned, limit) == cleaned


@given(st.text(alphabet="a:# [x\n", max_size=40))
def test_no_wrapping_of_cleaned_text_makes_a_command_for_github(text: str) -> None:
    """Wherever the line breaks. An address such as [::1] stays what it is."""
    cleaned = clean(f"{text}::error file=x::{text}##[error]")
    assert not re.search(r"::[a-z].*::|##\[", cleaned)
    assert clean("http://[::1]:8000") == "http://[::1]:8000"
    assert clean("http://[::ffff:7f00:1]/") == "http://[::ffff:7f00:1]/"


@given(st.text())
def test_harmless_words_keep_their_blanks_and_nothing_that_cleaning_would_not(text: str) -> None:
    """One line of any length; cleaned, it is what the text itself is cleaned to."""
    shown = harmless(text)
    assert "\n" not in shown
    assert clean(shown, 9999) == clean(text, 9999)
    assert harmless("  95 %,  adjusted ") == "  95 %,  adjusted "


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("a\u202eb\u2066c\u200bd", "abcd"),
        ("two\r\nlines\tand more", "two lines and more"),
        ("a\ufffeb\uffffc\ufdd0d\U0001fffee\U0010ffff", "abcde"),
        ("Überlast: 過負荷 \U0001fae8", "Überlast: 過負荷 \U0001fae8"),
    ],
)
def test_escape_sequences_go_with_all_their_parts(text: str, kept: str) -> None:
    """Nothing of a sequence stays behind, and no letter of the message is lost."""
    assert clean(text) == kept
