"""A look at the target before any load: is it there, does it take our key and our body, does it stream?

Two requests at most: GET /v1/models, then one probe of four tokens; and two of one token where the words of
prompts are to be calibrated. No load ever goes this way.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from secrets import token_hex
from typing import Any

import msgspec

from loadgen.client.answer import misfit
from loadgen.client.dialects import Wish
from loadgen.client.inquiry import Inquiry, Response, inquire
from loadgen.client.request import body
from loadgen.client.stream import Stream
from loadgen.client.unreachable import Unreachable
from loadgen.client.word_tokens import UncountedError, calibrate, mean_of_words
from loadgen.plan import Plan
from loadgen.scenario import Scenario, ScenarioError, Target, Timeouts
from loadgen.terms import AS_ASKED, Terms
from loadgen.workload.words import WordTokens

__all__ = ["Preflight", "Unreachable", "preflight", "preflighted", "wait_ready"]

PROBE_PROMPT = "Count from one to ten."
PROBE_TOKENS = 4
PATIENCE_S = 60.0  # four tokens that take longer are no use to a person who waits for the run to start
POLL_S = 5.0
BUSY = (429, 503)


@dataclass(frozen=True)
class Preflight:
    """What the look found.

    model: the one to ask for. models: the listed ones, None without a list. server: its Server header.
    facts: plain JSON for run.json. notes: what a user should know, one line each. calibration: what its count
    of words says, None where it was not asked or does not count.
    """

    model: str | None
    models: tuple[str, ...] | None
    server: str | None
    facts: dict[str, Any]
    notes: tuple[str, ...]
    calibration: WordTokens | None = None
    terms: Terms = AS_ASKED


async def preflight(
    target: Target,
    api_key: str | None,
    timeouts: Timeouts,
    *,
    ignore_eos: bool,
    mean_of_words: float | None = None,
) -> Preflight:
    """Look at the model list, then send one small streaming request shaped as the load's will be.

    `mean_of_words`: the mean tokens of the load's prompts of words; where given, the server is asked how many
    tokens its words make.

    Raises Unreachable when the target cannot be reached or refuses us, ScenarioError when the scenario leaves
    open which of several models is meant. A target that is merely busy (429, 503) is noted.
    """
    limit_s = min(timeouts.first_token_s, PATIENCE_S)
    notes = ["insecure: the server's certificate is not checked"] if target.insecure else []
    async with inquire(target, api_key, timeouts.connect_s) as inquiry:
        models = _models(inquiry, await inquiry.ask("GET", "/v1/models", limit_s), notes)
        model = _model(inquiry, models, notes)
        probe = _Probe(inquiry, model, limit_s, ignore_eos=ignore_eos)
        response, stream = await probe.ask(PROBE_PROMPT, PROBE_TOKENS)
        if _is_busy(response, stream):
            words = stream.error[1] if stream.error else inquiry.words(response)
            notes.append(f"busy at preflight ({response.status}): {words}")
        else:
            _judge(inquiry, response, stream, models)
            notes += _remarks(response, stream, ignore_eos=ignore_eos)
        calibration = None
        if mean_of_words is not None:
            calibration, note = await calibrate(probe.count, mean_of_words, token_hex(8))
            notes.append(note)
    facts = inquiry.masked({"model": model, "models": models} | _facts(response, stream))
    return Preflight(model, models, facts["server"], facts, tuple(inquiry.masked(notes)), calibration)


class _Probe:
    """Small requests shaped as the load's."""

    def __init__(self, inquiry: Inquiry, model: str | None, limit_s: float, *, ignore_eos: bool) -> None:
        self._inquiry = inquiry
        self._model = model
        self._limit_s = limit_s
        self._ignore_eos = ignore_eos

    async def ask(self, prompt: str, output_tokens: int) -> tuple[Response, Stream]:
        """The response, and what the load's own reader would see in it. Raises Unreachable."""
        target = self._inquiry.target
        wish = Wish(self._model, prompt, output_tokens, self._ignore_eos)
        asked = body(target, AS_ASKED, wish)
        response = await self._inquiry.ask("POST", target.endpoint, self._limit_s, asked)
        return response, _stream(response)

    async def count(self, prompt: str) -> int:
        """Its tokens as the server counts them. Raises UncountedError."""
        try:
            response, stream = await self.ask(prompt, 1)
        except Unreachable as trouble:
            raise UncountedError(str(trouble)) from None
        if response.status != 200 or stream.error is not None:
            words = stream.error[1] if stream.error else self._inquiry.words(response)
            raise UncountedError(f"the server answered {response.status}: {words}")
        if stream.usage is None or stream.usage.prompt_tokens is None:
            raise UncountedError("the server does not say how many tokens a prompt has")
        return stream.usage.prompt_tokens


async def preflighted(
    scenario: Scenario,
    plan: Plan,
    target: Target,
    api_key: str | None,
    *,
    looks: bool = True,
    wait_ready_s: float | None = None,
) -> Preflight | None:
    """What `target` says of itself before the load, once it is ready, `wait_ready_s` at most; None where it
    is not to be looked at. Raises ScenarioError or Unreachable.
    """
    if wait_ready_s is not None:
        await wait_ready(target, api_key, wait_ready_s, scenario.timeouts.connect_s)
    if not looks:
        return None
    words, ignore_eos = mean_of_words(plan), scenario.load.ignore_eos
    return await preflight(target, api_key, scenario.timeouts, ignore_eos=ignore_eos, mean_of_words=words)


