"""Against llama.cpp's own server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from loadgen.records import Outcome, RequestRecord
from tests.real.fired import checked, fire, scenario, stream, texts
from tests.real.llama_cpp import llama_cpp, missing
from tests.real.server import Server
from tests.real.weights import CONTEXT

pytestmark = [
    pytest.mark.real,
    pytest.mark.real_llama_cpp,
    pytest.mark.skipif(missing() is not None, reason=missing() or ""),
]
SLOTS = 4
PROMPT = "once upon a time"
OUTPUT = "llamacpp:tokens_predicted_total"
STEPS = "llamacpp:n_decode_total"
PROMPTS = ("llamacpp:prompt_tokens_total", "llamacpp:prompt_tokens_cached_total")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("llama-cpp")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    with llama_cpp(folder, slots=SLOTS) as server:
        yield server


def asked(endpoint: str) -> dict[str, Any]:
    said: Any = {"prompt": PROMPT}
    if "chat" in endpoint:
        said = {"messages": [{"role": "user", "content": PROMPT}]}
    return said | {"max_tokens": 24, "temperature": 0, "ignore_eos": True}


def test_the_look_before_the_load_learns_what_it_is(server: Server, tmp_path: Path) -> None:
    """Its kind, its context and its model, and that it takes every word we say."""
    found = checked(server, tmp_path)
    assert found["kind"] == "llama.cpp"
    assert found["context_tokens"] == CONTEXT
    assert found["model"] == server.model
    assert found["usage_given"]
    assert found["terms"]["without"] == []
    assert found["terms"]["length"] == "max_tokens"


def test_every_row_is_answered_and_counted_as_the_server_counts(server: Server, tmp_path: Path) -> None:
    """200 requests in Poisson time: a record each, all ok, and both sums of tokens are the server's own."""
    before = server.metrics(OUTPUT), sum(map(server.metrics, PROMPTS))
    load = ("--request-rate", "60", "--num-prompts", "200", "--input-len", "32", "--output-len", "16")
    fired = fire(server, tmp_path, *load, "--random-range-ratio", "0.5", "--no-preflight")
    assert [record.index for record in fired.records] == [*range(200)]
    assert fired.outcomes() == {Outcome.OK: 200}
    assert fired.total("output_tokens") == fired.total("asked_output_tokens")
    assert fired.total("output_tokens") == server.metrics(OUTPUT) - before[0]
    assert fired.total("prompt_tokens") == sum(map(server.metrics, PROMPTS)) - before[1]


def test_the_server_s_own_counters_are_kept_beside_ours(server: Server, tmp_path: Path) -> None:
    """What the look before the load cost is in none of them."""
    fired = fire(server, tmp_path, "--request-rate", "40", "--num-prompts", "60", "--output-len", "16")
    assert fired.server_total("output_tokens") == fired.total("output_tokens") == 60 * 16


@pytest.mark.parametrize("endpoint", ["/v1/chat/completions", "/v1/completions"])
def test_an_answer_is_read_as_a_bare_client_reads_it(server: Server, tmp_path: Path, endpoint: str) -> None:
    """A chat begins with a role whose content is null, and has its usage on a chunk of its own; completions
    have it on the chunk of the finish. Greedy, so that both clients are told the same.
    """
    events = stream(server, endpoint, asked(endpoint))
    first, finish = events[0]["choices"][0], events[-2]
    if "chat" in endpoint:
        assert first["delta"] == {"role": "assistant", "content": None}
        assert finish["choices"] == []
    else:
        assert finish["choices"][0]["finish_reason"] == "length"
    rows = scenario(tmp_path, [{"prompt": PROMPT, "output": 24}], load={"extra_body": {"temperature": 0}})
    (record,) = fire(server, tmp_path, rows, "--endpoint", endpoint).records
    assert record.outcome is Outcome.OK
    assert record.finish_reason == "length"
    assert len(record.gaps_us) + 1 == len(texts(events))
    assert record.prompt_tokens == finish["usage"]["prompt_tokens"]
    assert record.output_tokens == finish["usage"]["completion_tokens"] == 24
    assert record.tokens_from == "usage"


