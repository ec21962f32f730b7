"""A ladder of concurrency: what the steps of a live server take, as its streams show it.

Decodes: N requests start at once, and count only while all N decode; then each step gives each of them a
token. Prompts: one alone on the idle server is one step of its length, so its TTFT is that step and what
else a request costs (HTTP, tokenizing, scheduling). That remainder is the TTFT of a prompt of a few tokens
less what a step of as many decodes takes, and is taken off all the others; a prompt is no shorter a step than
the shortest of decodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from loadgen.engine.fit import Measured
from loadgen.load import Load
from loadgen.records import Floats, Records
from loadgen.run import Run
from loadgen.scenario import Scenario, ScenarioError

LEVELS = (1, 2, 4, 8, 16)
PROMPTS = (64, 256, 1024)
_AGAIN = 3  # times that each prompt is asked
_STEPS = 8  # that a row is the mean of

Measure = Callable[[Scenario, str], Run]
"""Makes the run of a scenario, and calls it so."""


class Rung(NamedTuple):
    """Steps of one kind: their rows, or why there are none."""

    of: str
    rows: list[Measured]
    why_not: str = ""

    @property
    def mean_s(self) -> float:
        return float(np.mean([row.seconds for row in self.rows]))


def climb(
    scenario: Scenario,
    measure: Measure,
    *,
    levels: Sequence[int] = LEVELS,
    prompt_tokens: int = 64,
    output_tokens: int = 128,
    prompts: Sequence[int] = PROMPTS,
) -> Iterator[Rung]:
    """Each rung as it is measured: the levels from the lowest, then the prompts. The load of `scenario` is of
    no account.

    Raises ScenarioError where no level tells of a step: there is nothing to take prompts' overhead by.
    """
    measure(_burst(scenario, min(2, max(levels)), prompt_tokens, 8), "warm-up")
    decodes: list[Measured] = []
    for streams in sorted(set(levels)):
        run = measure(_burst(scenario, streams, prompt_tokens, output_tokens), f"streams-{streams}")
        rung = together(run.records, streams)
        decodes += rung.rows
        yield rung
    if not decodes:
        raise ScenarioError("ladder: no streams decoded together: ask for longer answers or fewer streams")
    request_s = _request_s(measure(_alone(scenario, 1), "prompt-1").records, decodes)
    least_s = min(row.seconds for row in decodes)
    for tokens in sorted(set(prompts)):
        records = measure(_alone(scenario, tokens), f"prompt-{tokens}").records
        yield _prompt(records, tokens, request_s, least_s)


def _burst(scenario: Scenario, streams: int, prompt_tokens: int, output_tokens: int) -> Scenario:
    return _with(
        scenario,
        arrivals={"kind": "burst"},
        num_requests=streams,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
    )


def _alone(scenario: Scenario, prompt_tokens: int) -> Scenario:
    return _with(
        scenario,
        arrivals={"kind": "closed", "concurrency": 1},
        num_requests=_AGAIN,
        prompt_tokens=prompt_tokens,
        output_tokens=2,
    )


def _with(scenario: Scenario, **load: Any) -> Scenario:
    return scenario.model_copy(update={"load": Load.model_validate({"tail": False, **load})})


# --- streams ------------------------------------------------------------------------------------------------


def together(records: Records, streams: int) -> Rung:
    """The steps in which all of the `streams` decode, some a row."""
    ok = records.only(records.answered & (records.output_tokens > 1))
    named = f"{streams} streams"
    if len(ok) < streams:
        return Rung(named, [], f"only {len(ok)} were answered")
    begin_s, end_s = ok.first_token_s.max(), ok.last_token_s.min()
    grown = [_grown(ok, row) for row in range(streams)]
    steps = _given(grown, np.array([begin_s, end_s])).mean(axis=0) if begin_s < end_s else np.zeros(2)
    n = int(steps[1] - steps[0]) // _STEPS
    if n < 1:
        return Rung(named, [], f"fewer than {_STEPS} steps had all of them: longer answers, or more slots")
    edges_s = np.linspace(begin_s, end_s, n + 1)
    given = _given(grown, edges_s)
    contexts = _prompt_tokens(ok).sum() + (given[:, :-1] + given[:, 1:]).sum(axis=0) / 2
    seconds = np.diff(edges_s) / np.diff(given.mean(axis=0))
    rows = zip(contexts.tolist(), seconds.tolist(), strict=True)
    return Rung(named, [Measured(streams, contexts, seconds) for contexts, seconds in rows])


def _grown(ok: Records, row: int) -> tuple[Floats, Floats]:
    """A stream's instants, and its tokens up to each. Events may hold several: they are shared out evenly."""
    gaps_us = ok.gaps_us[ok.gap_start[row] : ok.gap_start[row + 1]]
    at_s = ok.first_token_s[row] + np.concatenate([[0], np.cumsum(gaps_us, dtype=np.float64)]) / 1e6
    return at_s, np.linspace(1, ok.output_tokens[row], len(at_s))


def _given(grown: list[tuple[Floats, Floats]], at_s: Floats) -> Floats:
    """Tokens that each stream had got at each instant, [streams, instants]."""
    return np.array([np.interp(at_s, *stream) for stream in grown])


# --- prompts ------------------------------------------------------------------------------------------------


def _request_s(records: Records, decodes: list[Measured]) -> float:
    """What a request takes beside its step, by prompts that are as short as may be."""
    ttft_s, tokens = _first(records)
    levels = sorted({row.tokens for row in decodes})
    means = [np.mean([row.seconds for row in decodes if row.tokens == level]) for level in levels]
    return max(0.0, float(np.median(ttft_s - np.interp(tokens, levels, means)))) if len(ttft_s) else 0.0


def _prompt(records: Records, tokens: int, request_s: float, least_s: float) -> Rung:
    ttft_s, got = _first(records)
    named = f"prompts of {tokens} tokens"
    if not len(ttft_s):
        said = next((error for error in records.error if error), "no answer")
        return Rung(named, [], said)
    seconds = np.maximum(ttft_s - request_s, least_s)
    return Rung(named, [Measured(n, 0, s) for n, s in zip(got.tolist(), seconds.tolist(), strict=True)])


def _first(records: Records) -> tuple[Floats, Floats]:
    """TTFT from sending and the prompt's tokens, of those answered. The answer may come before the client
    sees that all was sent.
    """
    ok = records.only(records.answered & ~np.isnan(records.first_token_s))
    return ok.first_token_s - np.fmin(ok.sent_s, ok.headers_s), _prompt_tokens(ok)


def _prompt_tokens(ok: Records) -> Floats:
    return np.where(np.isnan(ok.prompt_tokens), ok.asked_prompt_tokens, ok.prompt_tokens)


def as_csv(rows: Sequence[Measured]) -> str:
    """The rows as `loadgen engines fit` reads them."""
    lines = [f"{tokens:g},{contexts:.6g},{seconds:.6g}" for tokens, contexts, seconds in rows]
    return "\n".join([",".join(Measured._fields), *lines, ""])
