"""A gate as JUnit XML, as CI systems read it."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any

import pytest

from loadgen.report.junit import junit
from tests.report.gates import change, gate, good, slo

# What the schema of Jenkins' xunit plugin allows: attributes (those needed first), and children.
SHAPE: dict[str, tuple[set[str], set[str], set[str]]] = {
    "testsuites": (set(), {"name", "time", "tests", "failures", "errors", "disabled"}, {"testsuite"}),
    "testsuite": (
        {"name", "tests"},
        {"failures", "errors", "skipped", "time", "timestamp", "hostname", "id", "package", "disabled"},
        {"properties", "testcase", "system-out", "system-err"},
    ),
    "testcase": (
        {"name", "classname"},
        {"time", "assertions", "status"},
        {"skipped", "error", "failure", "system-out", "system-err"},
    ),
    "failure": (set(), {"type", "message"}, set()),
    "error": (set(), {"type", "message"}, set()),
    "system-out": (set(), set(), set()),
}


def read(**changes: Any) -> ET.Element:
    return ET.fromstring(junit(gate(**changes)))


def assert_shape(element: ET.Element) -> None:
    needed, allowed, children = SHAPE[element.tag]
    assert needed <= set(element.attrib) <= needed | allowed, element.tag
    for child in element:
        assert child.tag in children, child.tag
        assert_shape(child)


def test_it_has_the_shape_that_ci_systems_read() -> None:
    """Elements and attributes of the JUnit schema alone; the counts are those of what is inside."""
    page = read(slos={"new-1": [slo(verdict="UNRESOLVED", reason="too few")]})
    assert_shape(page)
    suite = page[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("5", "1", "1")
    assert page.get("tests") == "5"


@pytest.mark.parametrize(
    ("verdict", "tag"), [("PASS", None), ("FAIL", "failure"), ("UNRESOLVED", "error"), ("INVALID", "error")]
)
def test_only_a_pass_is_green(verdict: str, tag: str | None) -> None:
    """What could not be told is an error: a skipped test would pass."""
    page = read(changes=[change(verdict=verdict, reason="why")], verdict=verdict)
    case = page.find(".//testcase[@name='ttft_p99']")
    assert case is not None
    assert [child.tag for child in case] == ([tag] if tag else [])


def test_a_measurement_that_cannot_be_trusted_is_a_case_of_its_own() -> None:
    """Red even where every figure is good."""
    page = read(changes=[good()], verdict="INVALID", faults=["candidate new-1 did not come to its end"])
    case = page.find(".//testcase[@name='measurement']/error")
    assert case is not None
    assert case.get("message") == "candidate new-1 did not come to its end"


def test_a_server_cannot_break_the_document() -> None:
    """Markup and controls in what a server said are text, or left out."""
    said = 'a<b>&"\x00\x1b[31m]]>'
    page = read(changes=[change(verdict="UNRESOLVED", reason=said)], verdict="UNRESOLVED")
    error = page.find(".//testcase/error")
    assert error is not None
    assert error.get("message") == 'TTFT p99: a<b>&"]]>'
