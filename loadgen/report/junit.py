"""A gate as JUnit XML, which every CI shows: a test case for each run, figure and SLO.

UNRESOLVED is an error, not a skipped test: what was not measured is not passed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from loadgen.report import gate_view
from loadgen.report.figures import clean
from loadgen.stats.summary import Verdict

if TYPE_CHECKING:
    from loadgen.gate import Gate

_KINDS = {"FAIL": "failure", "UNRESOLVED": "error", "INVALID": "error"}


def junit(g: Gate) -> bytes:
    """The whole document, in UTF-8."""
    suite = Element("testsuite", name="loadgen gate", skipped="0")
    name = clean(g.candidates[0].name)
    verdict: Verdict = "INVALID" if g.faults else "PASS"
    _case(suite, name, "measurement", verdict, "; ".join(g.faults))
    for change in g.changes:
        _case(suite, name, change.metric, change.verdict, gate_view.sentence(change))
    for run_id, result in gate_view.promises(g):
        where = f" ({run_id})" if len(g.slos) > 1 else ""
        said = gate_view.promise(g, run_id, result)
        _case(suite, f"{name}.slo", f"{result.name}{where}", result.verdict, said)
    SubElement(suite, "system-out").text = clean("; ".join([*gate_view.sides(g), *gate_view.notes(g)]), 2000)
    suites = Element("testsuites", name="loadgen")
    suites.append(suite)
    for element in (suite, suites):
        _count(element, suite)
    indent(suites)
    return bytes(tostring(suites, "utf-8", xml_declaration=True)) + b"\n"


def _case(suite: Element, classname: str, name: str, verdict: Verdict, said: str) -> None:
    case = SubElement(suite, "testcase", classname=classname, name=clean(name), time="0")
    if kind := _KINDS.get(verdict):
        trouble = SubElement(case, kind, type=verdict, message=clean(said, 1000))
        trouble.text = f"{verdict}: {clean(said, 1000)}"


def _count(element: Element, suite: Element) -> None:
    element.set("tests", str(len(suite.findall("testcase"))))
    element.set("failures", str(len(suite.findall("testcase/failure"))))
    element.set("errors", str(len(suite.findall("testcase/error"))))
