"""A look at the target before any load: is it there, does it take our key and our body, does it stream?

First what may end it: the list of models, then a probe of a few tokens, repeated where its terms are refused,
and one token of each further server. Then what is good to know: pages that tell which server it is, which
need no work of it, and a few more small requests. No load ever goes this way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from secrets import token_hex
from typing import Any, Self

import msgspec

from loadgen.backends import OF_IDS
from loadgen.client import kind
from loadgen.client.inquiry import Inquiry, Response, inquire
from loadgen.client.kind import Listed
from loadgen.client.look import IDS, LONGER_TOKENS, Look, came_in_pieces, facts
from loadgen.client.probe import PAGE_S, PATIENCE_S, PROBE_TOKENS, Asking, Probe, Seen
from loadgen.client.scrape import Server, places
from loadgen.client.unreachable import Unreachable
from loadgen.client.word_tokens import calibrate, mean_of_words
from loadgen.faults import hint
from loadgen.plan import Plan, Prompt
from loadgen.scenario import Scenario, ScenarioError, Timeouts
from loadgen.target import Target
from loadgen.terms import AS_ASKED, Terms
from loadgen.traits import Trait
from loadgen.workload.words import WordTokens

__all__ = ["Preflight", "Unreachable", "preflight", "preflighted", "wait_ready"]

LIST_S = 10.0
POLL_S = 5.0
_Way = tuple[Asking, Prompt]


@dataclass(frozen=True)
class Preflight:
    """What the look found.

    model: the one to ask for, in the server's own letters. facts: plain JSON for run.json. notes: what a user
    should know, one line each. calibration: what its count of words says, None where it was not asked or does
    not count. target: as the run will ask it; None is as it was. is_busy: it answered nothing but 429 or 503.
    """

    model: str | None
    facts: dict[str, Any]
    notes: tuple[str, ...]
    calibration: WordTokens | None = None
    terms: Terms = AS_ASKED
    target: Target | None = None
    traits: tuple[Trait, ...] = ()
    requests: int = 0
    is_busy: bool = False


async def preflight(
    target: Target,
    api_key: str | None,
    timeouts: Timeouts,
    *,
    ignore_eos: bool,
    mean_of_words: float | None = None,
    askings: Sequence[Asking] = (Asking(),),
    sends_ids: bool = False,
) -> Preflight:
    """Look at the model list, then send small streaming requests shaped as the load's will be.

    `mean_of_words`: the mean tokens of the load's prompts of words; where given, the server is asked how many
    tokens its words make. `askings`: how each class of the load asks. `sends_ids`: some by token ids. Of
    several servers the first is learned from, and the others are then asked on its terms.

    Raises Unreachable when a server cannot be reached or refuses us, ScenarioError when the scenario leaves
    open which of several models is meant. A server that is merely busy (429, 503) is noted.
    """
    prompt = f"{token_hex(4)}: is the sea wet? Say yes or no, in one word and no more."
    async with AsyncExitStack() as stack:

        async def opened(one: Target, key: str | None) -> Inquiry:
            return await stack.enter_async_context(inquire(one, key, timeouts.connect_s))

        inquiry, *more = [await opened(one, api_key) for one in target.each()]
        probe = Probe(inquiry, min(timeouts.first_token_s, PATIENCE_S), ignore_eos=ignore_eos)
        first = await _Server.met(probe)
        model = _picked(target, first, askings)
        asked = _distinct(askings, model)
        ways: list[_Way] = [(asking, prompt) for asking in asked] + [(asked[0], IDS)] * sends_ids
        seen = await first.tried(ways, PROBE_TOKENS)
        others = await asyncio.gather(*(_Server.met(probe.at(one)) for one in more))
        await asyncio.gather(*(other.tried(ways, PROBE_TOKENS) for other in others))
        name = first.name or (kind.TRANSFORMERS if probe.terms.forced else None)
        watched = [] if target.metrics == "none" else list(places(target))
        watching = [await opened(at.target, api_key if at.is_ours else None) for at in watched]
        endpoints, scrapes, pages, small = await asyncio.gather(
            probe.look_for_endpoints(() if seen.is_busy else probe.seen_at, kind.apis_of(name)),
            asyncio.gather(*(Server(*at).look() for at in zip(watched, watching, strict=True))),
            _pages(inquiry, kind.pages_of(name)),
            _small(probe, (asked[0], prompt), seen, mean_of_words),
        )
        of_metrics = (scrape.kind for _, scrape in scrapes if scrape.kind)
        look = Look(
            target=probe.target.model_copy(update={"more_urls": target.more_urls}),
            has_key=bool(api_key),
            ignore_eos=ignore_eos,
            listing=first.listing,
            models=first.models,
            model=model,
            asked_for=sorted({asking.model for asking in askings if asking.model}),
            seen=seen,
            prompt=prompt,
            terms=probe.terms,
            refused=probe.refused,
            endpoints=endpoints,
            metrics=[scrape for _, scrape in scrapes],
            kind=kind.kind(name or next(of_metrics, None), pages, first.models or (), model),
            others=list(filter(None, (other.unlike(first) for other in others))),
            **small,
        )
        said = [note for server in (first, *others) for note in server.notes]
        counted = [look.uncounted] if mean_of_words is not None else []
        requests = sum(one.asked for one in (inquiry, *more, *watching))
        return _found(look, inquiry, [*first.unlisted(), *said, *look.notes(), *counted], requests)


def _found(look: Look, inquiry: Inquiry, notes: list[str], requests: int) -> Preflight:
    traits = inquiry.masked([msgspec.to_builtins(trait) for trait in look.traits])
    models = None if look.models is None else [model.id for model in look.models]
    told = {"model": look.model, "models": models} | facts(look)
    return Preflight(
        model=look.model,
        is_busy=look.seen.is_busy,
        facts=inquiry.masked(told) | {"requests": requests, "traits": traits},
        notes=tuple(inquiry.masked(notes)),
        calibration=look.calibration,
        terms=look.terms,
        target=look.target,
        traits=tuple(msgspec.convert(traits, list[Trait])),
        requests=requests,
    )


async def _small(probe: Probe, way: _Way, seen: Seen, mean_of_words: float | None) -> dict[str, Any]:
    """What is asked one after another, so that no bounded queue refuses it."""
    asking, prompt = way
    found: dict[str, Any] = {}
    if not seen.is_busy:
        again = {True: 1, False: PROBE_TOKENS, None: LONGER_TOKENS}[came_in_pieces(seen)]
        found["again"] = await _asked(probe, asking, prompt, again)
        if probe.target.dialect in OF_IDS:
            found["ids"] = await _asked(probe, asking, IDS, 1)
    if mean_of_words is not None:
        found["calibration"], found["uncounted"] = await calibrate(
            lambda text: probe.count(asking, text), mean_of_words, token_hex(8)
        )
    return found


async def _asked(probe: Probe, asking: Asking, prompt: Prompt, output_tokens: int) -> Seen | str:
    """What came of it, or why nothing did."""
    try:
        return await probe.ask(asking, prompt, output_tokens)
    except Unreachable as trouble:
        return str(trouble)


async def _pages(inquiry: Inquiry, paths: Sequence[str]) -> dict[str, bytes]:
    """Those of them that there are."""

    async def page(path: str) -> Response | None:
        try:
            return await inquiry.ask("GET", path, PAGE_S)
        except Unreachable:
            return None

    pages = zip(paths, await asyncio.gather(*map(page, paths)), strict=True)
    return {path: page.body for path, page in pages if page is not None and page.status == 200}


@dataclass(frozen=True)
class _Server:
    """One of the target's, which has answered what models it lists: None without such a list."""

    probe: Probe
    listing: Response
    models: tuple[Listed, ...] | None
    notes: list[str]

    @classmethod
    async def met(cls, probe: Probe) -> Self:
        """Raises Unreachable; of what it answers only a refused key is fatal here."""
        listing = await probe.inquiry.ask("GET", "/v1/models", min(probe.limit_s, LIST_S))
        if listing.status == 401:
            raise probe.inquiry.refused(listing)
        return cls(probe, listing, kind.listed(listing.body) if listing.status == 200 else None, [])

    @property
    def ids(self) -> list[str]:
        return [model.id for model in self.models or ()]

    @property
    def name(self) -> str | None:
        return kind.named(self.models or (), self.listing.headers)

    def unlisted(self) -> Iterator[str]:
        if self.models is None:
            said = self.probe.inquiry.words(self.listing)
            yield f"no list of models: {self.listing.what} answered {self.listing.status}: {said}"

    def unlike(self, first: _Server) -> str | None:
        """In what it is not as the first."""
        url = self.probe.target.base_url
        if set(self.ids) != set(first.ids):
            return f"{url} lists {', '.join(sorted(self.ids)) or 'no models'}"
        return None if self.name == first.name else f"{url} is {self.name or 'of another kind'}"

    async def tried(self, ways: Sequence[_Way], output_tokens: int) -> Seen:
        """The answer to the first of `ways`; the others are asked for a token each, unless it is busy.

        Raises Unreachable if the load would meet nothing but trouble.
        """
        (asking, prompt), *others = ways
        seen = await self.probe.settle(asking, prompt, output_tokens)
        if seen.is_busy:
            words, where = self.probe.inquiry.masked(seen.words), seen.response
            self.notes.append(f"busy at preflight ({where.status}): {words}")
            return seen
        await self._judge(seen, asking)
        for asking, prompt in others:
            one = await self.probe.settle(asking, prompt, 1)
            if not one.is_busy:
                await self._judge(one, asking)
        return seen

    async def _judge(self, seen: Seen, asking: Asking) -> None:
        response, inquiry = seen.response, self.probe.inquiry
        what = response.what + (f" for class {asking.name}" if asking.name else "")
        if response.status != 200:
            tried = self.probe.refused.keys() | self.probe.target.extra_body.keys() | asking.extra.keys()
            raise inquiry.refused(response, await self._way_out(seen, asking), what, tried)
        if (why := self.probe.trouble(seen)) is not None:
            raise inquiry.unreachable(what, why)

    async def _way_out(self, seen: Seen, asking: Asking) -> str:
        """What else there is, where a model or a path is not."""
        if asking.model and self.ids and asking.model not in self.ids:
            return f"it does not list the model {asking.model}{hint(asking.model, self.ids)}"
        if seen.response.status not in (404, 405, 501):
            return ""
        found = await self.probe.look_for_endpoints()
        there = ", ".join(name for name, is_there in found.items() if is_there)
        untold = ", ".join(name for name, is_there in found.items() if is_there is None)
        if not there and not untold and seen.words.startswith("an HTML page"):
            return "it is a web server, not an LLM API: check the base URL"
        has = there or ("none that can be told" if untold else "none")
        models = f"; the server lists {', '.join(self.ids)}" if self.ids else ""
        return f"of the APIs we know it has {has}{models}"


