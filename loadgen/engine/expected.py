"""How much of the answers still to come a newcomer must leave room for."""

from __future__ import annotations

from loadgen.engine.sequence import Sequence
from loadgen.knobs import ExpectedShare

_MOST_TOKENS = 4096  # of one answer, however long it may become (SGLang's clip)


class ExpectedAnswers:
    """SGLang's new-token ratio: what part of the answers still to come is expected to come."""

    def __init__(self, asked: ExpectedShare) -> None:
        self._start, self._end = asked.start, asked.end
        self._fall_per_step = (asked.start - asked.end) / asked.steps
        self._steps = 0

    def leaves_room(self, newcomer: Sequence, running: list[Sequence], free_blocks: int, size: int) -> bool:
        """A newcomer counts in full, those that run by their expected share."""
        coming = sum(min(s.asked_tokens - s.emitted_tokens, _MOST_TOKENS) for s in running)
        newcomer_tokens = newcomer.needed_tokens + min(
            newcomer.asked_tokens - newcomer.emitted_tokens, _MOST_TOKENS
        )
        share = max(self._end, self._start - self._fall_per_step * self._steps)
        return newcomer_tokens <= free_blocks * size - coming * share

    def passed(self, steps: int, *, starts_anew: bool) -> None:
        self._steps = 0 if starts_anew else self._steps + steps
