"""Against vLLM's OpenAI server, on the CPU."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from loadgen.records import Outcome
from tests.end_to_end.process import loadgen
from tests.real.fired import checked, fire, scenario, stream, texts
from tests.real.installed import missing
from tests.real.server import Server
from tests.real.vllm import vllm

pytestmark = [
    pytest.mark.real,
    pytest.mark.real_vllm,
    pytest.mark.skipif(missing("vllm") is not None, reason=missing("vllm") or ""),
]
PROMPT = "once upon a time"
OUTPUT = "vllm:generation_tokens_total"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with vllm(tmp_path_factory.mktemp("vllm"), "--max-model-len", "2048", "--max-num-seqs", "16") as server:
        yield server


def wait_idle(server: Server) -> None:
    by_s = time.monotonic() + 10
    while server.metrics("vllm:num_requests_running") + server.metrics("vllm:num_requests_waiting"):
        assert time.monotonic() < by_s, "it computes on"


def test_the_look_before_the_load_learns_what_it_is(server: Server, tmp_path: Path) -> None:
    """Its kind, its version, its context and its model, and that it takes every word we say."""
    found = checked(server, tmp_path)
    assert found["kind"] == "vLLM"
    assert found["version"][0].isdigit()
    assert found["context_tokens"] == 2048
    assert found["model"] == server.model
    assert found["usage_given"]
    assert found["terms"]["without"] == []
    assert found["terms"]["length"] == "max_tokens"


def test_every_row_is_answered_and_counted_as_the_server_counts(server: Server, tmp_path: Path) -> None:
    """200 requests in Poisson time: a record each, all ok, and both sums of tokens are the server's own, by
    its metrics as a bare client reads them before and after.
    """
    counters = (OUTPUT, "vllm:prompt_tokens_total", "vllm:request_success_total")
    before = [server.metrics(name) for name in counters]
    load = ("--request-rate", "40", "--num-prompts", "200", "--input-len", "32", "--output-len", "16")
    fired = fire(server, tmp_path, *load, "--random-range-ratio", "0.5", "--no-preflight", "--model", "tiny")
    wait_idle(server)
    grown = [server.metrics(name) - was for name, was in zip(counters, before, strict=True)]
    assert [record.index for record in fired.records] == [*range(200)]
    assert fired.outcomes() == {Outcome.OK: 200}
    assert fired.total("output_tokens") == fired.total("asked_output_tokens")
    assert grown == [fired.total("output_tokens"), fired.total("prompt_tokens"), 200]


def test_the_server_s_own_counters_are_kept_beside_ours(server: Server, tmp_path: Path) -> None:
    """What the look before the load cost is in none of them."""
    fired = fire(server, tmp_path, "--request-rate", "40", "--num-prompts", "60", "--output-len", "16")
    assert fired.server_total("output_tokens") == fired.total("output_tokens") == 60 * 16
    assert fired.server_total("prompt_tokens") == fired.total("prompt_tokens")
    assert fired.server_total("succeeded") == 60


@pytest.mark.parametrize("endpoint", ["/v1/chat/completions", "/v1/completions"])
def test_an_answer_is_read_as_a_bare_client_reads_it(server: Server, tmp_path: Path, endpoint: str) -> None:
    """The finish comes with the last token, and usage on a chunk of its own. Greedy, so that both clients are
    told the same.
    """
    said = {"messages": [{"role": "user", "content": PROMPT}]} if "chat" in endpoint else {"prompt": PROMPT}
    events = stream(server, endpoint, said | {"max_tokens": 24, "temperature": 0, "ignore_eos": True})
    assert events[-1] == "[DONE]"
    assert events[-2]["choices"] == []
    rows = scenario(tmp_path, [{"prompt": PROMPT, "output": 24}], load={"extra_body": {"temperature": 0}})
    (record,) = fire(server, tmp_path, rows, "--endpoint", endpoint).records
    assert (record.outcome, record.finish_reason) == (Outcome.OK, "length")
    assert len(record.gaps_us) + 1 == len(texts(events))
    assert record.prompt_tokens == events[-2]["usage"]["prompt_tokens"]
    assert record.output_tokens == events[-2]["usage"]["completion_tokens"] == 24


def test_tokens_are_counted_by_usage_where_one_event_bears_several(server: Server, tmp_path: Path) -> None:
    """A token that is part of a character is held back until the rest of it is there: fewer events."""
    rows = scenario(tmp_path, [{"prompt": f"{n} {PROMPT}", "output": 150} for n in range(20)])
    fired = fire(server, tmp_path, rows)
    assert {record.output_tokens for record in fired.records} == {150}
    assert {record.tokens_from for record in fired.records} == {"usage"}
    assert sum(len(record.gaps_us) + 1 for record in fired.records) < 20 * 150


def test_a_prompt_that_is_too_long_is_its_own_fault(server: Server, tmp_path: Path) -> None:
    """400, in the server's words, and the row beside it is answered."""
    rows = [{"prompt": "ab " * 3000, "output": 4}, {"prompt": PROMPT, "output": 4}]
    long, short = fire(server, tmp_path, scenario(tmp_path, rows)).records
    assert (long.outcome, long.status) == (Outcome.HTTP_ERROR, 400)
    assert "2048" in (long.error or "")
    assert short.outcome is Outcome.OK


def test_a_model_that_is_not_there_ends_it_before_any_load(server: Server, tmp_path: Path) -> None:
    """404, in the server's words, and which one it has."""
    load = ("--request-rate", "1", "--num-prompts", "5")
    ended = loadgen("run", "--base-url", server.url, "--model", "gpt-9", *load, cwd=tmp_path)
    assert ended.code == 5
    assert "gpt-9" in ended.err
    assert server.model in ended.err
    assert not [*tmp_path.glob("runs/*/records.jsonl")]


def test_who_hangs_up_frees_the_slot(server: Server, tmp_path: Path) -> None:
    """The row is abandoned, and the server computes no further."""
    before = server.metrics(OUTPUT)
    rows = scenario(tmp_path, [{"prompt": PROMPT, "output": 1900}], load={"patience": "200ms"})
    fired = fire(server, tmp_path, rows, "--no-preflight", "--model", "tiny", code=(1, 4))
    assert fired.outcomes() == {Outcome.ABANDONED: 1}
    wait_idle(server)
    assert 0 < server.metrics(OUTPUT) - before < 1900
