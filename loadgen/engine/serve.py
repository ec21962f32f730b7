"""The mini-engine as an OpenAI-compatible streaming server on the wall clock."""

from __future__ import annotations

import asyncio
import csv
import hmac
import io
import logging
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from itertools import count
from typing import TYPE_CHECKING
from uuid import uuid4

import msgspec
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler

from loadgen import __version__
from loadgen.engine import door
from loadgen.engine.answer import Answer
from loadgen.engine.batching import RETRY_AFTER_S
from loadgen.engine.chance import uniform
from loadgen.engine.check import check
from loadgen.engine.choice import Choice, choices, know_prefix
from loadgen.engine.device import Call, Device, Stamps, Took
from loadgen.engine.dialect import Ask, Refusal, read_chat, read_completion, read_tokenize
from loadgen.engine.metrics import exposition
from loadgen.engine.model.shape import bounded
from loadgen.engine.reply import Reply
from loadgen.engine.tokens import token_ids
from loadgen.knobs import Engine, Faults
from loadgen.timer import calm_garbage_collector, new_timer

if TYPE_CHECKING:
    from loadgen.engine.model.compute import Model

_KEPT_REQUESTS = 100_000
_ID = "X-Request-ID"
_WITHOUT_KEY = {"/health", "/ping", "/version", "/metrics"}  # as vLLM: whoever looks after it has no key

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

    POST /v1/chat/completions and /v1/completions, streamed or whole, and /tokenize; GET /v1/models, /health,
    /ping, /version, /metrics (Prometheus, under vLLM's names), and /debug/requests (the engine's own stamps
    by X-Request-ID, and how late its steps ended; with ?format=csv, or at /debug/requests.csv, the stamps as
    CSV), and /debug/steps.csv (what each step computed and took, for `loadgen engines fit`).

    A `model` computes its answers, greedily, and ends them by itself unless `ignore_eos` is given; its steps
    take as long as they take, whatever the `speed`, its prompts have the tokens that its vocabulary
    gives them, and `stop` is refused. Without one, what follows holds.

    An answer has exactly `max_tokens` tokens (default: chat 128, completions 16), unless the engine has a law
    for ends of sequence and `ignore_eos` is not given, or a `stop` string appears in its text, which is
    " 000 001 002 ...". A token of prompt is four bytes of UTF-8. A lower `priority` is more urgent, where the
    engine's policy heeds it. A full queue answers 429 with Retry-After; whoever is dropped from it after its
    stream has begun gets an error as the first event. A client that hangs up leaves the queue or its slot at
    once. One that does not read costs its answer's bytes. With `api_key`, all but /health, /ping,
    /version and /metrics demand it as a bearer token. The engine's `faults` are in seconds of the wall
    clock, whatever the speed. How many come in, and how long they may take to say what they want, is bounded:
    see `loadgen.engine.door`.

    When stopping, new requests get 503; running ones have `grace_s` seconds to end, then their connections
    are closed. Raises ScenarioError for a cost without a profile, and where the port cannot be had.
    """
    with closing(new_timer()) as timer, calm_garbage_collector():
        check(engine)
        engine = bounded(engine)
        model = _loaded(engine)
        service = _Service(engine, Device(engine, timer, speed, model), api_key, model)
        # Cancelling the handler of a lost connection is how a sequence learns that its client is gone.
        runner = web.AppRunner(
            service.app(),
            handler_cancellation=True,
            access_log=None,
            shutdown_timeout=0.25,
            keepalive_timeout=door.IDLE_S,
            logger=_log,
        )
        await runner.setup()
        assert runner.server is not None
        try:
            with closing(await door.opened(runner.server, host, port)) as listening:
                async with asyncio.TaskGroup() as group:
                    driving = group.create_task(service.device.run())
                    ready(listening.sockets[0].getsockname()[1])
                    await stopping.wait()
                    service.is_stopping = True
                    await service.device.drain(grace_s)
                    driving.cancel()
        finally:
            await runner.cleanup()
            if model is not None:
                model.close()


def _loaded(engine: Engine) -> Model | None:
    if engine.model is None:
        return None
    from loadgen.engine.model.compute import Model  # which imports torch

    return Model(engine)


def _is_ours(logged: logging.LogRecord) -> bool:
    """Malformed HTTP is answered with a 400 and is its client's fault, as is to hang up: no traceback."""
    error = logged.exc_info[1] if logged.exc_info else None
    return not isinstance(error, HttpProcessingError | web.RequestPayloadError | ConnectionError)


