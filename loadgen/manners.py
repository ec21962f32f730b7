"""How requests are made and sent, as asked, of one class or of all."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from loadgen.fields import Count, Duration, JsonObject, Priority, Strict
from loadgen.laws import LengthLaw, Lengths, Spans
from loadgen.laws.lengths import longest
from loadgen.laws.spans import NO_TIME
from loadgen.prompts import Prompts, sendable
from loadgen.slo import Slos, TtftLimit
from loadgen.units import show_duration

MAX_OUTPUT_TOKENS = 16_000_000  # a simulation keeps eight bytes for each


def _all_sendable(law: LengthLaw) -> LengthLaw:
    sendable(longest(law))
    return law


def _answerable(tokens: int) -> int:
    if tokens > MAX_OUTPUT_TOKENS:
        raise ValueError(f"an answer has at most {MAX_OUTPUT_TOKENS:,} tokens, not {tokens:,}")
    return tokens


def _all_answerable(law: LengthLaw) -> LengthLaw:
    _answerable(longest(law))
    return law


def _at_most_an_hour(seconds: float) -> float:
    if seconds > 3600:
        raise ValueError(f"a deadline is at most 1h, not {show_duration(seconds)}")
    return seconds


Deadline = Annotated[Duration, AfterValidator(_at_most_an_hour)]
AnswerTokens = Annotated[Count, AfterValidator(_answerable)]
PromptLengths = Annotated[Lengths, AfterValidator(_all_sendable)]
AnswerLengths = Annotated[Lengths, AfterValidator(_all_answerable)]


class Goodput(Strict):
    """Per-request limits; a request is good when it meets every one given. Counted from `due`."""

    ttft: TtftLimit | None = Field(
        default=None, description="from due to the first token; may grow with the prompt: 500ms + 0.2ms/token"
    )
    tpot_s: Duration | None = Field(
        default=None, alias="tpot", description="from one token to the next, in the mean of the request"
    )
    e2e_s: Duration | None = Field(default=None, alias="e2e", description="from due to the last token")


class Fluidity(Strict):
    """Deadlines of tokens. A request's fluidity is the share of them that it met.

    The first token's counts from `due`, each later one's from the token before it; what was early is time in
    hand for those that follow, and a miss leaves none. `rule` code: as etalon counts it, a late token misses
    a deadline for each `itl` that it kept one waiting, and is itself not met; so that one stall costs many.
    docs: as etalon describes it, a late token is one miss.

    To hold tokens back and hide one stall gains nothing, as the first deadline is missed by as much. To hide
    several may gain: they become one. A limit of TTFT or E2E beside it tells.
    """

    ttft: TtftLimit = Field(description="the first token's deadline")
    itl_s: Deadline = Field(alias="itl", description="each later token's")
    rule: Literal["code", "docs"] = Field(default="code", description="what a late token costs")


class Sessions(Strict):
    """Conversations: arrivals are of new sessions; a further turn is due `think` after the last answer ended.

    `prompt_tokens` and `output_tokens` are a turn's own; the prompt that is sent holds all turns before it. A
    session ends early where a turn does not end ok: the rest of its turns never fall due, and are counted.
    """

    turns: Lengths | None = Field(
        default=None, description="how many requests a session has: a number or a law; null: as in the trace"
    )
    think: Spans = Field(default=NO_TIME, description="from an answer's end to the next turn")


class Retry(Strict):
    """What a client does when it is rejected, cannot connect, or a gateway cannot (502, 504): it asks again.

    Every attempt is recorded. Latency counts from the first due instant, timeouts.total from the first start,
    and a row is offered once. No attempt is made that timeouts.total would not let begin, nor after a stop:
    the last one's outcome stands then.
    """

    max: Annotated[int, Field(ge=0, le=100)] = Field(description="further attempts at most")
    respect_retry_after: bool = Field(default=True, description="wait as long as the server says")
    backoff_s: Duration = Field(
        default=1.0, alias="backoff", description="else so long, doubled for each further attempt"
    )


class Manners(Strict):
    """How a request is sent, of every class that does not say otherwise."""

    prompt_tokens: PromptLengths | None = Field(default=None, description="tokens of a prompt")
    output_tokens: AnswerLengths | None = Field(default=None, description="tokens of an answer")
    prompts: Prompts | None = Field(default=None, description="what synthetic prompts are made of")
    priority: Priority | None = Field(default=None, description="sent to the server; lower is more urgent")
    sessions: Sessions | None = Field(default=None, description="conversations of several turns")
    goodput: Goodput | None = Field(default=None, description="limits of a good request")
    fluidity: Fluidity | None = Field(default=None, description="deadlines of its tokens")
    model: str | None = Field(default=None, description="model or LoRA name, instead of the target's")
    extra_body: JsonObject = Field(default={}, repr=False, description="merged over the target's extra_body")
    retry: Retry | None = Field(default=None, description="what follows a rejection")
    patience_s: Duration | None = Field(
        default=None, alias="patience", description="hang up so long after due: `abandoned`, a miss"
    )
    deadline_s: Duration | None = Field(
        default=None, alias="deadline", description="told to the server, in the body's `deadline_ms`"
    )


class RequestClass(Manners):
    """One kind of request of several; what it does not say, or says is null, is as `load` says.

    So it cannot do without what `load` asks of all, such as `sessions` or `retry`: ask it of classes instead.
    """

    weight: Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)] = Field(
        description="its share is weight / sum of weights"
    )
    slos: Slos = Field(default=(), description="promises about this class alone, written as at the top")
