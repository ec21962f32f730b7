"""The mini-engine as an OpenAI-compatible streaming server on the wall clock."""

from __future__ import annotations

import asyncio
import errno
import hmac
import logging
import socket
import time
from collections.abc import Callable
from contextlib import closing, suppress
from itertools import count
from uuid import uuid4

import msgspec
from aiohttp import HttpVersion11, web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler

from loadgen import __version__
from loadgen.engine.batching import RETRY_AFTER_S, Sequence
from loadgen.engine.device import Call, Device, Stamps
from loadgen.engine.dialect import Answer, Ask, Refusal, read_chat, read_completion
from loadgen.knobs import Engine
from loadgen.scenario import ScenarioError
from loadgen.timer import new_timer

_MAX_BODY_BYTES = 64 * 2**20
_KEPT_REQUESTS = 100_000
_ID = "X-Request-ID"
_NO_PORT: dict[int | None, str] = {
    errno.EADDRINUSE: "port {port} of {host} is in use: choose another with --port (0 takes a free one)",
    errno.EACCES: "port {port} of {host} is for the privileged: choose one above 1023 with --port",
    errno.EADDRNOTAVAIL: "{host} is no address of this machine: choose another with --host",
    socket.EAI_NONAME: "there is no host {host!r}: choose another with --host",
}

_log = logging.getLogger(__name__)


async def serve(
    engine: Engine,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    api_key: str | None = None,
    speed: float = 1.0,
    ready: Callable[[int], None],
    stopping: asyncio.Event,
    grace_s: float = 5.0,
) -> None:
    """Serve `engine` until `stopping` is set, `speed` times faster than its cost says; `ready` gets the port.

    Paths: POST /v1/chat/completions and /v1/completions, streamed or whole; GET /v1/models, /health,
    /version, and /debug/requests (the engine's own stamps by X-Request-ID, and how late its steps ended).
    An answer has exactly `max_tokens` tokens (default: chat 128, completions 16) whether or not
    `ignore_eos` is given: the engine knows no end of sequence. A token of prompt is four bytes of UTF-8.
    `priority` is accepted and changes nothing: the queue is first in, first out. A full queue answers 429
    with Retry-After. A client that hangs up leaves the queue or its slot at once. With `api_key`, /v1 demands
    it as a bearer token.

    When stopping, new requests get 503; running ones have `grace_s` seconds to end, then their connections
    are closed. Raises ScenarioError for a cost without a profile, and where the port cannot be had.
    """
    with closing(new_timer()) as timer:
        service = _Service(engine.model_name, Device(engine, timer, speed), api_key)
        # Cancelling the handler of a lost connection is how a sequence learns that its client is gone.
        runner = web.AppRunner(
            service.app(), handler_cancellation=True, access_log=None, shutdown_timeout=0.25, logger=_log
        )
        await runner.setup()
        try:
            await _listen(runner, host, port)
            async with asyncio.TaskGroup() as group:
                driving = group.create_task(service.device.run())
                ready(runner.addresses[0][1])
                await stopping.wait()
                service.is_stopping = True
                await service.device.drain(grace_s)
                driving.cancel()
        finally:
            await runner.cleanup()


async def _listen(runner: web.AppRunner, host: str, port: int) -> None:
    try:
        await web.TCPSite(runner, host, port, backlog=4096).start()
    except (OSError, UnicodeError) as problem:  # UnicodeError: a name that DNS could not spell
        why = _NO_PORT.get(getattr(problem, "errno", socket.EAI_NONAME), "port {port} of {host!r}: {problem}")
        raise ScenarioError(why.format(host=host, port=port, problem=problem)) from None


def _is_ours(logged: logging.LogRecord) -> bool:
    """Malformed HTTP is answered with a 400 and is its client's fault: no traceback for it."""
    error = logged.exc_info[1] if logged.exc_info else None
    return not isinstance(error, HttpProcessingError | web.RequestPayloadError)


_log.addFilter(_is_ours)


