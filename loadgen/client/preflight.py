"""A look at the target before any load: is it there, does it take our key and our body, does it stream?

First what may end it: the list of models, then a probe of a few tokens, repeated where its terms are refused.
Then what is good to know: pages that tell which server it is, which need no work of it, and requests of one
token each. No load ever goes this way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from secrets import token_hex
from typing import Any

import msgspec

from loadgen.backends import OF_IDS
from loadgen.client import kind
from loadgen.client.inquiry import Inquiry, Response, inquire
from loadgen.client.kind import Kind, Listed
from loadgen.client.look import IDS, PROBE_TOKENS, Look, came_in_pieces, facts
from loadgen.client.probe import PAGE_S, Asking, Probe, Seen
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

PATIENCE_S = 60.0  # a few tokens that take longer are no use to a person who waits for the run to start
LIST_S = 10.0
POLL_S = 5.0


@dataclass(frozen=True)
class Preflight:
    """What the look found.

    model: the one to ask for. models: the listed ones, None without a list. server: its Server header.
    facts: plain JSON for run.json. notes: what a user should know, one line each. calibration: what its count
    of words says, None where it was not asked or does not count. target: as the run will ask it; None is as
    it was.
    """

    model: str | None
    models: tuple[str, ...] | None
    server: str | None
    facts: dict[str, Any]
    notes: tuple[str, ...]
    calibration: WordTokens | None = None
    terms: Terms = AS_ASKED
    target: Target | None = None
    traits: tuple[Trait, ...] = ()
    requests: int = 0


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
    tokens its words make. `askings`: how each class of the load asks. `sends_ids`: some by token ids.

    Raises Unreachable when the target cannot be reached or refuses us, ScenarioError when the scenario leaves
    open which of several models is meant. A target that is merely busy (429, 503) is noted.
    """
    first, *more = target.each()
    async with inquire(first, api_key, timeouts.connect_s) as inquiry:
        sight = _Sight(inquiry, target, timeouts, bool(api_key), ignore_eos=ignore_eos)
        await sight.begin(askings, sends_ids=sends_ids)
        notes = await sight.rest(mean_of_words)
        others = await asyncio.gather(*(_differs(one, api_key, timeouts, sight) for one in more))
        look = sight.look([words for words in others if words])
        notes = [*sight.notes, *look.notes(), *notes]
        traits = tuple(msgspec.convert(inquiry.masked(msgspec.to_builtins(t)), Trait) for t in look.traits())
        return Preflight(
            model=look.model,
            models=None if look.models is None else tuple(model.id for model in look.models),
            server=inquiry.masked(look.seen.response.headers.get("server")),
            facts=_kept(inquiry, look),
            notes=tuple(inquiry.masked(notes)),
            calibration=look.calibration,
            terms=look.terms,
            target=target.model_copy(update={"endpoint": look.target.endpoint}),
            traits=traits,
            requests=inquiry.asked,
        )


def _kept(inquiry: Inquiry, look: Look) -> dict[str, Any]:
    models = None if look.models is None else [model.id for model in look.models]
    traits = [msgspec.to_builtins(trait) for trait in look.traits()]
    told = {"model": look.model, "models": models} | facts(look)
    found: dict[str, Any] = inquiry.masked(told | {"requests": inquiry.asked, "traits": traits})
    return found


