"""How many tokens a server's words are, from its own count."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from loadgen.client.preflight import Preflight, preflight
from loadgen.client.word_tokens import mean_of_words
from loadgen.plan import Plan, PromptRecipe, Window
from loadgen.prompts import Prompts
from loadgen.scenario import Timeouts
from loadgen.target import Target
from loadgen.workload.words import WordTokens
from tests.fakes import HANG, Answer, Received, Reply, ScriptedServer, json_reply, models_reply, stream_reply

CHAT = "/v1/chat/completions"
KEY = "sk-planted-0123456789"


def text_of(request: Received) -> str:
    asked = request.json()
    return str(asked["messages"][0]["content"] if "messages" in asked else asked["prompt"])


def is_probe(request: Received) -> bool:
    """Rather than one that counts words: of both only the probe asks something, or gives ids."""
    return "?" in text_of(request) or "[" in text_of(request)


def counting(count: Callable[[str], int], *, chat: bool = True) -> Answer:
    """A server whose usage is `count` of the prompt."""
    return lambda request: stream_reply(prompt_tokens=count(text_of(request)), chat=chat)


def letters(text: str) -> int:
    """Words with an `a` are two tokens, others one, and nine frame each prompt."""
    return 9 + sum(1 + ("a" in word) for word in text.split())


def after_probe(*answers: Answer) -> Answer:
    """The probe is answered well, further requests as given."""
    rest = iter(answers)
    return lambda request: (
        stream_reply()
        if is_probe(request)
        else (answer(request) if callable(answer := next(rest)) else answer)
    )


async def look(answer: Answer, endpoint: str = CHAT, mean: float | None = 512) -> tuple[Preflight, Any]:
    async with ScriptedServer({"/v1/models": models_reply("tiny"), endpoint: answer}) as it:
        target = Target(base_url=it.url, endpoint=endpoint)  # type: ignore[arg-type]
        timeouts = Timeouts(connect="5s", first_token="200ms")
        found = await preflight(target, KEY, timeouts, ignore_eos=True, mean_of_words=mean)
        asked = [r for r in it.requests if r.method == "POST" and r.body != b"{"]
        return found, [r for r in asked if not is_probe(r)]


async def test_words_are_calibrated_from_two_prompts_of_one_token_each() -> None:
    """43 of the 128 words have an `a`: 1.3359375 tokens a word exactly, whatever their order. Around a
    prompt there are 9 and what its last word, of two tokens, has more than the mean.
    """
    found, requests = await look(counting(letters))
    assert [request.json()["max_tokens"] for request in requests] == [1, 1]
    assert [len(text_of(request).split()) for request in requests] == [129, 257]
    assert found.calibration == WordTokens(1.3359375, 11 - 1.3359375)
    [note] = found.notes
    assert note == (
        "prompts: the server counts 1.34 tokens a word, and 10 around a prompt: "
        "lengths of 512 will be off by about 1.4% each"
    )


async def test_a_server_of_four_bytes_a_token_needs_no_correction() -> None:
    """One token a word, none around, also on the other endpoint."""
    endpoint = "/v1/completions"
    found, _ = await look(counting(lambda text: -(-len(text.encode()) // 4), chat=False), endpoint)
    assert found.calibration == WordTokens(1.0, 0.0)


async def test_no_two_calibrations_send_the_same_prompts() -> None:
    """The salt is fresh, and the second prompt does not begin like the first: no prefix cache answers."""
    texts = [text_of(request) for _ in range(2) for request in (await look(counting(letters)))[1]]
    assert len({text[:16] for text in texts}) == 4


async def test_nothing_is_asked_where_nothing_is_to_be_calibrated() -> None:
    """A load of token ids, or of texts that were written out: no request, no note."""
    found, requests = await look(stream_reply(), mean=None)
    assert (len(requests), found.calibration, found.notes) == (0, None, ())


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ([stream_reply(), stream_reply()], "the server counts 8 tokens for 129 words, and 8 for 257"),
        (
            [stream_reply(prompt_tokens=9), stream_reply(prompt_tokens=8)],
            "the server counts 9 tokens for 129 words, and 8 for 257",
        ),
        ([stream_reply(with_usage=False)], "the server does not say how many tokens a prompt has"),
        (
            [json_reply({"error": {"message": f"too long for {KEY}"}}, status=400)],
            "the server answered 400: too long for ***",
        ),
        ([HANG], "no answer within 0.2 s; does it hang?"),
    ],
)
async def test_a_count_that_says_nothing_leaves_prompts_uncalibrated(answers: list[Reply], said: str) -> None:
    """One note says so and why; the run goes on."""
    found, _ = await look(after_probe(*answers))
    assert found.calibration is None
    [note] = found.notes
    assert note.startswith("prompts are uncalibrated, each word is taken for a token: ")
    assert note.endswith(said)


async def test_a_busy_server_is_noted_and_its_words_are_not_calibrated() -> None:
    """Two notes: that it is busy, and what follows for prompts."""
    busy = json_reply({"error": {"message": "full"}}, status=429)
    found, _ = await look(busy)
    assert found.notes == (
        "busy at preflight (429): full",
        "prompts are uncalibrated, each word is taken for a token: the server answered 429: full",
    )


# --- what is promised ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("tokens", [32, 256])
def test_lengths_are_met_as_promised(tokens: int) -> None:
    """Of 2,000 prompts of words that are one or two tokens each, by chance, as counted one by one."""
    rng = np.random.default_rng(1)
    words = WordTokens(1.57, 2.0)
    n = words.words_for(tokens)
    counted = 2 + n + rng.binomial(n, 0.57, 2_000)
    assert words.miss(tokens) == pytest.approx(np.abs(counted - tokens).mean() / tokens, rel=0.15)


def test_a_server_whose_words_are_a_token_each_is_off_by_no_chance() -> None:
    """Half a token, where the overhead is no whole number."""
    assert WordTokens(1.0, 0.0).miss(100) == 0.005


def test_what_the_counts_of_two_prompts_leave_below_zero_is_no_overhead() -> None:
    """It is noise: their last words are others."""
    assert WordTokens(1.59, -1.2).says == "1.59 tokens a word, and 0 around a prompt"


# --- which prompts ------------------------------------------------------------------------------------------


def plan(recipe: PromptRecipe, prompt_tokens: list[int], **columns: Any) -> Plan:
    n = len(prompt_tokens)
    return Plan(
        index=np.arange(n),
        due_ns=np.arange(n),
        prompt_tokens=np.array(prompt_tokens, np.int32),
        output_tokens=np.ones(n, np.int32),
        phase=np.ones(n, np.uint8),
        priority=np.zeros(n, np.int32),
        window=Window(0, n, "count"),
        prompts=recipe,
        **columns,
    )


def test_the_mean_is_of_what_is_made_of_words_to_be_calibrated() -> None:
    """Of four classes one; and of its rows those without a text, and without the history before them."""
    styles = (Prompts(), Prompts(kind="token_ids"), Prompts(calibrate=False))
    some = plan(
        PromptRecipe(seed=1, styles=styles, texts=("written", None)),
        [100, 200, 5, 300, 7, 8],
        class_id=np.array([0, 0, 0, 0, 1, 2], np.uint8),
        source=np.array([-1, 1, 0, -1, -1, -1], np.int32),
        history_tokens=np.array([0, 0, 0, 60, 0, 0], np.int32),
    )
    assert mean_of_words(some) == pytest.approx((100 + 200 + 240) / 3)
    assert mean_of_words(plan(PromptRecipe(seed=1), [10, 20])) == 15
    ids = PromptRecipe(seed=1, styles=(Prompts(kind="token_ids"),))
    assert mean_of_words(replace(some, prompts=ids, class_id=np.zeros(6, np.uint8))) is None
    json.dumps(mean_of_words(some))  # a plain number
