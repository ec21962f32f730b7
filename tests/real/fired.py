"""A load that loadgen fires at a real server, and what a bare client sees of one."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from loadgen.records import Outcome, RequestRecord
from loadgen.run import Run
from loadgen.run_folder import each, load
from tests.end_to_end.process import Ended, loadgen
from tests.real.server import Server

MEASURED = (0, 4)  # PASS; INVALID, which is the machine's doing: no figure here hangs on its pace


@dataclass(frozen=True)
class Fired:
    """What a load came to: what was said, the records in the plan's order, and the run."""

    ended: Ended
    records: list[RequestRecord]
    run: Run

    def outcomes(self) -> Counter[Outcome]:
        return Counter(record.outcome for record in self.records)

    def total(self, name: str) -> int:
        """Of a figure that every record has."""
        return sum(getattr(record, name) for record in self.records)

    def server_total(self, name: str) -> float:
        """By how much a counter of the server's grew from the start to the end, as it was scraped."""
        seen = [scrape for scrape in self.run.server.scrapes if name in scrape.values]
        before = [scrape for scrape in seen if scrape.at_s <= 0]
        assert before, self.run.server.absent
        return seen[-1].values[name] - before[-1].values[name]


def fire(server: Server, folder: Path, *words: str | Path, code: tuple[int, ...] = MEASURED) -> Fired:
    """`loadgen run WORDS` at `server`, named by nothing but its address."""
    ended = loadgen(
        *("run", *words, "--base-url", server.url, "--out", folder / "run", "--no-tail"),
        cwd=folder,
        timeout_s=120,
    )
    assert ended.code in code, ended.out + ended.err
    records = sorted(each(folder / "run")[1], key=lambda record: record.index)
    return Fired(ended, records, load(folder / "run"))


def scenario(folder: Path, requests: list[dict[str, Any]], **more: Any) -> Path:
    """The file of one that has these rows. JSON is YAML."""
    path = folder / "scenario.yaml"
    path.write_text(json.dumps({"load": {"requests": requests} | more.pop("load", {})} | more))
    return path


def stream(server: Server, endpoint: str, body: dict[str, Any]) -> list[Any]:
    """What each event of an answer bears, read by nobody of ours: JSON where it is, else its text."""
    asked = {"model": server.model, "stream": True, "stream_options": {"include_usage": True}} | body
    answer = httpx.post(server.url + endpoint, json=asked, timeout=60)
    assert answer.status_code == 200, answer.text
    data = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]
    return [json.loads(one) if one.startswith("{") else one for one in data]


def texts(events: list[Any]) -> list[str]:
    """Of those events that bear some."""
    choices = [choice for event in events if isinstance(event, dict) for choice in event.get("choices", ())]
    said = [choice.get("text") or (choice.get("delta") or {}).get("content") for choice in choices]
    return [text for text in said if text]


def checked(server: Server, folder: Path) -> Any:
    """What `loadgen check` finds, told nothing but the address."""
    ended = loadgen("check", server.url, "--json", cwd=folder)
    assert ended.code == 0, ended.err
    return json.loads(ended.out)
