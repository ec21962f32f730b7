"""What fuzzing found, each as the least that shows it: refused in one line, where once was a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadgen.cli.reporting import reported
from loadgen.scenario import ScenarioError
from loadgen.stats import summarize
from tests.fuzz.doors import doors, through
from tests.records import failed, ok, run_of

DEEP = b'{"a":' * 3000
LONG = b"x" * 5000
STEPS = b"tokens,contexts,seconds\n"
TRUTH = b"xid,status,outcome,t_request_read,t_first_token,t_last_token,n_chunks,offsets_ns\n"
PLAN = doors()["plan.jsonl"].seeds[0]
FOUND: list[tuple[str, bytes, str]] = [
    ("header", DEEP, "recursion depth"),
    ("capacity", DEEP, "recursion depth"),
    ("calibration", DEEP, "recursion depth"),
    ("records", DEEP + b"\n", "/records.jsonl:1: maximum recursion depth"),
    ("records", doors()["records"].seeds[0].replace(b'"usage"', b'"%b"' % LONG), ":1: Invalid enum value"),
    (
        "header",
        doors()["header"].seeds[0].replace(b'"window_end_s": 10.0', b'"window_end_s": -1.0'),
        "/run.json: ",
    ),
    (
        "header",
        doors()["header"].seeds[0].replace(b'"window_start_s": 0.0', b'"window_start_s": 10.5'),
        "/run.json: window_end_s is before window_start_s",
    ),
    ("header", b'{"schema":"%b"}' % LONG, "schema 'xxx"),
    ("truth", TRUTH + b"r\xff,200,ok,5,,,0,7;x\n", "/log.csv:2: a stamp is no whole number"),
    ("truth", TRUTH + b"r0,200,ok,%b,,,0,\n" % (b"9" * 20), "/log.csv:2: a stamp is no whole number"),
    ("steps", STEPS + b"1,1,%b\n" % LONG, "/steps.csv:2: seconds: 'xxx"),
    ("steps", STEPS + b'1,1,"0\n"\n', "/steps.csv:3: seconds: 0 must be from"),
    ("plan.jsonl", PLAN.replace(b'"index":1,', b'"index":%b,' % (b"9" * 20)), "number of more than 64 bits"),
    (
        "trace sharegpt",
        b'[{"conversations":[{"from":[],"value":"a"},{"from":{},"value":"b"}]}]',
        "no usable rows",
    ),
    ("trace servegen chunk-1-trace.csv", b"0,%b,1,Gamma,1,1\n" % LONG, "-trace.csv:1: 'xxx"),
]


@pytest.mark.parametrize(("name", "content", "said"), FOUND)
def test_it_is_refused_in_one_line(name: str, content: bytes, said: str) -> None:
    """Which says where, and is of a length to be read."""
    refusal = through(doors()[name], content)
    assert refusal is not None
    assert said in str(refusal)
    assert "\n" not in str(refusal)


def test_an_error_that_is_nested_without_end_is_counted_as_it_stands() -> None:
    """It is a server's, and costs the run nothing but a line."""
    body = '{"x":' + "[" * 1500
    summary = summarize(run_of([failed(0, error=body), ok(1, 1.0)]))
    assert summary.outcomes == {"ok": 1, "http_error": 1}


@pytest.mark.parametrize("content", [DEEP, b"[]", b'{"variants":[1]}', b'{"variants":{"a\xff":1}}', b"{}"])
def test_what_is_no_comparison_is_told(content: bytes, tmp_path: Path) -> None:
    """Whatever stands in its place."""
    (tmp_path / "comparison.json").write_bytes(content)
    with pytest.raises(ScenarioError, match=r"comparison\.json: [^\n]+$"):
        reported([tmp_path])