_log.addFilter(_is_ours)


class _Service:
    def __init__(self, engine: Engine, device: Device, api_key: str | None, decoder: Model | None) -> None:
        self.device = device
        self.is_stopping = False
        self._engine = engine
        self._model = engine.model_name
        self._decoder = decoder
        self._api_key = None if api_key is None else api_key.encode()
        self._created = int(time.time())
        self._next_id = 0  # of a sequence
        self._chances = count()
        self._stamps: dict[str, Stamps] = {}

    def app(self) -> web.Application:
        app = web.Application(middlewares=[_refusals, self._locked], client_max_size=door.MAX_BODY_BYTES)
        app.on_response_prepare.append(_echo_id)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_post("/v1/completions", self._completion)
        app.router.add_post("/tokenize", self._tokenize)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/health", self._health)
        app.router.add_route("*", "/ping", self._health)
        app.router.add_get("/version", self._version)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/debug/requests", self._debug)
        app.router.add_get("/debug/requests.csv", self._debug_csv)
        app.router.add_get("/debug/steps.csv", self._debug_steps)
        return app

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        return await self._complete(request, read_chat)

    async def _completion(self, request: web.Request) -> web.StreamResponse:
        return await self._complete(request, read_completion)

    async def _complete(self, request: web.Request, read: Callable[[bytes], Ask]) -> web.StreamResponse:
        if self._engine.faults is not None:
            await self._go_wrong(self._engine.faults)
        ask = read(await door.body_of(request))
        self._check_model(ask.model)
        vocabulary = None
        if self._decoder is not None:
            ask, vocabulary = self._decoder.read(ask), self._decoder.vocabulary
        chosen = choices(ask, self._engine, self._next_id, vocabulary)
        self._next_id += ask.n
        answer_id = uuid4().hex
        answer = self._answer(ask, chosen, answer_id)
        reply = Reply(request, answer, self._engine.faults, is_streamed=ask.stream)
        call = Call(chosen, reply.emit)
        self._submit(call, ask, _given_id(request) or answer_id)
        try:
            return await reply.response(call)
        finally:
            self.device.cancel(call)

    async def _go_wrong(self, faults: Faults) -> None:
        """Before anything is answered."""
        if faults.slow_headers_s:
            await asyncio.sleep(faults.slow_headers_s)
        if uniform(self._engine.seed, "error_share", next(self._chances)) < faults.error_share:
            raise Refusal(500, "the engine was told to fail this request", code="internal_error")

    def _answer(self, ask: Ask, chosen: list[Choice], answer_id: str) -> Answer:
        kv = self._engine.kv
        return Answer(
            ask,
            chosen,
            model=self._model,
            answer_id=answer_id,
            created=int(time.time()),
            tokens_per_event=self._engine.tokens_per_chunk,
            tells_cached=kv is not None and kv.prefix_cache,
        )

    def _submit(self, call: Call, ask: Ask, request_id: str) -> None:
        if self.is_stopping:
            raise Refusal(503, "the engine is shutting down")
        if (why := self.device.refusal(call)) is not None:
            param = "messages" if ask.is_chat else "prompt"
            raise Refusal(400, why, code="context_length_exceeded", param=param)
        know_prefix(call.choices, ask, self._engine)
        if not self.device.submit(call):
            raise Refusal(429, "the queue is full", code="rate_limit_exceeded")
        self._stamps[request_id] = call.stamps
        if len(self._stamps) > _KEPT_REQUESTS:
            del self._stamps[next(iter(self._stamps))]

    @web.middleware
    async def _locked(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        key = given.encode(errors="surrogateescape") if scheme.lower() == "bearer" else b""
        is_open = self._api_key is None or request.path in _WITHOUT_KEY
        if not is_open and not hmac.compare_digest(key, self._api_key or b""):
            raise Refusal(401, "wrong or missing API key", code="invalid_api_key")
        return await handler(request)

    def _check_model(self, asked: str | None) -> None:
        if asked not in (None, self._model):
            message = f"there is no model {asked!r}, only {self._model!r}"
            raise Refusal(404, message, code="model_not_found", param="model")

    async def _tokenize(self, request: web.Request) -> web.Response:
        model, text = read_tokenize(await door.body_of(request))
        self._check_model(model)
        tokens = token_ids(text) if self._decoder is None else self._decoder.vocabulary.ids(text)
        found = {"count": len(tokens), "max_model_len": self._engine.max_length, "tokens": tokens}
        return _json(msgspec.json.encode(found))

    async def _models(self, _request: web.Request) -> web.Response:
        model = {"id": self._model, "object": "model", "created": self._created, "owned_by": "loadgen"}
        data = [{**model, "max_model_len": self._engine.max_length}]
        return _json(msgspec.json.encode({"object": "list", "data": data}))

    async def _health(self, _request: web.Request) -> web.Response:
        if self.is_stopping:
            raise Refusal(503, "the engine is shutting down")
        return _json(b"{}")

    async def _version(self, _request: web.Request) -> web.Response:
        return _json(msgspec.json.encode({"version": __version__}))

    async def _metrics(self, _request: web.Request) -> web.Response:
        body, content_type = exposition(self.device.metrics, self.device.levels(), self._model)
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def _debug(self, request: web.Request) -> web.Response:
        if request.query.get("format") == "csv" or "text/csv" in request.headers.get("Accept", ""):
            return await self._debug_csv(request)
        seen = {"clock": "perf_counter_ns", "steps": self.device.punctuality(), "requests": self._stamps}
        return _json(msgspec.json.encode(seen))

    async def _debug_csv(self, _request: web.Request) -> web.Response:
        stamps = [(name, *msgspec.structs.astuple(own)) for name, own in self._stamps.items()]
        return _table(("request_id", *Stamps.__struct_fields__), stamps)

    async def _debug_steps(self, _request: web.Request) -> web.Response:
        return _table(Took._fields, self.device.steps)


def _json(body: bytes, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/json")


def _table(columns: Iterable[str], rows: Iterable[Iterable[object]]) -> web.Response:
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(columns)
    table.writerows(rows)
    return web.Response(text=text.getvalue(), content_type="text/csv")


def _given_id(request: web.Request) -> str | None:
    """The client's X-Request-ID, where it is one: up to 256 printable ASCII characters."""
    given = request.headers.get(_ID, "")
    return given if 0 < len(given) <= 256 and given.isascii() and given.isprintable() else None


async def _echo_id(request: web.Request, response: web.StreamResponse) -> None:
    if given := _given_id(request):
        response.headers[_ID] = given


@web.middleware
async def _refusals(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Errors are told in OpenAI's words, aiohttp's own (no such path, body too large) too; all but those of
    HTTP that could not be read.
    """
    try:
        return await handler(request)
    except Refusal as refusal:
        response = _json(refusal.body(), refusal.status)
        if refusal.status in (429, 503):
            response.headers["Retry-After"] = str(RETRY_AFTER_S)
        return response
    except web.RequestPayloadError as error:
        return _json(Refusal(400, str(error)).body(), 400)
    except web.HTTPException as error:
        error.body = Refusal(error.status, error.reason).body()
        error.content_type = "application/json"
        raise
