"""One row -> one record: connect or take a kept connection, send, follow the answer to its end or a limit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from loadgen.client import retry
from loadgen.client.answer import Answer
from loadgen.client.connection import Connection
from loadgen.client.pool import Pool
from loadgen.client.request import Ask
from loadgen.client.secrets import Secrets
from loadgen.client.servers import Servers
from loadgen.plan import NONE, Phase
from loadgen.records import Outcome, PhaseName, RequestRecord, Try
from loadgen.scenario import Timeouts
from loadgen.units import show_duration

PHASES: dict[int, PhaseName] = {Phase.WARMUP: "warmup", Phase.MEASURED: "measured", Phase.TAIL: "tail"}
TICK_S = 0.001  # loops round the time of a timer to this, up or down

_Limit = tuple[int, Outcome, str, float]  # when, what it means, in words with a place for the length


class Sender:
    """What all calls of a run share. `secrets` never reach a record; instants count from `origin_ns`."""

    def __init__(
        self,
        servers: Servers,
        timeouts: Timeouts,
        *,
        origin_ns: int,
        secrets: Secrets,
        now_ns: Callable[[], int],
    ) -> None:
        self.servers = servers
        self.timeouts = timeouts
        self.origin_ns = origin_ns
        self.now_ns = now_ns
        self.secrets = secrets
        self.loop = asyncio.get_running_loop()


class Call:
    """One request on its way. `over` is called once: when its record is whole.

    Where the scenario says `retry`, it may take several attempts, each with an `answer` of its own; the last
    one's is the record's. On a kept connection the request leaves before `start` returns.
    """

    def __init__(self, sender: Sender, ask: Ask, over: Callable[[Call], None]) -> None:
        self.ask = ask
        self.slot_ns: int | None = None
        self.started_ns: int | None = None
        self.hangs_up_ns = _hangs_up_ns(sender, ask)
        self._sender = sender
        self._over: Callable[[Call], None] | None = over
        self._now_ns = sender.now_ns
        self._pool: Pool | None = None  # the server's, for all attempts: no other stands in for it
        self._connecting: asyncio.Task[Connection] | None = None
        self._limit: asyncio.TimerHandle | None = None  # of the attempt in progress, or of the pause after it
        self._attempts = 0
        self._retried: list[Try] = []
        self._no_more = False
        self._begin()

    def _begin(self) -> None:
        """Nothing has happened yet in this attempt."""
        sender = self._sender
        self.answer = Answer(
            sender.origin_ns,
            self._settled,
            sender.secrets,
            dialect=self.ask.form.dialect,
            keeps_text=self.ask.said is not None,
            due_us=self.ask.row.due_ns // 1000,
        )
        self._connection: Connection | None = None
        self._began_ns = self._connecting_ns = self._asked_ns = 0
        self._reused: bool | None = None
        self._is_pausing = False

    def start(self) -> None:
        self.started_ns = self._now_ns()
        self._pool = pool = self._sender.servers.pick(self.ask.row)
        pool.asked += 1
        pool.in_flight += 1
        self._attempt(self.started_ns)

    def never(self, outcome: Outcome, why: str) -> None:
        """It is not to start; nobody is told."""
        self.answer.settled = _nobody_listens
        self.answer.cut(outcome, why, self._now_ns())

    def cut(self, outcome: Outcome, why: str | None = None) -> None:
        """Give up now, unless the answer is settled; then it stands, and is the last."""
        self.no_more()
        self._give_up(outcome, why)

    def no_more(self) -> None:
        """Whatever comes of this attempt, none follows."""
        self._no_more = True
        if self._is_pausing:
            self._end()

    def _give_up(self, outcome: Outcome, why: str | None) -> None:
        if self.answer.outcome is not None:
            return
        self.answer.cut(outcome, why, self._now_ns())
        if self._connection is not None:
            self._connection.hang_up(self.answer)
        elif self._connecting is not None:
            self._connecting.cancel()

    # --- one attempt ----------------------------------------------------------------------------------------

    def _attempt(self, now_ns: int) -> None:
        self._began_ns = self._connecting_ns = now_ns
        self._check_limits()
        if self.answer.outcome is not None:  # late as we are, the user's patience is over
            return
        self._attempts += 1
        kept = self._server.take()
        self._reused = kept is not None
        if kept is not None:
            self._ask(kept)
        else:
            self._connect()

    @property
    def _server(self) -> Pool:
        assert self._pool is not None
        return self._pool

    def _connect(self) -> None:
        self._connecting = self._sender.loop.create_task(self._server.connect())
        self._connecting.add_done_callback(self._connected)

    def _connected(self, connecting: asyncio.Task[Connection]) -> None:
        self._connecting = None
        problem = None if connecting.cancelled() else connecting.exception()
        if problem is not None and not isinstance(problem, OSError):
            raise problem
        if self.answer.outcome is not None:  # cut meanwhile
            if problem is None and not connecting.cancelled():
                connecting.result().abort()
            self._next()
        elif problem is not None:
            why = str(problem) or type(problem).__name__
            self.answer.cut(Outcome.CONNECT_ERROR, why, self._now_ns())
        else:
            self._ask(connecting.result())

    def _ask(self, connection: Connection) -> None:
        self._connection = connection
        self._asked_ns = self._now_ns()
        connection.ask(self.ask.form.heads[self._server.place] + self.ask.request, self.answer)

    def _settled(self) -> None:
        """Called from the midst of a read: what follows waits until that is over."""
        self._sender.loop.call_soon(self._next)

    def _next(self) -> None:
        """The attempt is over, or a kept connection had died: once more, then, on a new one."""
        try:
            self._go_on()
        except Exception:
            self._end()  # the row keeps its record, whatever fault of ours this is
            raise

    def _go_on(self) -> None:
        if self._over is None or (self._connecting is not None and not self._connecting.done()):
            return  # it is over, or about to be
        if self.answer.outcome is None:
            self._attempts += 1
            self._reused, self._connection = False, None
            self._connecting_ns = self._now_ns()
            self._connect()
            return
        self._cancel_limit()
        again_ns = self._again_ns()
        if again_ns is None:
            self._end()
        else:
            self._pause(again_ns)

    def _end(self) -> None:
        self._cancel_limit()
        self.answer.settled = _nobody_listens  # or the two would keep each other alive
        over, self._over = self._over, None
        if over is not None:
            if self._pool is not None:
                self._pool.in_flight -= 1
            over(self)

    # --- further attempts -----------------------------------------------------------------------------------

    def _again_ns(self) -> int | None:
        """When to try once more; None: the answer stands."""
        policy, tries = self.ask.form.retry, len(self._retried) + 1
        if policy is None or self._no_more or self.started_ns is None:
            return None
        wait_s = retry.wait_s(policy, tries, self.answer)
        if wait_s is None or wait_s > self._sender.timeouts.total_s:
            return None
        again_ns = self._now_ns() + round(wait_s * 1e9)
        return again_ns if again_ns < self._total_ns else None

    def _pause(self, until_ns: int) -> None:
        """Wait until then, the user's patience permitting, or until no further attempt is wanted."""
        until_ns = min(until_ns, self.hangs_up_ns or until_ns)
        self._is_pausing = True
        wait_s = (until_ns - self._now_ns()) / 1e9 + TICK_S
        self._limit = self._sender.loop.call_later(wait_s, self._again)

    def _again(self) -> None:
        self._retried.append(self._tried(self._began_ns))
        self._begin()
        self._attempt(self._now_ns())

    def _tried(self, began_ns: int) -> Try:
        answer = self.answer
        assert answer.outcome is not None
        return Try(
            started_s=self._since_origin_s(began_ns),
            ended_s=_seconds(answer.ended_us),
            outcome=answer.outcome,
            status=answer.status,
            error=answer.error,
            retry_after_s=answer.retry_after_s,
        )

    # --- limits ---------------------------------------------------------------------------------------------

    @property
    def _total_ns(self) -> int:
        assert self.started_ns is not None
        return self.started_ns + round(self._sender.timeouts.total_s * 1e9)

    def _check_limits(self) -> None:
        """One timer an attempt: it looks up the limit in force, and comes back in time for any to follow."""
        now_ns = self._now_ns()
        limits = self._sender.timeouts
        at_ns, outcome, why, limit_s = self._next_limit()
        if now_ns >= at_ns:
            self._give_up(outcome, why.format(show_duration(limit_s)))
            return
        soonest_s = min((at_ns - now_ns) / 1e9, limits.connect_s, limits.first_token_s, limits.idle_s)
        self._limit = self._sender.loop.call_later(soonest_s + TICK_S, self._check_limits)

    def _cancel_limit(self) -> None:
        if self._limit is not None:
            self._limit.cancel()

    def _next_limit(self) -> _Limit:
        limits, answer = self._sender.timeouts, self.answer
        found = [(self._total_ns, Outcome.TIMEOUT_TOTAL, "not over within {}", limits.total_s)]
        if self.hangs_up_ns is not None:
            why, patience_s = "not complete within {} of due (patience)", self.ask.form.patience_s or 0.0
            found += [(self.hangs_up_ns, Outcome.ABANDONED, why, patience_s)]
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
        row = ask.row
        assert answer.outcome is not None
        record = RequestRecord(
            index=row.index,
            request_id=ask.id,
            phase=PHASES[row.phase],
            class_=ask.form.name,
            session=None if row.session == NONE else str(row.session),
            turn=row.turn or None,
            target=self._target(),
            model=ask.form.shown_model,
            due_s=((row.due_ns + 500) // 1000) / 1e6,
            slot_s=self._since_origin_s(self.slot_ns),
            started_s=self._since_origin_s(self.started_ns),
            reused=self._reused,
            attempts=self._attempts,
            retried=self._retried,
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
            asked_prompt_tokens=row.prompt_tokens,
            asked_output_tokens=row.output_tokens,
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

    def _target(self) -> str | None:
        """Which of several servers: the one that was reached, else the one that was meant."""
        if self._connection is not None:
            return self._connection.server
        return None if self._pool is None else self._pool.name

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
            else:
                record.reasoning_tokens = usage.reasoning_tokens or None  # 0 also where it is not counted

    def _since_origin_s(self, at_ns: int | None) -> float | None:
        return None if at_ns is None else self.answer.us(at_ns) / 1e6


def _hangs_up_ns(sender: Sender, ask: Ask) -> int | None:
    """When the user's patience is over; None: never."""
    patience_s = ask.form.patience_s
    return None if patience_s is None else sender.origin_ns + ask.row.due_ns + round(patience_s * 1e9)


def _nobody_listens() -> None: ...


def _seconds(us: int | None) -> float | None:
    return None if us is None else us / 1e6


def _limit(from_ns: int, limit_s: float, outcome: Outcome, why: str) -> _Limit:
    return from_ns + round(limit_s * 1e9), outcome, why, limit_s
