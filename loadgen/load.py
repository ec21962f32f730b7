"""The Load as asked: which requests fall due when, how long they are, what they say, how they are sent."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, model_validator

from loadgen import faults
from loadgen.fields import Count, CountOrZero, Duration, DurationOrZero, Name, Priority, RowId, Strict, Warmup
from loadgen.laws import Arrivals, Burst, Closed, Fixed, Replay, Stages
from loadgen.laws.lengths import TraceLength, is_count
from loadgen.manners import AnswerLengths, AnswerTokens, Manners, PromptLengths, RequestClass
from loadgen.prompts import Prompts, sendable
from loadgen.trace_source import TraceSource, has_instants
from loadgen.units import quoted


def _text_or_tokens(value: Any) -> Any:
    if isinstance(value, str) and value:
        return value
    if is_count(value):
        return sendable(value)
    raise ValueError(f"must be a text, or a whole number of tokens, not {quoted(value)}")


class Row(Strict):
    """One request written out: when it is due, its prompt (text or a number of tokens), its output length."""

    due_s: DurationOrZero = Field(default=0.0, alias="due", description="when to send it, from the start")
    prompt: Annotated[str | Count, BeforeValidator(_text_or_tokens)] = Field(
        description="a text, or how many tokens of a synthetic one"
    )
    output: AnswerTokens = Field(description="tokens of the answer")
    priority: Priority = Field(default=0, description="sent to the server; lower is more urgent")
    id: RowId | None = Field(default=None, description="a name for it, instead of its number")


class Load(Manners):
    """Which requests fall due when, how long they are, and how they are sent.

    The measured part stops by `num_requests` or `duration`, or by both: by whichever comes first.
    """

    arrivals: Arrivals | None = Field(default=None, description="when requests fall due: a law")
    trace: TraceSource | None = Field(default=None, description="requests from a file")
    prompt_tokens: PromptLengths = Field(default=Fixed(tokens=256), description="tokens of a prompt")
    output_tokens: AnswerLengths = Field(default=Fixed(tokens=128), description="tokens of an answer")
    prompts: Prompts = Field(default=Prompts(), description="what synthetic prompts are made of")
    priority: Priority = Field(default=0, description="sent to the server; lower is more urgent")
    classes: Annotated[dict[Name, RequestClass], Field(max_length=100)] = Field(
        default={}, description="a weighted mixture of kinds of requests, by name"
    )
    requests: Annotated[tuple[Row, ...], Field(strict=False)] | None = Field(
        default=None, description="instead of all laws: the requests themselves"
    )
    num_requests: Count | None = Field(default=None, description="how many are measured")
    num_sessions: Count | None = Field(default=None, description="with sessions: how many are measured")
    duration_s: Duration | None = Field(
        default=None, alias="duration", description="how long is measured, after the warm-up"
    )
    rescale: bool = Field(
        default=False, description="exactly num_requests in duration: no longer the pure process"
    )
    warmup: Warmup = Field(
        default=0.0,
        description="load before the measured part, which counts in no figure; auto: no more load, but what "
        "comes before the run has settled is left out, by MSER-5",
    )
    warmup_requests: CountOrZero = Field(default=0, description="or how many requests of it")
    tail: bool = Field(
        default=True, description="go on with the load until the last measured request has ended"
    )
    ignore_eos: bool = Field(default=True, description="ask the server for exactly the output length")
    max_concurrency: Count | None = Field(
        default=None, description="hold requests back above so many in flight: a partly closed loop"
    )
    max_in_flight: Count | None = Field(
        default=None, description="record requests as `unsent` above so many in flight"
    )

    @model_validator(mode="before")
    @classmethod
    def _from_the_trace(cls, data: Any) -> Any:
        """What a trace gives is taken from it, where nothing else is said."""
        if isinstance(data, dict) and data.get("trace") is not None:
            given: dict[str, Any] = {"prompt_tokens": {"kind": "trace"}, "output_tokens": {"kind": "trace"}}
            if has_instants(data["trace"]):
                given["arrivals"] = {"kind": "trace"}
            return given | data
        return data

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.requests is not None:
            if not self.requests:
                raise ValueError("requests is empty")
            self._nothing_drawn()
            self._no_twins(self.requests)
            return self
        if self.arrivals is None:
            raise ValueError("say when requests arrive: give arrivals, or the rows themselves as requests")
        self._stops(self.arrivals)
        self._has_trace()
        return self

    def _stops(self, arrivals: Arrivals) -> None:
        has_sessions = self.has_sessions
        if self.num_sessions is not None and not has_sessions:
            raise ValueError("num_sessions needs sessions: give num_requests, or the law of sessions")
        if self.num_requests is not None and has_sessions:
            raise ValueError("with sessions the load stops by num_sessions or duration, not by num_requests")
        if has_sessions and self.sends_ids:
            raise ValueError("sessions hold answers, which are text: prompts cannot be token_ids")
        count = self.num_requests or self.num_sessions
        if not (count or self.duration_s or (isinstance(arrivals, Replay | Stages) and arrivals.ends)):
            raise ValueError("give num_requests or duration, or both")
        if self.rescale and not (count and self.duration_s):
            raise ValueError("rescale fits num_requests into duration: give both")
        if self.warmup and self.warmup_requests:
            raise ValueError("give warmup or warmup_requests, not both")
        if isinstance(arrivals, Closed):
            self._fits_users(arrivals.concurrency)
        if isinstance(arrivals, Burst) and arrivals.size is None:
            if count is None:
                raise ValueError("one burst has no duration: give num_requests")
            if self.warmup or self.warmup_requests:
                raise ValueError("one burst has no warm-up: every request is due at once")

    def _fits_users(self, users: int) -> None:
        if self.has_sessions:
            raise ValueError("a closed loop has no sessions: its users go on for ever")
        if self.rescale or (self.num_requests and self.duration_s):
            raise ValueError("a closed loop stops by num_requests or by duration, not by both")
        if self.num_requests and self.warmup_s:
            raise ValueError("a closed loop by count has no warm-up by time: give warmup_requests")
        if self.duration_s and self.warmup_requests:
            raise ValueError("a closed loop by duration has no warm-up by count: give warmup")
        if self.max_in_flight is not None and self.max_in_flight < users:
            raise ValueError("max_in_flight is below concurrency: the client would turn its own users away")

    @property
    def warmup_s(self) -> float:
        """Of the plan: `auto` adds nothing to it."""
        return 0.0 if self.warmup == "auto" else self.warmup

    @property
    def has_sessions(self) -> bool:
        from_trace = self.trace is not None and self.trace.sessions
        return from_trace or any(law is not None for law in self._each("sessions"))

    @property
    def sends_ids(self) -> bool:
        """Whether any prompt is token ids, which only /v1/completions takes."""
        return any(prompts is not None and prompts.kind == "token_ids" for prompts in self._each("prompts"))

    def _has_trace(self) -> None:
        if self.trace is not None and self.trace.sessions and isinstance(self.arrivals, Replay):
            self._keeps_sessions_whole(self.arrivals)
        laws = (*self._each("prompt_tokens"), *self._each("output_tokens"), self.arrivals)
        if self.trace is None and any(law is not None and law.kind == "trace" for law in laws):
            raise ValueError("kind: trace takes its values from load.trace: name a file there")
        turns = [law.turns for law in self._each("sessions") if law is not None]
        if any(isinstance(law, TraceLength) for law in turns):
            raise ValueError("sessions: turns are no length of a trace: null takes them from its sessions")
        if None in turns and not (self.trace is not None and self.trace.sessions):
            raise ValueError("sessions: say how many turns, or take them from load.trace with sessions: true")

    @staticmethod
    def _keeps_sessions_whole(arrivals: Replay) -> None:
        if arrivals.loop or (arrivals.rate_rps is not None and arrivals.scale == "thin"):
            raise ValueError("loop and thinning tear a trace's sessions apart: stretch it, or speed it up")

    def _each(self, name: str) -> list[Any]:
        """What the load and each of its classes say of `name`."""
        return [getattr(self, name), *(getattr(c, name) for c in self.classes.values())]

    def of_class(self, name: str) -> RequestClass:
        """A class with all that it takes from the load filled in."""
        own = self.classes[name]
        given = {key: value for key in Manners.model_fields if (value := getattr(own, key)) not in (None, {})}
        whole = {key: getattr(self, key) for key in Manners.model_fields} | given
        whole["extra_body"] = self.extra_body | own.extra_body
        return own.model_copy(update=whole)

    @property
    def mixture(self) -> dict[str, RequestClass]:
        """All classes with everything filled in; a load without classes is one class without a name."""
        if not self.classes:
            alone = {key: getattr(self, key) for key in Manners.model_fields}
            return {"": RequestClass.model_construct(weight=1.0, **alone)}
        return {name: self.of_class(name) for name in self.classes}

    @staticmethod
    def _no_twins(rows: tuple[Row, ...]) -> None:
        first: dict[str, int] = {}
        for place, row in enumerate(rows):
            if row.id is not None and (before := first.setdefault(row.id, place)) != place:
                said = f"{quoted(row.id)} is already the id of requests.{before}"
                raise faults.InsideError(("requests", place, "id"), said)

    def _nothing_drawn(self) -> None:
        drawn = (
            "arrivals",
            "trace",
            "prompt_tokens",
            "output_tokens",
            "classes",
            "sessions",
            "priority",
            "num_requests",
            "num_sessions",
            "duration_s",
            "rescale",
            "warmup",
            "warmup_requests",
        )
        fields = type(self).model_fields
        given = [fields[name].alias or name for name in drawn if getattr(self, name) != fields[name].default]
        if given:
            raise ValueError(f"requests is the whole plan: {', '.join(given)} cannot stand beside it")
