"""Reports as Markdown: the same words and figures, and nothing in them that Markdown would act on."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from loadgen.compare import compare
from loadgen.report.markdown import comparison_markdown, escape, summary_markdown
from tests.report.summaries import summary


def row(text: str, label: str) -> list[str]:
    line = next(line for line in text.splitlines() if line.startswith(f"| {label} |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_comparison_has_its_source_winner_rule_and_ratios() -> None:
    """A burst at 600 and 1,500 tokens/s: 2.50x, simulated, with the rule."""
    sides = {
        "static": summary(source="virtual", window_by="burst", makespan_output_tokens_per_s=600.0),
        "continuous": summary(source="virtual", window_by="burst", makespan_output_tokens_per_s=1500.0),
    }
    text = comparison_markdown(compare(sides, dict.fromkeys(sides, "5f" * 32)))
    assert text.startswith("# WINNER continuous\n")
    assert "Rule: a burst is won by" in text
    assert "## Comparison (SIMULATED in virtual time)" in text
    assert row(text, "makespan throughput ↑")[1:] == ["tokens/s", "600", "1,500", "2.50x", r"\[1.88, 3.32\]"]
    assert "5f" * 32 in text
    assert "asked: poisson 8/s, 1,000 requests" in text


def test_a_summary_has_every_column_whatever_a_terminal_drops() -> None:
    """Markdown has no width."""
    text = summary_markdown(summary())
    assert row(text, "TTFT") == ["TTFT", "ms", "1,000", "83.9", "67.1", "134", "268", "302", "336"]
    assert "p99 adjusted: over all offered requests" in text


def test_tables_are_whole() -> None:
    """Every line of a table has as many bars as its head, whatever the server said."""
    text = summary_markdown(summary(errors=[("a | b\n|c|", 3)], error_rate=0.003))
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        bars = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
        assert len(bars) == 1


@given(st.text())
def test_escaped_text_has_no_active_character(text: str) -> None:
    """Every sign that Markdown or HTML would act on has a backslash before it, on one line."""
    escaped = escape(text)
    assert "\n" not in escaped
    assert not re.search(r"[`*_\[\]<>|~&#@$]", re.sub(r"\\.", "", escaped))


def test_a_link_or_mention_in_server_text_is_only_text() -> None:
    """Neither a page is linked nor a person called."""
    assert escape("see http://evil.example @maintainers <script>") == (
        "see http\\://evil.example \\@maintainers \\<script\\>"
    )
    assert escape("www.evil.example WWW.x $a$") == "www\\.evil.example WWW\\.x \\$a\\$"


def test_a_digest_of_a_strangers_is_only_text() -> None:
    """It is what run.json says, which may be anything."""
    sides = {"a": summary(), "b": summary()}
    text = comparison_markdown(compare(sides, dict.fromkeys(sides, "`<img src=x>`")))
    assert "<img" not in text.replace("\\<img", "")


def test_pictures_are_shown_by_title_and_path() -> None:
    """A title is only text, and a path with spaces or brackets is still one."""
    text = summary_markdown(summary(), {"TTFT [by] due": "pictures/a b(1).svg"})
    assert "## Pictures\n" in text
    assert "**TTFT \\[by\\] due**" in text
    assert "![TTFT \\[by\\] due](pictures/a%20b%281%29.svg)" in text
    assert "## Pictures" not in summary_markdown(summary())