def test_any_model_is_answered_for(server: Server, tmp_path: Path) -> None:
    """It has but one, whatever it is asked for: told, and no reason to refuse."""
    fired = fire(server, tmp_path, scenario(tmp_path, [{"prompt": PROMPT, "output": 4}]), "--model", "gpt-9")
    assert fired.outcomes() == {Outcome.OK: 1}
    assert "gpt-9" in fired.ended.out + fired.ended.err


def test_a_prompt_that_is_too_long_is_its_own_fault(server: Server, tmp_path: Path) -> None:
    """400, in the server's words, and the row beside it is answered."""
    rows = [{"prompt": "ab " * 3000, "output": 4}, {"prompt": PROMPT, "output": 4}]
    long, short = fire(server, tmp_path, scenario(tmp_path, rows)).records
    assert (long.outcome, long.status) == (Outcome.HTTP_ERROR, 400)
    assert "exceed_context_size" in (long.error or "")
    assert short.outcome is Outcome.OK


def test_who_hangs_up_frees_the_slot(server: Server, tmp_path: Path) -> None:
    """The row is abandoned, and the server computes no further."""
    before = server.metrics(OUTPUT)
    rows = scenario(tmp_path, [{"prompt": PROMPT, "output": 1900}], load={"patience": "150ms"})
    fired = fire(server, tmp_path, rows, "--no-preflight", code=(1, 4))
    assert fired.outcomes() == {Outcome.ABANDONED: 1}
    by_s = time.monotonic() + 5
    while server.metrics("llamacpp:requests_processing"):
        assert time.monotonic() < by_s, "it computes on"
    assert server.metrics(OUTPUT) - before < 1900


def test_more_than_it_has_slots_for_wait_and_are_not_lost(folder: Path, tmp_path: Path) -> None:
    """Forty at once for two slots: all are answered, and the last third waited twice as long as the first, at
    least: five times, were there no time but the slots'.
    """
    rows = [{"prompt": PROMPT, "output": 32}] * 40
    with llama_cpp(folder, slots=2) as server:
        fired = fire(server, tmp_path, scenario(tmp_path, rows))
    assert fired.outcomes() == {Outcome.OK: 40}
    waits_s = sorted(record.first_token_s - record.due_s for record in fired.records)
    assert median(waits_s[-13:]) > 2 * median(waits_s[:13])


def batched(
    folder: Path, tmp_path: Path, rows: list[dict[str, Any]], *, continuous: bool
) -> tuple[list[RequestRecord], float]:
    """The records of four slots' answers, and how many steps they took."""
    at = tmp_path / str(continuous)
    at.mkdir()
    with llama_cpp(folder, slots=4, continuous=continuous) as server:
        before = server.metrics(STEPS)
        fired = fire(server, at, scenario(at, rows), "--no-preflight")
        steps = server.metrics(STEPS) - before
    assert fired.outcomes() == {Outcome.OK: len(rows)}
    return fired.records, steps


@pytest.mark.slow  # wants a machine that is left alone: the short ones must be sent while the long one lasts
def test_continuous_batching_answers_short_ones_beside_a_long_one(folder: Path, tmp_path: Path) -> None:
    """By the server's own switch: forty short requests fall due while one long answer is computed. Without it
    none begins but the three that may share its batch, until the long one has ended: its last hundred events
    are left out, since another connection's may overtake them on their way.
    """
    rows = [{"prompt": PROMPT, "output": 1900}]
    rows += [{"prompt": PROMPT, "output": 4, "due": f"{10 + n}ms"} for n in range(40)]
    beside = {}
    for continuous in (True, False):
        (long, *short), _ = batched(folder, tmp_path, rows, continuous=continuous)
        until_s = long.last_token_s - sum(long.gaps_us[-100:]) / 1e6
        beside[continuous] = sum(record.first_token_s < until_s for record in short)
    assert beside[True] > 10
    assert beside[False] <= 3


def test_continuous_batching_takes_fewer_steps(folder: Path, tmp_path: Path) -> None:
    """A static batch of four takes as many as its longest, and here each has one of 160 tokens beside three
    of 4: 1,920 in all for 2,064 tokens. Continuous batching has 516 and its last long ones to do.
    """
    rows = [{"prompt": PROMPT, "output": 4 if n % 4 else 160} for n in range(48)]
    _, continuous = batched(folder, tmp_path, rows, continuous=True)
    _, static = batched(folder, tmp_path, rows, continuous=False)
    assert 516 < continuous < 0.6 * static
