"""When an answer ends by itself: its length, drawn from the engine's law."""

from __future__ import annotations

import math

from loadgen.engine.chance import uniform
from loadgen.knobs import Engine
from loadgen.laws import Fixed, Uniform
from loadgen.laws.lengths import AnswerLaw


def answer_tokens(engine: Engine, asked: int, min_tokens: int, key: int) -> int:
    """Tokens of an answer that was asked for `asked` at most and `min_tokens` at least, its end of sequence
    not ignored. The engine's seed and `key` decide it; an engine without a law answers exactly `asked`.
    """
    if engine.eos is None:
        return asked
    return min(asked, max(min_tokens, quantile(engine.eos, uniform(engine.seed, "eos", key))))


def quantile(law: AnswerLaw, u: float) -> int:
    """The smallest number of tokens whose cumulative probability is above `u`, in [0, 1)."""
    if isinstance(law, Fixed):
        return law.tokens
    if isinstance(law, Uniform):
        return law.min + math.floor(u * (law.max - law.min + 1))
    # X = ceil(Y - offset), Y exponential and truncated to (0, cap + offset]: see TruncatedExponential.
    offset = 0.5 if law.rounding == "redraw" else 1 - law.min
    y = -law.mean * math.log1p(u * math.expm1(-(law.cap + offset) / law.mean))
    return min(max(math.ceil(y - offset), law.min), law.cap)
