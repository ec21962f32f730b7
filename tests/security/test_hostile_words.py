"""A run folder full of strangers' words is shown, drawn and exported, and its words stay words everywhere."""

from __future__ import annotations

import csv
import html.parser
import json
import re
import unicodedata
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client.openmetrics import parser as openmetrics
from typer.testing import CliRunner

from loadgen.cli.app import app
from loadgen.report.figures import clean
from tests.export.folders import kept
from tests.records import failed, ok

HOSTILE = {
    "html": "</script></style></title><script>hack()</script><img src=x onerror='hack()' a=\"b\"><!--",
    "attribute": "' onmouseover=hack() x=' \" autofocus onfocus=hack() x=\"",
    "terminal": "a\x1b[2J\x1b]0;own\x07\x9b31m\x08\x7f\x00b",
    "bidi": "a\u202eb\u2066c\u200bd\ufeffe\U000e0041",
    "github": "x\n::error::own\r::add-mask::x\u2028::set-output name=a::b",
    "markdown": "| a | b |\n|---|---|\n`x` [y](javascript:hack()) ![z](http://x/y.png)\n# title",
    "csv": "=cmd|' /C calc'!A0\n\"quoted\",and\r\nmore",
    "prometheus": 'a"} 1\n# EOF\nfake{b="\\',
    "xml": "]]><failure/>&xxe;<!DOCTYPE a><?b?>\x0b\ufffe",
    "yaml": "!!python/object/apply:os.system ['x']\n---\n- *a",
    "rich": "[bold]x[/bold][/] [link=http://x]y[/link] [red",
    "path": "../../../../etc/passwd\0",
}
KINDS = [
    pytest.param(kind, marks=[] if kind in ("html", "github", "terminal") else pytest.mark.slow)
    for kind in HOSTILE
]
WORDS = ("request_id", "class", "session", "target", "model", "error", "finish_reason", "warnings")


OF_MARKDOWN = r"(?<!\\)(<(img|script|!--)|\]\()"  # an element, or a link, that is not escaped


def spoil(folder: Path, text: str) -> Path:
    """Write `text` wherever the files of a run have words of a server's, or free ones of ours."""
    path = folder / "run.json"
    header = json.loads(path.read_bytes())
    for key in ("target", "model", "salt", "server_absent", "crashed"):
        header[key] = text
    for key in ("versions", "host"):
        header[key] = {text: text} | dict.fromkeys(header[key], text)
    header |= {"command": [text] * 3, "notes": [text] * 3, "scenario": header["scenario"]}
    path.write_text(json.dumps(header))
    records = folder / "records.jsonl"
    rows = [json.loads(line) for line in records.read_text().splitlines()]
    for k, row in enumerate(rows):
        for word in WORDS:
            if word == "warnings":
                row[word] = [text]
            elif word != "error" or row["outcome"] != "ok":
                row[word] = f"{text}{k}" if word == "request_id" else text
    records.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def made(folder: Path, text: str | None) -> Path:
    records = [ok(k, k * 0.1) for k in range(20)] + [failed(20 + k, 2 + k * 0.1) for k in range(5)]
    path = kept(folder, records, run_id=folder.name)
    return path if text is None else spoil(path, text)


def said(*words: str | Path) -> str:
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exception is None or isinstance(done.exception, SystemExit), (words, done.exception)
    return done.output


def is_unseen(char: str) -> bool:
    return char != "\n" and unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")


class Elements(html.parser.HTMLParser):
    """How many there are of each element, and whatever of them could run."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()
        self.runs: list[tuple[str, str | None]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found[tag] += 1
        self.runs += [
            (name, value)
            for name, value in attrs
            if name.startswith("on") or (name in ("href", "src") and "javascript:" in (value or ""))
        ]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Elements:
    """The page of the same run with no stranger's words in it."""
    folder = tmp_path_factory.mktemp("plain")
    said("report", made(folder / "run", None), "--html", folder / "made.html")
    return Elements((folder / "made.html").read_text())