def _picked(target: Target, server: _Server, askings: Sequence[Asking]) -> str | None:
    """The model to ask for. Raises ScenarioError where it is the user's to say."""
    if target.model is not None:
        return target.model
    if len(server.ids) > 1 and not all(asking.model for asking in askings):
        several = server.probe.inquiry.masked(", ".join(server.ids))
        raise ScenarioError(f"target.model: the server has several models, name one of {several} (--model)")
    return server.ids[0] if len(server.ids) == 1 else None


def _distinct(askings: Sequence[Asking], model: str | None) -> list[Asking]:
    """Each way to ask once, with its model."""
    found: list[Asking] = []
    for asking in askings:
        asking = replace(asking, model=asking.model or model)
        if not any(replace(one, name=asking.name) == asking for one in found):
            found.append(asking)
    return found


def _askings(scenario: Scenario) -> list[Asking]:
    return [
        Asking(
            name,
            manners.model,
            manners.extra_body,
            manners.priority or 0,
            None if manners.deadline_s is None else round(manners.deadline_s * 1000),
        )
        for name, manners in scenario.load.mixture.items()
    ]


async def preflighted(
    scenario: Scenario,
    plan: Plan,
    target: Target,
    api_key: str | None,
    *,
    looks: bool = True,
    wait_ready_s: float | None = None,
) -> Preflight | None:
    """What `target` says of itself before the load, once its servers are ready, each waited for
    `wait_ready_s` at most; None where it is not to be looked at. Raises ScenarioError or Unreachable.
    """
    if wait_ready_s is not None:
        for one in target.each():
            await wait_ready(one, api_key, wait_ready_s, scenario.timeouts.connect_s)
    if not looks:
        return None
    words, ignore_eos = mean_of_words(plan), scenario.load.ignore_eos
    return await preflight(
        *(target, api_key, scenario.timeouts),
        ignore_eos=ignore_eos,
        mean_of_words=words,
        askings=_askings(scenario),
        sends_ids=scenario.load.sends_ids,
    )


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
