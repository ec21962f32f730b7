"""Against `transformers serve`, on the CPU: one request at a time, and a dialect of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from loadgen.records import Outcome
from tests.end_to_end.process import loadgen
from tests.real.fired import checked, fire, scenario, stream, texts
from tests.real.installed import missing
from tests.real.server import Server
from tests.real.transformers_serve import transformers_serve

pytestmark = [
    pytest.mark.real,
    pytest.mark.real_transformers,
    pytest.mark.skipif(missing("transformers") is not None, reason=missing("transformers") or ""),
]
PROMPT = "once upon a time"
CHAT = "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": PROMPT}]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with transformers_serve(tmp_path_factory.mktemp("transformers")) as server:
        yield server


def answered(server: Server) -> int:
    """Chats that were answered 200, by the server's own log."""
    return server.log.read_text(errors="replace").count(f'"POST {CHAT} HTTP/1.1" 200')


def test_the_look_before_the_load_learns_its_terms(server: Server, tmp_path: Path) -> None:
    """It refuses words that others only do not know: they are left out. Its model's name is a path."""
    found = checked(server, tmp_path)
    assert found["kind"] == "transformers serve"
    assert "ignore_eos" in found["terms"]["without"]
    assert found["model"] == server.model
    assert found["usage_given"]


def test_every_row_is_answered_and_counted_as_the_server_counts(server: Server, tmp_path: Path) -> None:
    """200 requests in Poisson time, with nothing said but the address. It has no metrics: its log says how
    many it answered, the look before the load among them; and each answer its tokens, one an event.
    """
    before = answered(server)
    fired = fire(server, tmp_path, "--request-rate", "12", "--num-prompts", "200", "--output-len", "4")
    assert [record.index for record in fired.records] == [*range(200)]
    assert fired.outcomes() == {Outcome.OK: 200}
    looked = fired.run.header.preflight["requests"]
    assert 200 < answered(server) - before <= 200 + looked
    early = [record for record in fired.records if record.finish_reason != "length"]
    assert len(early) < 5  # an end of text, which nothing keeps it from
    assert {record.output_tokens for record in fired.records if record not in early} == {4}
    assert {record.tokens_from for record in fired.records} == {"usage"}
    assert fired.run.server.absent


def test_an_answer_is_read_as_a_bare_client_reads_it(server: Server, tmp_path: Path) -> None:
    """No [DONE]: the body ends after the finish reason, beside which the usage is. Greedy, so that both
    clients are told the same.
    """
    events = stream(server, CHAT, {"messages": MESSAGES, "max_tokens": 24, "temperature": 0})
    assert events[-1]["choices"][0]["finish_reason"] == "length"
    rows = scenario(tmp_path, [{"prompt": PROMPT, "output": 24}], load={"extra_body": {"temperature": 0}})
    (record,) = fire(server, tmp_path, rows).records
    assert (record.outcome, record.finish_reason) == (Outcome.OK, "length")
    assert len(record.gaps_us) + 1 == len(texts(events))
    assert record.prompt_tokens == events[-1]["usage"]["prompt_tokens"]
    assert record.output_tokens == events[-1]["usage"]["completion_tokens"] == 24


def test_unasked_it_would_refuse_every_row(server: Server, tmp_path: Path) -> None:
    """422, and the field's name: what the look before the load saves."""
    rows = scenario(tmp_path, [{"prompt": PROMPT, "output": 4}])
    (record,) = fire(server, tmp_path, rows, "--no-preflight", "--model", server.model, code=(1, 4)).records
    assert (record.outcome, record.status) == (Outcome.HTTP_ERROR, 422)
    assert "ignore_eos" in (record.error or "")


def test_an_error_inside_a_200_is_no_answer(server: Server, tmp_path: Path) -> None:
    """In the server's words."""
    rows = scenario(
        tmp_path,
        [{"prompt": PROMPT, "output": 4}],
        load={"extra_body": {"max_tokens": 0}, "ignore_eos": False},
    )
    (record,) = fire(server, tmp_path, rows, "--no-preflight", "--model", server.model, code=(1, 4)).records
    assert (record.outcome, record.status) == (Outcome.STREAM_ERROR, 200)
    assert "greater than 0" in (record.error or "")


def test_a_model_that_is_not_there_ends_it_before_any_load(server: Server, tmp_path: Path) -> None:
    """In the server's words, which name the one that it has."""
    load = ("--request-rate", "1", "--num-prompts", "5")
    ended = loadgen("run", "--base-url", server.url, "--model", "gpt-9", *load, cwd=tmp_path)
    assert ended.code == 5
    assert "gpt-9" in ended.err
    assert server.model in ended.err