@pytest.mark.parametrize("kind", KINDS)
def test_a_terminal_shows_words_and_obeys_none(tmp_path: Path, kind: str) -> None:
    """Of one run, and of two beside each other, as text and as Markdown."""
    run, other = made(tmp_path / "run", HOSTILE[kind]), made(tmp_path / "other", HOSTILE[kind])
    for words in ((run,), (run, "--markdown"), (run, other), (run, other, "--markdown")):
        shown = said("report", *words)
        assert shown.strip()
        assert not {char for char in shown if is_unseen(char)}
        assert not [line for line in shown.splitlines() if line.lstrip().startswith("::")]
        if "--markdown" in words:
            assert not re.search(OF_MARKDOWN, shown)


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_has_no_element_but_its_own(tmp_path: Path, kind: str, plain: Elements) -> None:
    """None runs, none is added that a plain run's page does not have, and the policy is still there."""
    run = made(tmp_path / "run", HOSTILE[kind])
    said("report", run, "--html", tmp_path / "made.html")
    page = Elements((tmp_path / "made.html").read_text())
    assert page.runs == []
    assert {*page.found} <= {*plain.found} | {"details", "summary", "li", "ul"}
    for element in ("script", "style", "meta", "img", "iframe", "svg", "link", "form", "title", "body"):
        assert page.found[element] == plain.found[element], element


@pytest.mark.parametrize("kind", KINDS)
def test_exports_hold_as_many_rows_and_no_line_of_a_strangers(tmp_path: Path, kind: str) -> None:
    """Each is read by a reader of its own format: 25 requests, whatever their words are."""
    run = made(tmp_path / "run", HOSTILE[kind])
    for name in ("a.csv", "a.jsonl", "a.vllm.json", "a.trace.json", "a.om", "a.prom"):
        said("export", run, tmp_path / name)
    with (tmp_path / "a.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 25
    assert not [row for row in rows if None in row or None in row.values()]
    assert len([json.loads(line) for line in (tmp_path / "a.jsonl").read_text().split("\n") if line]) == 25
    assert json.loads((tmp_path / "a.vllm.json").read_text())["num_prompts"] == 25
    assert json.loads((tmp_path / "a.trace.json").read_text())["traceEvents"]
    families = [*openmetrics.text_string_to_metric_families((tmp_path / "a.om").read_text())]
    assert all(family.name.startswith("loadgen_") for family in families)


@pytest.mark.parametrize("kind", KINDS)
def test_a_gate_of_such_runs_writes_whole_files_of_its_own_words(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JUnit's XML, Markdown, GitHub's summary and its commands."""
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    run, other = made(tmp_path / "run", HOSTILE[kind]), made(tmp_path / "other", HOSTILE[kind])
    files = ("--junit", tmp_path / "j.xml", "--markdown", tmp_path / "m.md")
    shown = said("gate", other, "--baseline", run, "--unpaired", *files)
    assert not {char for char in shown if is_unseen(char)}
    commands = [line for line in shown.splitlines() if line.startswith("::")]
    assert not [line for line in commands if "own" in line.split("::")[1] or line.count("::") > 2]
    if (tmp_path / "j.xml").is_file():
        root = ET.parse(tmp_path / "j.xml").getroot()
        assert {element.tag for element in root.iter()} <= OF_JUNIT
    for name in ("m.md", "summary.md"):
        if (tmp_path / name).is_file():
            assert not re.search(OF_MARKDOWN, (tmp_path / name).read_text())


OF_JUNIT = {
    *("testsuites", "testsuite", "testcase", "failure", "error", "skipped", "system-out"),
    *("properties", "property"),
}


def pieces() -> Iterator[str]:
    yield from HOSTILE.values()
    yield from (
        "\x1b[",
        "::",
        "\n",
        "\u202e",
        "<",
        ">",
        "\x9b",
        "]",
        "m",
        "error",
        "\ud800",
        "\U000e0001",
        "Error",
        "##[group]",
        " ",
    )


@given(st.lists(st.sampled_from([*pieces()]) | st.text(max_size=8), max_size=8).map("".join))
@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_is_cleaned_is_one_line_that_nothing_obeys(text: str) -> None:
    """No control, no mark that is unseen or turns text round, no command at the begin; and twice is once."""
    shown = clean(text)
    assert not {char for char in shown if is_unseen(char) or char == "\n"}
    assert not re.match("::[A-Za-z].*::|##\\[", shown)
    assert len(shown) <= 200
    assert clean(shown) == shown


def test_a_value_of_any_kind(tmp_path: Path) -> None:
    """Where a stranger's file has another type than ours, it is one line and no crash."""
    run = made(tmp_path / "run", None)
    header: dict[str, Any] = json.loads((run / "run.json").read_bytes())
    for key, wrong in (
        ("model", {"a": 1}),
        ("notes", "x"),
        ("scenario", []),
        ("versions", [1]),
        ("source", "\x1b[2J"),
    ):
        (run / "run.json").write_text(json.dumps(header | {key: wrong}))
        done = CliRunner().invoke(app, ["report", str(run)])
        assert done.exit_code != 0
        told = str(done.exception) + done.output
        assert "Traceback" not in told
