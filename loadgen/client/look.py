"""What a look at a server found, as Traits: what was seen of each thing that a run depends on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from statistics import median
from typing import Any

from loadgen.backends import ENDPOINTS, OF_IDS, DialectName
from loadgen.client.dialects import dialect
from loadgen.client.inquiry import Response
from loadgen.client.kind import Kind, Listed
from loadgen.client.probe import Seen
from loadgen.client.stream import Stream
from loadgen.faults import hint
from loadgen.server_log import Scrape
from loadgen.target import Target
from loadgen.terms import Terms
from loadgen.traits import Trait
from loadgen.workload.words import WordTokens

LONGER_TOKENS = 64  # asked for again where the first answer came too soon to tell how it came
IDS = list(range(5, 13))  # a prompt of eight token ids, which every vocabulary has
REQUEST_ID = "preflight"
APART_US = 250  # tokens that follow each other no faster came one by one
SPREAD, SPREAD_US = 0.25, 5_000  # so did those that took such a share of the answer's time, and so long
MANY = 5  # gaps: fewer may be one read on a machine that is busy
WAIT_US = 100_000  # an answer that is all there sooner may be that of a fast server
NOT_DONE = "not asked"


@dataclass(frozen=True, kw_only=True)
class Look:
    """All that was seen. `again`: the probe once more; `ids`: a prompt of token ids; each may be why there is
    none. `asked_for`: the models that classes name.

    `refused`: why each key was left out or named otherwise. `prompt`: the probe's. `endpoints`: which APIs
    there are, None where it cannot be told. `metrics`: one look at each place of the server's own, none where
    the user wants none. `uncounted`: why there is no `calibration`.
    """

    target: Target
    has_key: bool
    ignore_eos: bool
    listing: Response
    models: tuple[Listed, ...] | None
    model: str | None
    asked_for: Sequence[str] = ()
    seen: Seen
    prompt: str
    terms: Terms
    refused: dict[str, str] = field(default_factory=dict)
    again: Seen | str = NOT_DONE
    ids: Seen | str = NOT_DONE
    endpoints: dict[DialectName, bool | None] = field(default_factory=dict)
    metrics: Sequence[Scrape] = ()
    kind: Kind = field(default_factory=Kind)
    calibration: WordTokens | None = None
    uncounted: str = NOT_DONE
    others: Sequence[str] = ()

    @cached_property
    def traits(self) -> tuple[Trait, ...]:
        return (
            self._reachable(), self._tls(), self._key(), self._model(), self._endpoint(), self._streaming(),
            self._usage(), *self._refusals(), self._length(), self._exact(), self._ids(), self._words(),
            self._echo(), self._cache(), self._request_id(), self._server(), self._metrics(),
            self._context(), *self._alike(),
        )  # fmt: skip

    def notes(self) -> Iterator[str]:
        """What a run says of it: each no that changes something. Of metrics the report says more."""
        for trait in self.traits:
            if trait.has is False and trait.instead and trait.name != "metrics":
                yield f"{trait.says}: {trait.instead}"

    # --- the way there --------------------------------------------------------------------------------------

    def _reachable(self) -> Trait:
        listing = self.listing
        took = f" in {_took(listing.reads[-1][0])}" if listing.reads else ""
        return Trait(name="reachable", has=True, says=f"{listing.what} answered {listing.status}{took}")

    def _tls(self) -> Trait:
        if not self.target.base_url.startswith("https:"):
            return Trait(name="TLS", has=None, says="plain HTTP")
        if self.target.insecure:
            return Trait(
                name="TLS", has=False, says="insecure", instead="the server's certificate is not checked"
            )
        return Trait(name="TLS", has=True, says="the certificate is trusted")

    def _key(self) -> Trait:
        trait = _Answer("key")
        if self.seen.response.status != 200:
            return trait.untold("no request was answered well")
        if self.has_key:
            return trait.yes("taken")
        return trait.untold("none was given, and none was asked for")

    def _model(self) -> Trait:
        ids = [model.id for model in self.models or ()]
        if self.model is None and self.asked_for:
            return Trait(
                name="model", has=True, says=f"each class names its own: {', '.join(self.asked_for)}"
            )
        if self.model is None:
            says, instead = "no model is named and the server lists none", "requests go without one"
            return Trait(name="model", has=False, says=says, instead=instead)
        if self.target.model is None:
            return Trait(name="model", has=True, says=f"{self.model}, the only one")
        if self.models is None:
            return Trait(name="model", has=None, says=f"{self.model}; the server has no list")
        if ids and self.model not in ids:
            says = f"the server does not list the model {self.model}{hint(self.model, ids)}"
            return Trait(name="model", has=False, says=says, instead="it is asked for all the same")
        return Trait(name="model", has=True, says=f"{self.model}, of {len(ids)}")

    def _endpoint(self) -> Trait:
        paths = {
            has: ", ".join(ENDPOINTS[name] for name, is_there in self.endpoints.items() if is_there is has)
            for has in (True, False, None)
        }
        says = f"there is {paths[True] or 'no API that is known'}"
        says += f"; not {paths[False]}" if paths[False] else ""
        says += f"; untold is {paths[None]}" if paths[None] else ""
        trait = _Answer("endpoint")
        if "endpoint" in self.refused:
            return trait.no(f"{self.refused['endpoint']}; {says}", f"{self.target.endpoint} is asked")
        if not self.seen.is_well:
            return trait.untold(f"{self.target.endpoint} was not answered well; {says}")
        return trait.yes(f"{self.target.endpoint} is asked; {says}")

    # --- the stream -----------------------------------------------------------------------------------------

    def _streaming(self) -> Trait:
        stream, response = self.seen.stream, self.seen.response
        trait = _Answer("streaming")
        if self.seen.is_busy:
            return trait.untold(f"the server is busy ({self.seen.response.status}): {self.seen.words}")
        if not stream.events:
            says = f"no token in the stream of the probe (usage says {stream.usage_tokens})"
            return trait.no(says, "such an answer has no TTFT")
        if response.end != "whole":
            return trait.no("the stream of the probe had no end in sight", "timeouts end such answers")
        if stream.finish_reason is None and not stream.done and not dialect(self.target.dialect).ends_bare:
            says = "the stream ended with neither a finish reason nor [DONE]"
            return trait.no(says, "every such answer counts as broken")
        if not is_event_stream(response) and not dialect(self.target.dialect).is_lines:
            content_type = response.headers.get("content-type", "none")
            says = f"the stream's content type is {content_type}, not text/event-stream"
            return trait.no(says, "it is read as one")
        return self._in_pieces(trait)

    def _in_pieces(self, trait: _Answer) -> Trait:
        """By the last answer, the longest; one alone that came at once may be a stall of ours."""
        asked = [seen for seen in (self.seen, self.again) if isinstance(seen, Seen) and seen.stream.events]
        came = [came_in_pieces(seen) for seen in asked]
        if True in came:
            stream = next(seen.stream for seen in reversed(asked) if came_in_pieces(seen))
            first, each = _took(stream.first_token_us or 0), _took(sum(stream.gaps_us) / len(stream.gaps_us))
            return trait.yes(f"{stream.events} token events, the first after {first}, then one each {each}")
        stream = asked[-1].stream
        whole = f"all {stream.events} token events were there after {_took(_whole_us(stream))}"
        if came[-1] is False and len(came) > 1:
            return trait.no(
                f"{whole}, and came at once", "TTFT is that of the whole answer, and gaps mean nothing"
            )
        why = "once may be chance" if False in came else "too quick to tell whether they came one by one"
        return trait.untold(f"{whole}: {why}")

    def _usage(self) -> Trait:
        usage = self.seen.stream.usage
        trait = _Answer("usage")
        if self.seen.is_busy or self.seen.response.end != "whole":
            return trait.untold("the probe was not answered to its end")
        if self.seen.stream.usage_tokens is None or usage is None:
            return trait.no("no usage in the stream", "output tokens will be counted by its events")
        return trait.yes(f"{usage.prompt_tokens} prompt and {usage.completion_tokens} output tokens")

    def _refusals(self) -> Iterator[Trait]:
        for key, why in self.refused.items():
            if key != "endpoint":
                yield Trait(name=key, has=False, says=why, instead=self._instead(key))

    def _instead(self, key: str) -> str:
        if key == "max_tokens" and key not in self.terms.without:
            return f"{self.terms.length} is sent"
        if key == "ignore_eos" and self.terms.forced:
            return f"{', '.join(self.terms.forced)} is sent, which does the same"
        effects = {
            "ignore_eos": "answers may end early: lengths are what the server gives",
            "stream_options": "it is left out; usage comes only if the server gives it unasked",
            "priority": "it is left out: the server knows no priority",
            "deadline_ms": "it is left out: the server knows no deadline",
            "max_completion_tokens": "no length is asked for: answers are as long as the server likes",
        }
        return effects.get(key, "it is left out")

    # --- lengths and prompts --------------------------------------------------------------------------------

    def _length(self) -> Trait:
        trait = _Answer("length limit")
        (tokens, _), asked = self.seen.stream.output_tokens(), self.seen.asked_tokens
        key = dialect(self.target.dialect).length_key
        key = self.terms.length if key == "max_tokens" else key
        if key in self.terms.without:
            return trait.no("the server takes no limit on an answer's length")
        if not self.seen.is_well:
            return trait.untold("no request was answered well")
        if tokens > asked:
            says = f"asked for {asked} tokens at most, got {tokens}"
            return trait.no(says, "lengths are what the server gives")
        return trait.yes(f"{key} is taken, and no answer was longer")

    def _exact(self) -> Trait:
        """More than was asked for is told of by the limit, and is not exact either."""
        stream = self.seen.stream
        trait = _Answer("exact length")
        (tokens, _), asked = stream.output_tokens(), self.seen.asked_tokens
        got = f"asked for {asked} tokens of an answer of one word, got {tokens}"
        if not self.seen.is_well:
            return trait.untold("no request was answered well")
        if tokens == asked:
            return trait.yes(got)
        if tokens > asked:
            return trait.no(got)
        if not self.ignore_eos:
            return trait.untold("not asked for: answers end where the model ends them")
        if stream.finish_reason == "stop" and "ignore_eos" not in self.refused:
            return trait.no(f"{got}, in spite of ignore_eos", "the server ends answers early")
        return trait.untold(got)

    def _ids(self) -> Trait:
        if self.target.dialect not in OF_IDS:
            return Trait(name="token ids", has=None, says=f"{NOT_DONE}: prompts are messages or text here")
        trait = _Answer("token ids")
        if isinstance(self.ids, str):
            return trait.untold(self.ids)
        if not self.ids.is_well:
            return trait.no(f"a prompt of ids is refused ({self.ids.response.status}): {self.ids.words}")
        usage = self.ids.stream.usage
        counted = usage.prompt_tokens if usage else None
        return trait.yes(f"{len(IDS)} ids were counted as {'?' if counted is None else counted} tokens")

    def _words(self) -> Trait:
        words = self.calibration
        if words is None:
            return Trait(name="tokens a word", has=None, says=self.uncounted)
        return Trait(name="tokens a word", has=True, says=words.says)

    def _echo(self) -> Trait:
        trait = _Answer("no echo")
        said = "".join(self.seen.stream.texts or ())
        if not said:
            return trait.untold("no text to tell by")
        if said.lstrip().startswith(self.prompt[:24]):
            return trait.no("answers begin with the prompt", "its tokens may be counted as the answer's")
        return trait.yes("answers do not begin with the prompt")

    def _cache(self) -> Trait:
        trait = _Answer("prefix cache")
        if isinstance(self.again, str):
            return trait.untold(self.again)
        usage = self.again.stream.usage
        details = None if usage is None else usage.prompt_tokens_details
        if usage is None or details is None or details.cached_tokens is None:
            return trait.untold("usage does not tell of cached tokens")
        cached = f"{details.cached_tokens} of {usage.prompt_tokens} tokens of a repeated prompt were cached"
        return trait.yes(cached) if details.cached_tokens else trait.no(cached)

    def _request_id(self) -> Trait:
        got = self.seen.response.headers.get("x-request-id")
        trait = _Answer("request id")
        if got == REQUEST_ID:
            return trait.yes("our X-Request-ID comes back: requests can be found in the server's log")
        return trait.no(f"X-Request-ID does not come back{', the server has its own' if got else ''}")

    # --- the server -----------------------------------------------------------------------------------------

    def _server(self) -> Trait:
        kind, header = self.kind, self.seen.response.headers.get("server")
        if kind.name is None:
            says = f"it does not tell; its Server header is {header or 'absent'}"
            return Trait(name="server", has=None, says=says)
        return Trait(name="server", has=True, says=f"{kind.name} {kind.version or 'of a version untold'}")

    def _metrics(self) -> Trait:
        if not self.metrics:
            return Trait(name="metrics", has=None, says="not wanted")
        trait = _Answer("metrics")
        absent = [scrape.error for scrape in self.metrics if scrape.error is not None]
        if len(absent) == len(self.metrics):
            return trait.no("; ".join(absent), "the report has none of its figures")
        there = [scrape.kind for scrape in self.metrics if scrape.error is None]
        kinds = ", ".join(dict.fromkeys(kind or "no server that we know" for kind in there))
        return trait.yes("; ".join([f"figures of {kinds}, looked at each second of a run", *absent]))

    def _context(self) -> Trait:
        tokens = self.kind.context_tokens
        if tokens is None:
            return Trait(name="context length", has=None, says="it does not tell")
        return Trait(name="context length", has=True, says=f"{tokens:,} tokens")

    def _alike(self) -> Iterator[Trait]:
        if not self.target.more_urls:
            return
        if self.others:
            says, instead = "; ".join(self.others), "figures are of all together"
            yield Trait(name="servers alike", has=False, says=says, instead=instead)
        else:
            says = f"{len(self.target.urls)} servers, of one kind, with the same models"
            yield Trait(name="servers alike", has=True, says=says)


def came_in_pieces(seen: Seen) -> bool | None:
    """Whether tokens came one by one; None where they came too soon to tell."""
    gaps_us, whole_us = seen.stream.gaps_us, _whole_us(seen.stream)
    if len(gaps_us) < 2:
        return None
    if median(gaps_us) >= APART_US or sum(gaps_us) >= max(SPREAD * whole_us, SPREAD_US):
        return True
    return None if whole_us < WAIT_US or len(gaps_us) < MANY else False


def _whole_us(stream: Stream) -> int:
    return (stream.first_token_us or 0) + sum(stream.gaps_us)


@dataclass(frozen=True)
class _Answer:
    """Traits of one name."""

    name: str

    def yes(self, says: str) -> Trait:
        return Trait(name=self.name, has=True, says=says)

    def no(self, says: str, instead: str = "") -> Trait:
        return Trait(name=self.name, has=False, says=says, instead=instead)

    def untold(self, says: str) -> Trait:
        return Trait(name=self.name, has=None, says=says)


def _took(us: float) -> str:
    return f"{us / 1e6:.1f} s" if us >= 1e6 else f"{us / 1000:.3g} ms"


def is_event_stream(response: Response) -> bool:
    return bool(response.headers.get("content-type", "").startswith("text/event-stream"))


def facts(look: Look) -> dict[str, Any]:
    """The probe in figures."""
    response, stream = look.seen.response, look.seen.stream
    usage = stream.usage
    return {
        "server": response.headers.get("server"),
        "status": response.status,
        "streams": is_event_stream(response) and stream.events > 0,
        "usage_given": usage is not None,
        "finish_reason": stream.finish_reason,
        "prompt_tokens": usage and usage.prompt_tokens,
        "asked_output_tokens": look.seen.asked_tokens,
        "output_tokens": usage and usage.completion_tokens,
        "endpoint": look.target.endpoint,
        "kind": look.kind.name,
        "version": look.kind.version,
        "context_tokens": look.kind.context_tokens,
        "terms": asdict(look.terms) | {"without": sorted(look.terms.without)},
    }