class _Sight:
    """A look that is being taken at one server."""

    def __init__(
        self, inquiry: Inquiry, target: Target, timeouts: Timeouts, has_key: bool, *, ignore_eos: bool
    ) -> None:
        self._inquiry = inquiry
        self._target = target
        self._has_key = has_key
        self._ignore_eos = ignore_eos
        self._limit_s = min(timeouts.first_token_s, PATIENCE_S)
        self._probe = Probe(inquiry, self._limit_s, ignore_eos=ignore_eos)
        self._prompt = f"{token_hex(4)}: is the sea wet? Say yes or no, in one word and no more."
        self.notes: list[str] = []

    async def begin(self, askings: Sequence[Asking], *, sends_ids: bool) -> None:
        """What may end it. Raises Unreachable or ScenarioError."""
        self._listing = await self._inquiry.ask("GET", "/v1/models", min(self._limit_s, LIST_S))
        self.models = self._listed()
        self._model = self._picked(askings)
        self._asking, *more = _distinct(askings, self._model)
        self._asked_for = sorted({asking.model for asking in askings if asking.model})
        self._seen = await self._probe.settle(self._asking, self._prompt, PROBE_TOKENS)
        if self._seen.is_busy:
            words = self._inquiry.masked(self._seen.words)
            self.notes.append(f"busy at preflight ({self._seen.response.status}): {words}")
            return
        await self._judge(self._seen, self._asking)
        others: list[tuple[Asking, Prompt]] = [(asking, self._prompt) for asking in more] + [
            (self._asking, IDS)
        ] * sends_ids
        for asking, prompt in others:
            seen = await self._probe.settle(asking, prompt, 1)
            if not seen.is_busy:
                await self._judge(seen, asking)

    async def rest(self, mean_of_words: float | None) -> list[str]:
        """What is good to know; notes about it."""
        self.name = kind.named(self.models or (), self._listing.headers) or self._by_refusal()
        self._endpoints, self._metrics, self._pages, notes = await asyncio.gather(
            self._probe.look_for_endpoints(
                [] if self._seen.is_busy else [self._probe.target.dialect], kind.apis_of(self.name)
            ),
            self._page("/metrics") if self._target.metrics == "auto" else _nothing(),
            self._told(),
            self._small(mean_of_words),
        )
        return notes

    async def _small(self, mean_of_words: float | None) -> list[str]:
        """One after another, so that no bounded queue refuses them."""
        self._again = self._ids = self._calibration = None
        if not self._seen.is_busy:
            is_odd = came_in_pieces(self._seen) is False  # to be seen again
            self._again = await self._asked(self._prompt, PROBE_TOKENS if is_odd else 1)
            if self._probe.target.dialect in OF_IDS:
                self._ids = await self._asked(IDS)
        if mean_of_words is None:
            return []
        self._calibration, note = await calibrate(
            lambda prompt: self._probe.count(self._asking, prompt), mean_of_words, token_hex(8)
        )
        return [note]

    async def _asked(self, prompt: Prompt, output_tokens: int = 1) -> Seen | None:
        try:
            return await self._probe.ask(self._asking, prompt, output_tokens)
        except Unreachable:
            return None

    async def _told(self) -> dict[str, bytes]:
        paths = kind.pages_of(self.name)
        pages = await asyncio.gather(*map(self._page, paths))
        told = zip(paths, pages, strict=True)
        return {path: page.body for path, page in told if page is not None and page.status == 200}

    async def _page(self, path: str) -> Response | None:
        try:
            return await self._inquiry.ask("GET", path, PAGE_S)
        except Unreachable:
            return None

    def look(self, others: Sequence[str]) -> Look:
        metrics = self._metrics
        by_metrics = kind.by_metrics(metrics.body) if metrics and metrics.status == 200 else None
        name = self.name or by_metrics
        return Look(
            target=self._probe.target.model_copy(update={"more_urls": self._target.more_urls}),
            has_key=self._has_key,
            ignore_eos=self._ignore_eos,
            listing=self._listing,
            models=self.models,
            model=self._model,
            asked_for=self._asked_for,
            seen=self._seen,
            prompt=self._prompt,
            terms=self._probe.terms,
            refused=self._probe.refused,
            again=self._again,
            ids=self._ids,
            endpoints=self._endpoints,
            metrics=metrics,
            kind=self._kind(name),
            calibration=self._calibration,
            others=others,
        )

    def _kind(self, name: str | None) -> Kind:
        return kind.kind(name, self._pages, self.models or (), self._model)

    def _by_refusal(self) -> str | None:
        return kind.TRANSFORMERS if self._probe.terms.forced else None

    # --- what may end it ------------------------------------------------------------------------------------

    def _listed(self) -> tuple[Listed, ...] | None:
        """The listed models; None with a note where there is no list. Only a refused key is fatal here."""
        response = self._listing
        if response.status == 401:
            raise self._inquiry.refused(response)
        models = kind.listed(response.body) if response.status == 200 else None
        if models is None:
            said = self._inquiry.words(response)
            self.notes.append(f"no list of models: {response.what} answered {response.status}: {said}")
        return models

    def _picked(self, askings: Sequence[Asking]) -> str | None:
        if self._target.model is not None:
            return self._target.model
        ids = [model.id for model in self.models or ()]
        if len(ids) > 1 and not all(asking.model for asking in askings):
            several = self._inquiry.masked(", ".join(ids))
            raise ScenarioError(f"target.model: the server has several models, name one of {several}")
        return ids[0] if len(ids) == 1 else None

    async def _judge(self, seen: Seen, asking: Asking) -> None:
        """Raise Unreachable if the load would meet nothing but trouble."""
        response, stream, inquiry = seen.response, seen.stream, self._inquiry
        what = response.what + (f" for class {asking.name}" if asking.name else "")
        if response.status != 200:
            raise inquiry.refused(response, await self._way_out(seen, asking), what)
        why = None
        if stream.error is not None:
            why = f"an error where tokens were due: {stream.error[1]}"
        elif stream.first_event_us is None and response.body:
            got = (
                self._probe.misfit(response)
                or f"no event in {response.headers.get('content-type', 'an untyped body')}"
            )
            why = f"{got}: {inquiry.words(response)}; is base_url the API's, and no proxy in between?"
        elif response.end == "lost":
            why = "the connection was lost in the midst of the answer; the server's log may say why"
        elif response.end == "cut" and not stream.events:
            limit = f"timeouts.first_token, at most {PATIENCE_S:g} s"
            why = f"the answer began, but no token came in time ({limit})"
        if why is not None:
            raise inquiry.unreachable(what, why)

    async def _way_out(self, seen: Seen, asking: Asking) -> str:
        """What else there is, where a model or a path is not."""
        ids = [model.id for model in self.models or ()]
        if asking.model and ids and asking.model not in ids:
            return f"it does not list the model {asking.model}{hint(asking.model, ids)}"
        if seen.response.status not in (404, 405, 501):
            return ""
        found = await self._probe.look_for_endpoints()
        there = ", ".join(name for name, is_there in found.items() if is_there)
        models = f"; the server lists {', '.join(ids)}" if ids else ""
        return f"of the APIs we know it has {there or 'none'}{models}"


def _distinct(askings: Sequence[Asking], model: str | None) -> list[Asking]:
    """Each way to ask once, with its model."""
    found: list[Asking] = []
    for asking in askings:
        asking = replace(asking, model=asking.model or model)
        if not any(replace(one, name=asking.name) == asking for one in found):
            found.append(asking)
    return found


async def _nothing() -> None:
    return None


async def _differs(target: Target, api_key: str | None, timeouts: Timeouts, first: _Sight) -> str | None:
    """In what a further server is not as the first. Raises Unreachable."""
    async with inquire(target, api_key, timeouts.connect_s) as inquiry:
        response = await inquiry.ask("GET", "/v1/models", LIST_S)
        if response.status == 401:
            raise inquiry.refused(response)
        models = kind.listed(response.body) if response.status == 200 else None
        ids, of_first = ({model.id for model in found or ()} for found in (models, first.models))
        if ids != of_first:
            return f"{target.base_url} lists {', '.join(sorted(ids)) or 'no models'}"
        name = kind.named(models or (), response.headers)
        return None if name == first.name else f"{target.base_url} is {name or 'of another kind'}"


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
