"""How many of a server's tokens a synthetic word is, from its own count of two small prompts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import numpy as np

from loadgen.plan import Plan
from loadgen.prompts import Prompts
from loadgen.workload.words import WordTokens, census


class UncountedError(Exception):
    """Why it is not known how many tokens a prompt is to the server."""


async def calibrate(
    count: Callable[[str], Awaitable[int]], mean_tokens: float, salt: str
) -> tuple[WordTokens | None, str]:
    """What the server's count of two prompts says, and a note about it for the user; None where it says
    nothing. `count` asks for the tokens of a prompt, or raises UncountedError. `mean_tokens`: of the load's
    prompts. Both prompts are salted, and a cache that answers some of one changes no count.
    """
    try:
        texts = [census(times, f"{salt} {times}") for times in (1, 2)]
        found = _solved([(len(text.split()), await count(text)) for text in texts])
    except UncountedError as why:
        return None, f"prompts are uncalibrated, each word is taken for a token: {why}"
    miss = found.miss(mean_tokens)
    return found, (
        f"prompts: the server counts {found.says}: "
        f"lengths of {mean_tokens:.0f} will be off by about {miss:.1%} each"
    )


def _solved(counts: list[tuple[int, int]]) -> WordTokens:
    """tokens = overhead + per_word x words, from two pairs of words and tokens."""
    (few, tokens), (many, more_tokens) = counts
    per_word = (more_tokens - tokens) / (many - few)
    if per_word <= 0:
        raise UncountedError(
            f"the server counts {tokens} tokens for {few} words, and {more_tokens} for {many}"
        )
    return WordTokens(per_word, tokens - per_word * few)


def mean_of_words(plan: Plan) -> float | None:
    """The mean tokens of the plan's prompts that are made of words to be calibrated; None without any."""
    recipe = plan.prompts
    styles = recipe.styles or (Prompts(),) * max(1, len(plan.classes))
    wanted = np.array([style.kind == "words" and style.calibrate for style in styles])[plan.class_id]
    if recipe.texts is not None:
        is_written = np.array([text is not None for text in (*recipe.texts, None)])  # the last is of NONE
        wanted &= ~is_written[plan.source]
    own_tokens = (plan.prompt_tokens - plan.history_tokens)[wanted]
    return float(own_tokens.mean()) if len(own_tokens) else None
