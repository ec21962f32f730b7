"""One row -> one record: connect or take a kept connection, send, follow the answer to its end or a limit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from loadgen.client.answer import Answer
from loadgen.client.connection import Connection
from loadgen.client.pool import Pool
from loadgen.client.request import Ask
from loadgen.client.secrets import Secrets
from loadgen.plan import Phase
from loadgen.records import Outcome, PhaseName, RequestRecord
from loadgen.scenario import Timeouts
from loadgen.units import show_duration

PHASES: dict[Phase, PhaseName] = {Phase.WARMUP: "warmup", Phase.MEASURED: "measured", Phase.TAIL: "tail"}


_Limit = tuple[int, Outcome, str, float]  # when, what it means, in words with a place for the length


class Sender:
    """What all calls of a run share. `secrets` never reach a record; instants count from `origin_ns`."""

    def __init__(
        self,
        pool: Pool,
        timeouts: Timeouts,
        *,
        origin_ns: int,
        model: str | None,
        secrets: Secrets,
        now_ns: Callable[[], int],
    ) -> None:
        self.pool = pool
        self.timeouts = timeouts
        self.origin_ns = origin_ns
        self.model = model
        self.now_ns = now_ns
        self.secrets = secrets


class Call:
    """One request on its way. `run` gives its record; no trouble of the request passes as an exception."""

    def __init__(self, sender: Sender, ask: Ask) -> None:
        self.ask = ask
        self.answer = Answer(sender.origin_ns, self._settled, sender.secrets)
        self._sender = sender
        self._now_ns = sender.now_ns
        self._task: asyncio.Task[object] | None = None
        self._waiting: asyncio.Future[None] | None = None
        self._limit: asyncio.TimerHandle | None = None
        self._connection: Connection | None = None
        self._connecting_ns = 0
        self._asked_ns = 0
        self.slot_ns: int | None = None
        self._reused: bool | None = None
        self._attempts = 0
        self.started_ns: int | None = None

    async def run(self) -> RequestRecord:
        if self.answer.outcome is None:  # else cut before it began
            self._task = asyncio.current_task()
            self.started_ns = self._now_ns()
            try:
                await self._talk()
            except OSError as error:
                self.answer.cut(Outcome.CONNECT_ERROR, str(error) or type(error).__name__, self._now_ns())
            except asyncio.CancelledError:
                if self.answer.outcome is None:  # it was not `cut` that cancelled
                    raise
            finally:
                if self._limit is not None:
                    self._limit.cancel()
                self.answer.settled = _nobody_listens  # or the two would keep each other alive
        return self.record()

    def cut(self, outcome: Outcome, why: str | None = None) -> None:
        """Give up now, unless the answer is settled."""
        if self.answer.outcome is not None:
            return
        self.answer.cut(outcome, why, self._now_ns())
        if self._connection is not None:
            self._connection.hang_up(self.answer)
        elif self._task is not None:  # still connecting
            self._task.cancel()

    async def _talk(self) -> None:
        self._attempts = 1
        self._connecting_ns = self._now_ns()
        self._check_limits()
        connection = self._sender.pool.take()
        self._reused = connection is not None
        await self._ask(connection or await self._sender.pool.connect())
        if self.answer.outcome is None:  # a kept connection had died: once more, on a new one
            self._attempts, self._reused, self._connection = 2, False, None
            self._connecting_ns = self._now_ns()
            await self._ask(await self._sender.pool.connect())

    async def _ask(self, connection: Connection) -> None:
        self._connection = connection
        self._waiting = asyncio.get_running_loop().create_future()
        self._asked_ns = self._now_ns()
        connection.ask(self.ask.request, self.answer)
        await self._waiting

    def _settled(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    # --- limits ---------------------------------------------------------------------------------------------

    def _check_limits(self) -> None:
        """One timer a request: it looks up the limit in force, and comes back in time for any to follow."""
        now_ns = self._now_ns()
        limits = self._sender.timeouts
        at_ns, outcome, why, limit_s = self._next_limit()
        if now_ns >= at_ns:
            self.cut(outcome, why.format(show_duration(limit_s)))
            return
        soonest_s = min((at_ns - now_ns) / 1e9, limits.first_token_s, limits.idle_s)
        self._limit = asyncio.get_running_loop().call_later(soonest_s + 0.001, self._check_limits)

    def _next_limit(self) -> _Limit:
        limits, answer = self._sender.timeouts, self.answer
        assert self.started_ns is not None
        found = [_limit(self.started_ns, limits.total_s, Outcome.TIMEOUT_TOTAL, "not over within {}")]
        if self._connection is None:
            why = "no connection within {}"
            found += [_limit(self._connecting_ns, limits.connect_s, Outcome.TIMEOUT_CONNECT, why)]
        elif answer.stream.last_token_us is not None:
            last_ns = self._sender.origin_ns + answer.stream.last_token_us * 1000
            found += [_limit(last_ns, limits.idle_s, Outcome.TIMEOUT_IDLE, "no further token within {}")]
        else:
            asked_ns = answer.sent_ns or self._asked_ns  # a server may not even read what we ask
            why = "no token within {} of sending"
            found += [_limit(asked_ns, limits.first_token_s, Outcome.TIMEOUT_FIRST_TOKEN, why)]
        return min(found)

    # --- record ---------------------------------------------------------------------------------------------

    def record(self) -> RequestRecord:
        """What happened, once the answer is settled."""
        ask, answer, stream = self.ask, self.answer, self.answer.stream
        assert answer.outcome is not None
        record = RequestRecord(
            index=ask.index,
            request_id=ask.id,
            phase=PHASES[ask.phase],
            model=self._sender.model,
            due_s=((ask.due_ns + 500) // 1000) / 1e6,
            slot_s=self._since_origin_s(self.slot_ns),
            started_s=self._since_origin_s(self.started_ns),
            reused=self._reused,
            attempts=self._attempts,
            sent_s=self._since_origin_s(answer.sent_ns),
            headers_s=_seconds(answer.headers_us),
            first_event_s=_seconds(stream.first_event_us),
            first_choice_s=_seconds(stream.first_choice_us),
            first_token_s=_seconds(stream.first_token_us),
            first_visible_s=_seconds(stream.first_visible_us),
            last_token_s=_seconds(stream.last_token_us),
            last_choice_s=_seconds(stream.last_choice_us),
            ended_s=_seconds(answer.ended_us),
            outcome=answer.outcome,
            status=answer.status,
            error=answer.error,
            retry_after_s=answer.retry_after_s,
            asked_prompt_tokens=ask.prompt_tokens,
            asked_output_tokens=ask.output_tokens,
            finish_reason=answer.finish_reason,
            gaps_us=stream.gaps_us.tolist(),
            event_tokens=stream.event_tokens(),
            warnings=answer.warnings(),
        )
        if stream.events or stream.usage or answer.outcome is Outcome.OK:
            record.output_tokens, record.tokens_from = stream.output_tokens()
        self._add_connection(record)
        self._add_usage(record)
        return record

    def _add_connection(self, record: RequestRecord) -> None:
        if self._connection is not None and not self._reused:
            record.connect_s = _seconds(self._connection.connect_ns // 1000)
            if self._connection.tls_ns is not None:
                record.tls_s = _seconds(self._connection.tls_ns // 1000)

    def _add_usage(self, record: RequestRecord) -> None:
        if usage := self.answer.stream.usage:
            record.prompt_tokens = usage.prompt_tokens
            if usage.prompt_tokens_details:
                record.cached_tokens = usage.prompt_tokens_details.cached_tokens
            if usage.completion_tokens_details:
                record.reasoning_tokens = usage.completion_tokens_details.reasoning_tokens

    def _since_origin_s(self, at_ns: int | None) -> float | None:
        return None if at_ns is None else self.answer.us(at_ns) / 1e6


def _nobody_listens() -> None: ...


def _seconds(us: int | None) -> float | None:
    return None if us is None else us / 1e6


def _limit(from_ns: int, limit_s: float, outcome: Outcome, why: str) -> _Limit:
    return from_ns + round(limit_s * 1e9), outcome, why, limit_s
