"""No secret is in anything that loadgen leaves behind or says, however it was given and whoever echoes it."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.end_to_end.process import Ended, loadgen
from tests.fakes import Received, Reply, ScriptedServer, event
from tests.security.planted import leaks, spellings, texts

SECRETS = {
    "the key": "sk-PLANTED/env+1~Kq9",
    "a header of a flag": "PLANTED.flag-header_77",
    "a header of a file": "PLANTED.file=header;88",
    "a body's of a flag": 'PLANTED body"flag\\99',
    "a body's of a file": "PLANTED-class-body-11",
    "the organization": "org-PLANTED-2222",
    "the proxy's password": "PLANTED:pass@word/33",
    "an endpoint's": "PLANTED-endpoint-44",
}
USER = "someone"
SCENARIO = """\
name: planted
target:
  base_url: http://model.invalid
  model: {model}
  headers: {{X-File-Token: {header}}}
  metrics: auto
load:
  arrivals: {{kind: constant, rate: 100/s}}
  num_requests: 12
  tail: false
  classes:
    chat: {{weight: 1, prompt_tokens: 8, output_tokens: 1, extra_body: {{user_token: {body}}}}}
slos: ["p90(ttft) <= 5s"]
"""


def echoing(request: Received) -> list[Reply]:
    """Answers that hold all that the request told of us, each in another place."""
    said = json.dumps(request.headers) + request.body.decode(errors="replace") + request.path
    key = request.headers.get("authorization", "none").removeprefix("Bearer ")
    piece = {"id": key, "model": key, "choices": [{"index": 0, "delta": {"content": said}}]}
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": f"stop {said}"}]}
    used = {
        "choices": [],
        "usage": {"prompt_tokens": 8, "completion_tokens": 1, key: said},
        "error_code": key,
    }
    whole = [(0.0, data) for data in (*map(event, (piece, end, used)), b"data: [DONE]\n\n")]
    typed = {"content-type": "text/event-stream", "server": key, "x-echo": key, "x-request-id": key}
    wrong = json.dumps({"error": {"message": said, "code": key, "type": key, "param": key}}).encode()
    return [
        Reply(headers=typed, writes=whole),
        Reply(401, typed, ((0.0, wrong),)),
        Reply(302, {"location": f"http://elsewhere/{key}?key={key}"}, ((0.0, said.encode()),)),
        Reply(500, {"content-type": f"text/{key}"}, ((0.0, f"<h1>{said}</h1>".encode()),)),
        Reply(429, {"retry-after": key}, ((0.0, wrong),)),
        Reply(headers=typed, writes=((0.0, event({"error": {"message": said, "code": key}})),)),
        Reply(headers=typed, writes=((0.0, b"data: {" + said.encode() + b"\n\n"),)),
        Reply(headers={"content-type": key}, writes=((0.0, said.encode()),)),
    ]


def metrics_of(request: Received) -> Reply:
    told = "".join(
        f'{name}="{value}",' for name, value in (("key", request.headers.get("authorization", "")),)
    )
    text = f"# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{{{told}}} 1\nodd{{{told}}} 2\n"
    return Reply(headers={"content-type": "text/plain"}, writes=((0.0, text.encode()),), framing="length")


@asynccontextmanager
async def echo(*, good: bool = False) -> AsyncIterator[ScriptedServer]:
    """The server: two good answers for the look before the load, then every kind in turn."""
    turn = itertools.count(-4)

    def answer(request: Received) -> Reply:
        if request.path.endswith("/metrics"):
            return metrics_of(request)
        key = request.headers.get("authorization", "none")
        if request.method == "GET":
            body = json.dumps(
                {"data": [{"id": "tiny"}, {"id": key, "owned_by": key}], "version": key}
            ).encode()
            return Reply(
                headers={"content-type": "application/json"}, writes=((0.0, body),), framing="length"
            )
        k = next(turn)
        answers = echoing(request)
        return answers[0] if good or k < 0 else answers[k % len(answers)]

    async with ScriptedServer(answer) as server:
        yield server


def environment() -> dict[str, str]:
    return {
        "OPENAI_API_KEY": SECRETS["the key"],
        "OPENAI_ORG_ID": SECRETS["the organization"],
    }


def scenario(folder: Path, model: str = "tiny") -> Path:
    path = folder / "planted.yaml"
    words = {"header": "a header of a file", "body": "a body's of a file"}
    path.write_text(
        SCENARIO.format(model=model, **{k: json.dumps(SECRETS[name]) for k, name in words.items()})
    )
    return path


def flags(server: ScriptedServer) -> list[str]:
    """Every way of a command line to hold a secret."""
    from urllib.parse import quote

    password = quote(SECRETS["the proxy's password"], safe="")
    return [
        *("--base-url", "http://model.invalid"),
        *("--proxy", f"http://{USER}:{password}@127.0.0.1:{server.port}"),
        *("--header", f"X-Flag-Token={SECRETS['a header of a flag']}"),
        *("--extra-body", json.dumps({"deep": [{"api_key": SECRETS["a body's of a flag"]}]})),
        *("--endpoint", f"/v1/chat/completions?key={SECRETS['an endpoint' + chr(39) + 's']}"),
    ]


class Witness:
    """Runs commands outside of the folder of inputs, and gathers all that they say and leave."""

    def __init__(self, folder: Path) -> None:
        self.inputs, self.left = folder / "in", folder / "left"
        self.inputs.mkdir()
        self.left.mkdir()
        self.said: list[tuple[str, str]] = []

    async def run(self, *words: str | Path, **env: str) -> Ended:
        ended = await asyncio.to_thread(
            loadgen, *words, cwd=self.left, XDG_CACHE_HOME=str(self.left / "cache"), **environment(), **env
        )
        self.said += [(f"stdout of {words[0]}", ended.out), (f"stderr of {words[0]}", ended.err)]
        assert ended.code not in (2, 70), (words, ended.err)  # it was understood, and did its work
        return ended

    def leaks(self) -> set[str]:
        return leaks(SECRETS, [*self.said, *texts(self.left)])


def test_the_search_finds_what_is_there(tmp_path: Path) -> None:
    """Each spelling of a secret is found in a file; so the other tests are not empty."""
    for spelt in spellings(SECRETS["the key"]):
        (tmp_path / "f").write_text(f"before{spelt}after")
        assert leaks(SECRETS, texts(tmp_path)) == {"the key in f"}, spelt


@pytest.mark.slow
@pytest.mark.parametrize("processes", ["1", "2"])
async def test_nothing_that_a_run_leaves_holds_a_secret(tmp_path: Path, processes: str) -> None:
    """A run by every door for a secret, at a server that echoes each: folder, page, exports, words."""
    seen = Witness(tmp_path)
    async with echo() as server:
        ways = flags(server) if processes == "1" else [*flags(server)[:4], *flags(server)[6:]]
        ended = await seen.run(
            *("run", scenario(seen.inputs), *ways, "--processes", processes, "--out", "r"),
            *("--html", "page.html"),
        )
        assert ended.code in (0, 1, 3, 4), ended.err
        told = {name for r in server.requests for name in SECRETS if spelled(SECRETS[name], r)}
        unsent = "a header of a file" if processes == "1" else "a header of a flag"  # one replaces the other
        assert told == set(SECRETS) - {unsent}
    await seen.run("report", "r", "--html", "again.html")
    await seen.run("report", "r", "--markdown")
    await seen.run("report", "r", "--json")
    for name in ("a.csv", "a.parquet", "a.jsonl", "a.vllm.json", "a.json", "a.om", "a.prom"):
        assert (await seen.run("export", "r", name)).code == 0
    await seen.run("import", "vllm", "a.vllm.json", "--out", "again")
    assert seen.leaks() == set()


def spelled(secret: str, request: Received) -> bool:
    sent = "".join(request.headers.values()) + request.path
    body = request.body.decode()
    return any(word in sent or word in body for word in spellings(secret))


@pytest.mark.slow
async def test_nothing_that_the_other_commands_leave_holds_a_secret(tmp_path: Path) -> None:
    """check, plan, compare, capacity, baseline, gate, ladder: all that they write and say."""
    seen = Witness(tmp_path)
    async with echo(good=True) as server:
        asked, at = scenario(seen.inputs), flags(server)
        await seen.run("check", *at[:4], "--model", "tiny", "--header", at[5])
        await seen.run("check", *at[:4], "--model", "tiny", "--header", at[5], "--json")
        await seen.run("plan", asked, "--export", "plan.csv")
        for name in ("one", "two"):
            await seen.run("run", asked, *at, "--out", name, "--quiet")
        await seen.run("baseline", "add", "one")
        await seen.run(
            *("gate", "two", "--baseline", "one", "--junit", "j.xml", "--markdown", "m.md", "--out", "gate"),
            GITHUB_STEP_SUMMARY=str(seen.left / "summary.md"),
            GITHUB_ACTIONS="true",
        )
        await seen.run("capacity", asked, "--base-url", server.url, "--most-runs", "2", "--out", "found")
        await seen.run("report", "one", "two", "--html", "both.html")
    for name in ("one", "two"):
        assert (seen.left / name / "run.json").is_file(), seen.said
    assert seen.leaks() == set()