async def wait_ready(target: Target, api_key: str | None, limit_s: float, connect_s: float = POLL_S) -> None:
    """Ask /health and /v1/models by turns until one answers 200.

    Raises Unreachable with the last answer after `limit_s` seconds, or at once when the key is refused.
    """
    last, pause_s = "no answer", 0.05
    try:
        async with asyncio.timeout(limit_s), inquire(target, api_key, min(connect_s, POLL_S)) as inquiry:
            while True:
                for path in ("/health", "/v1/models"):
                    try:
                        response = await inquiry.ask("GET", path, POLL_S)
                    except Unreachable as trouble:
                        last = str(trouble)
                        continue
                    if response.status == 200:
                        return
                    if response.status == 401:
                        raise inquiry.refused(response)
                    last = str(inquiry.refused(response))
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, 1.0)
    except TimeoutError:
        raise Unreachable(f"not ready within {limit_s:g} s; at the last try {last}") from None


def _models(inquiry: Inquiry, response: Response, notes: list[str]) -> tuple[str, ...] | None:
    """The listed models; None with a note where there is no list. Only a refused key is fatal here."""
    if response.status == 401:
        raise inquiry.refused(response)
    try:
        listed = msgspec.json.decode(response.body, type=_Listing) if response.status == 200 else None
    except (msgspec.DecodeError, RecursionError):
        listed = None
    if listed is None:
        notes.append(
            f"no list of models: {response.what} answered {response.status}: {inquiry.words(response)}"
        )
        return None
    return tuple(model.id for model in listed.data)


class _Listed(msgspec.Struct):
    id: str


class _Listing(msgspec.Struct):
    data: list[_Listed]


def _model(inquiry: Inquiry, models: tuple[str, ...] | None, notes: list[str]) -> str | None:
    named, listed = inquiry.target.model, inquiry.masked(", ".join(models or ()))
    if named is not None:
        if models and named not in models:
            notes.append(f"the server does not list the model {named}; it lists {listed}")
        return named
    if models and len(models) > 1:
        raise ScenarioError(f"target.model: the server has several models, name one of {listed}")
    if not models:
        notes.append("no model is named and the server lists none: requests go without one")
        return None
    return models[0]


def _stream(response: Response) -> Stream:
    """The body as the load's own reader sees it; nothing where it would not read it as a stream."""
    stream = Stream()
    if response.status == 200 and _misfit(response) is None:
        stream.feed(response.body, 0)
        stream.end(0)
    return stream


def _misfit(response: Response) -> str | None:
    headers = response.headers
    return misfit(headers.get("content-type", ""), headers.get("content-encoding", ""))


def _is_busy(response: Response, stream: Stream) -> bool:
    return response.status in BUSY or (stream.error is not None and stream.error[0] in BUSY)


def _judge(inquiry: Inquiry, response: Response, stream: Stream, models: tuple[str, ...] | None) -> None:
    """Raise Unreachable if the load would meet nothing but trouble."""
    if response.status != 200:
        raise inquiry.refused(response, models)
    why = None
    if stream.error is not None:
        why = f"an error where tokens were due: {stream.error[1]}"
    elif stream.first_event_us is None and response.body:
        got = _misfit(response) or f"no event in {response.headers.get('content-type', 'an untyped body')}"
        why = f"{got}: {inquiry.words(response)}; is base_url the API's, and no proxy in between?"
    elif response.end == "lost":
        why = "the connection was lost in the midst of the answer; the server's log may say why"
    elif response.end == "cut" and not stream.events:
        why = f"the answer began, but no token came in time (timeouts.first_token, at most {PATIENCE_S:g} s)"
    if why is not None:
        raise inquiry.unreachable(response.what, why)


def _remarks(response: Response, stream: Stream, *, ignore_eos: bool) -> list[str]:
    """What the figures of a load will suffer from, if the probe is like the rest."""
    tokens, _ = stream.output_tokens()
    content_type = response.headers.get("content-type", "none")
    is_whole = response.end == "whole"
    found = {
        f"the stream's content type is {content_type}, not text/event-stream": not _is_event_stream(response),
        f"no token in the stream of the probe (usage says {stream.usage_tokens})": not stream.events,
        "the stream of the probe had no end in sight": not is_whole,
        "no usage in the stream: output tokens will be counted by its events": (
            is_whole and stream.usage_tokens is None
        ),
        "the stream ended with neither a finish reason nor [DONE]: every such answer counts as broken": (
            is_whole and stream.finish_reason is None and not stream.done
        ),
        f"asked for {PROBE_TOKENS} tokens with ignore_eos, got {tokens}: the server ends answers early": (
            ignore_eos and stream.finish_reason == "stop" and tokens < PROBE_TOKENS
        ),
    }
    return [remark for remark, is_so in found.items() if is_so]


def _is_event_stream(response: Response) -> bool:
    return bool(response.headers.get("content-type", "").startswith("text/event-stream"))


def _facts(response: Response, stream: Stream) -> dict[str, Any]:
    usage = stream.usage
    return {
        "server": response.headers.get("server"),
        "status": response.status,
        "streams": _is_event_stream(response) and stream.events > 0,
        "usage_given": usage is not None,
        "finish_reason": stream.finish_reason,
        "prompt_tokens": usage and usage.prompt_tokens,
        "asked_output_tokens": PROBE_TOKENS,
        "output_tokens": usage and usage.completion_tokens,
    }