class _Service:
    def __init__(self, model: str, device: Device, api_key: str | None) -> None:
        self.device = device
        self.is_stopping = False
        self._model = model
        self._bearer = None if api_key is None else f"Bearer {api_key}".encode()
        self._created = int(time.time())
        self._sequence_ids = count()
        self._stamps: dict[str, Stamps] = {}

    def app(self) -> web.Application:
        app = web.Application(middlewares=[_refusals], client_max_size=_MAX_BODY_BYTES)
        app.on_response_prepare.append(_echo_id)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_post("/v1/completions", self._completion)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/health", self._health)
        app.router.add_get("/version", self._version)
        app.router.add_get("/debug/requests", self._debug)
        return app

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        return await self._complete(request, read_chat)

    async def _completion(self, request: web.Request) -> web.StreamResponse:
        return await self._complete(request, read_completion)

    async def _complete(self, request: web.Request, read: Callable[[bytes], Ask]) -> web.StreamResponse:
        self._check_key(request)
        ask = read(await request.read())
        if ask.model not in (None, self._model):
            message = f"there is no model {ask.model!r}, only {self._model!r}"
            raise Refusal(404, message, code="model_not_found", param="model")
        answer_id = uuid4().hex
        answer = Answer(ask, self._model, answer_id, created=int(time.time()))
        sequence = Sequence(next(self._sequence_ids), ask.prompt_tokens, ask.output_tokens)
        call = Call(sequence, _writer(request, answer) if ask.stream else _unheard)
        self._submit(call, _given_id(request) or answer_id)
        try:
            return await (_stream(request, call) if ask.stream else _whole(answer, call))
        finally:
            self.device.cancel(call)

    def _submit(self, call: Call, request_id: str) -> None:
        if self.is_stopping:
            raise Refusal(503, "the engine is shutting down")
        if not self.device.submit(call):
            raise Refusal(429, "the queue is full", code="rate_limit_exceeded")
        self._stamps[request_id] = call.stamps
        if len(self._stamps) > _KEPT_REQUESTS:
            del self._stamps[next(iter(self._stamps))]

    def _check_key(self, request: web.Request) -> None:
        given = request.headers.get("Authorization", "").encode(errors="surrogateescape")
        if self._bearer is not None and not hmac.compare_digest(given, self._bearer):
            raise Refusal(401, "wrong or missing API key", code="invalid_api_key")

    async def _models(self, request: web.Request) -> web.Response:
        self._check_key(request)
        model = {"id": self._model, "object": "model", "created": self._created, "owned_by": "loadgen"}
        return _json(msgspec.json.encode({"object": "list", "data": [model]}))

    async def _health(self, _request: web.Request) -> web.Response:
        if self.is_stopping:
            raise Refusal(503, "the engine is shutting down")
        return _json(b"{}")

    async def _version(self, _request: web.Request) -> web.Response:
        return _json(msgspec.json.encode({"version": __version__}))

    async def _debug(self, _request: web.Request) -> web.Response:
        seen = {"clock": "perf_counter_ns", "steps": self.device.punctuality(), "requests": self._stamps}
        return _json(msgspec.json.encode(seen))


def _writer(request: web.Request, answer: Answer) -> Callable[[int], None]:
    """Write a token's events as they come, one write each, past aiohttp's coroutines: waking a task and
    waiting for the buffer to drain would cost more than the token. A client that does not read costs its
    answer's bytes.
    """
    transport = request.transport
    is_chunked = request.version >= HttpVersion11

    def write(number: int) -> None:
        if transport is None or transport.is_closing():
            return
        for event in answer.events(number):
            transport.write(b"%x\r\n%b\r\n" % (len(event), event) if is_chunked else event)

    return write


def _unheard(_number: int) -> None:
    """A whole answer's tokens go nowhere one by one."""


async def _stream(request: web.Request, call: Call) -> web.StreamResponse:
    headers = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}
    response = web.StreamResponse(headers=headers)
    # Writes the headers and waits for nothing: no token can come before them. A client that is gone already
    # is aiohttp's to notice, as it is at the end of the answer: it cancels us in the loop's next turn.
    with suppress(ConnectionError):
        await response.prepare(request)
    await call.over.wait()
    return response  # whose end aiohttp writes


async def _whole(answer: Answer, call: Call) -> web.Response:
    await call.over.wait()
    return _json(answer.whole())


def _json(body: bytes, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/json")


def _given_id(request: web.Request) -> str | None:
    """The client's X-Request-ID, where it is one: up to 256 printable ASCII characters."""
    given = request.headers.get(_ID, "")
    return given if 0 < len(given) <= 256 and given.isascii() and given.isprintable() else None


async def _echo_id(request: web.Request, response: web.StreamResponse) -> None:
    if given := _given_id(request):
        response.headers[_ID] = given


@web.middleware
async def _refusals(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every error is told in OpenAI's words, aiohttp's own (no such path, body too large) too."""
    try:
        return await handler(request)
    except Refusal as refusal:
        response = _json(refusal.body(), refusal.status)
        if refusal.status == 429:
            response.headers["Retry-After"] = str(RETRY_AFTER_S)
        return response
    except web.RequestPayloadError as error:
        return _json(Refusal(400, str(error)).body(), 400)
    except web.HTTPException as error:
        error.body = Refusal(error.status, error.reason).body()
        error.content_type = "application/json"
        raise
