"""A gate as GitHub's workflow commands."""

from __future__ import annotations

from loadgen.report.github import commands
from tests.report.gates import change, gate, good


def test_each_thing_that_is_wrong_is_an_error_and_each_note_a_warning() -> None:
    """With the sentence that says it, its percent signs escaped."""
    error, warning = commands(gate(notes=["another machine: a, then b."]))
    assert error.startswith(
        "::error title=loadgen gate::FAIL: TTFT p99 is 14.8 %25 slower (at least 11.2 %25)"
    )
    assert warning == "::warning title=loadgen gate::another machine: a, then b."


def test_a_pass_is_a_notice() -> None:
    """One line: so that a green page says what was looked at."""
    [said] = commands(gate(changes=[good()], verdict="PASS"))
    assert said.startswith("::notice title=loadgen gate::PASS ")


def test_nothing_in_a_message_is_a_command_of_its_own() -> None:
    """A line break in a server's words would begin another."""
    reason = "x\n::set-output name=a::b\r::error::c %0A"
    [said] = commands(gate(changes=[change(verdict="UNRESOLVED", reason=reason)], verdict="UNRESOLVED"))
    assert "\n" not in said
    assert "\r" not in said
    assert said.endswith("%250A")
