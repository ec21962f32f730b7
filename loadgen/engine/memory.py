"""The memory for keys and values: blocks, who holds how many, and prefixes that several may share."""

from __future__ import annotations

from collections.abc import Iterable

from loadgen.engine.expected import ExpectedAnswers
from loadgen.engine.sequence import Sequence
from loadgen.knobs import Kv


class Memory:
    """`tokens` positions in whole blocks. What a sequence holds is counted in its `blocks`.

    A block of a prompt that was computed is known by its hash, where there is a prefix cache: sequences with
    the same prefix hold it together, and when nobody holds it any more it stays until its place is needed,
    the least recently used first.
    """

    def __init__(self, kv: Kv, tokens: int, max_length: int | None, *, is_padded: bool = False) -> None:
        self._kv = kv
        self._is_padded = is_padded
        self._block_tokens = kv.block_tokens
        self._max_length = max_length
        self._is_paged = kv.reserve == "paged"
        self._hashing = kv.prefix_cache
        self.total_blocks = tokens // kv.block_tokens
        self._kept_free = int(kv.watermark * self.total_blocks)
        self._empty = self.total_blocks
        self._holders: dict[int, int] = {}  # by hash: how many sequences hold this block
        self._idle: dict[int, None] = {}  # hashes of blocks that nobody holds, the least recently used first
        # By sequence: hashes of its first blocks, None for one of its own.
        self._shared: dict[int, list[int | None]] = {}
        self._share = ExpectedAnswers(kv.expected_share) if kv.expected_share else None

    @property
    def free_blocks(self) -> int:
        return self._empty + len(self._idle)

    @property
    def used_blocks(self) -> int:
        return self.total_blocks - self.free_blocks

    def blocks(self, tokens: int) -> int:
        return -(-tokens // self._block_tokens)

    def most_blocks(self, sequence: Sequence) -> int:
        """What it may come to hold."""
        if self._is_paged:
            return self.blocks(sequence.prompt_tokens + sequence.asked_tokens)
        return self.blocks(self._reserved_tokens(sequence))

    def cached_tokens(self, sequence: Sequence) -> int:
        """Positions of its prompt that need not be computed: at least one token is always left to do."""
        return self._hits(sequence) * self._block_tokens if self._hashing else 0

    def fits(self, sequence: Sequence, running: list[Sequence], without: Iterable[Sequence] = ()) -> bool:
        """Whether it may come in beside the `running` ones, if those `without` whom went. Paged, all that it
        knows so far must fit, though it is taken only as it is computed. Reserved and padded, so must what
        fills all up to the longest.
        """
        free = self.free_blocks + sum(self._alone_held(s, sequence) for s in without)
        if not self._is_paged:
            padding = _padding([*running, sequence]) if self._is_padded else 0
            return self.blocks(self._reserved_tokens(sequence) + padding) <= free
        wanted = self.blocks(sequence.known_tokens)
        if self._hashing:
            hits = sequence.prefix[: self._hits(sequence)]
            wanted -= len(hits)
            free -= sum(block in self._idle for block in hits)
        if running:
            free -= self._kept_free
            if self._share and not self._share.leaves_room(sequence, running, free, self._block_tokens):
                return False
        return wanted <= free

    def _alone_held(self, victim: Sequence, newcomer: Sequence) -> int:
        """Blocks that its going would give to the newcomer for certain: neither shared with others nor wanted
        by the newcomer itself.
        """
        shared = [block for block in self._shared.get(victim.id, ()) if block is not None]
        kept = sum(self._holders[block] > 1 or block in newcomer.prefix for block in shared)
        return victim.blocks - kept

    def admit(self, sequence: Sequence) -> None:
        """Hold what `fits` found room for: the whole reservation, or the positions that are there already."""
        if not self._is_paged:
            self._take(sequence, self.blocks(self._reserved_tokens(sequence)))
            return
        if self._hashing and (hits := self._hits(sequence)):
            self._share_prefix(sequence, hits)
        self.grow(sequence, sequence.computed_tokens)

    def grow(self, sequence: Sequence, tokens: int) -> bool:
        """Paged: hold enough for `tokens` positions, if it can be had. Otherwise it holds all it needs."""
        return not self._is_paged or self._take(sequence, self.blocks(tokens) - sequence.blocks)

    def grow_all(self, sequences: Iterable[Sequence], ahead_tokens: int) -> bool:
        """The same for several at once and `ahead_tokens` more positions each: all of them or none."""
        if not self._is_paged:
            return True
        size = self._block_tokens
        short = [s for s in sequences if s.computed_tokens + ahead_tokens > s.blocks * size]
        more = [self.blocks(s.computed_tokens + ahead_tokens) - s.blocks for s in short]
        if sum(more) > self.free_blocks:
            return False
        for sequence, blocks in zip(short, more, strict=True):
            self._take(sequence, blocks)
        return True

    def _take(self, sequence: Sequence, more: int) -> bool:
        if more <= 0:
            return True
        if more > self.free_blocks:
            return False
        for _ in range(more - self._empty):
            del self._idle[next(iter(self._idle))]
            self._empty += 1
        self._empty -= more
        sequence.blocks += more
        return True

    def free(self, sequence: Sequence) -> None:
        """Nothing of it is held any more."""
        own = sequence.blocks
        for block in reversed(self._shared.pop(sequence.id, [])):  # so that a prefix outlives what follows it
            if block is None:
                continue
            own -= 1
            self._holders[block] -= 1
            if not self._holders[block]:
                del self._holders[block]
                self._idle[block] = None
        self._empty += own
        sequence.blocks = 0

    def grows_for(self, decoding: list[Sequence], most: int) -> int:
        """How many of `most` steps in a row all of `decoding` may compute a token each before the free blocks
        run out. The first is paid for already.
        """
        if not self._is_paged or self._wanted(decoding, most) <= self.free_blocks:
            return most
        fit, misfit = 1, most
        while misfit - fit > 1:
            middle = (fit + misfit) // 2
            if self._wanted(decoding, middle) <= self.free_blocks:
                fit = middle
            else:
                misfit = middle
        return fit

    def _wanted(self, decoding: list[Sequence], steps: int) -> int:
        size = self._block_tokens
        return sum(-(-(s.computed_tokens + steps) // size) - s.blocks for s in decoding)

    # --- prefixes -------------------------------------------------------------------------------------------

    def _hits(self, sequence: Sequence) -> int:
        most = (sequence.known_tokens - 1) // self._block_tokens
        hits = 0
        for block in sequence.prefix[:most]:
            if block not in self._holders and block not in self._idle:
                break
            hits += 1
        return hits if hits * self._block_tokens > sequence.computed_tokens else 0

    def _share_prefix(self, sequence: Sequence, hits: int) -> None:
        for block in sequence.prefix[:hits]:
            self._idle.pop(block, None)
            self._holders[block] = self._holders.get(block, 0) + 1
        self._shared[sequence.id] = list(sequence.prefix[:hits])
        sequence.blocks = hits
        sequence.computed_tokens = hits * self._block_tokens
        if not sequence.preemptions:
            sequence.cached_tokens = sequence.computed_tokens

    def remember(self, sequence: Sequence) -> None:
        """What it has computed of its prompt may be shared from now on."""
        if not self._hashing:
            return
        mine = self._shared.setdefault(sequence.id, [])
        whole = min(sequence.computed_tokens // self._block_tokens, len(sequence.prefix))
        for block in sequence.prefix[len(mine) : whole]:
            if block in self._holders or block in self._idle:  # somebody computed the same meanwhile
                mine.append(None)
            else:
                self._holders[block] = 1
                mine.append(block)

    # --- what a newcomer must leave free --------------------------------------------------------------------

    def _reserved_tokens(self, sequence: Sequence) -> int:
        tokens = self._wanted_tokens(sequence)
        return _power_of_two(tokens) if self._kv.buddy else tokens

    def _wanted_tokens(self, sequence: Sequence) -> int:
        prompt, kind = sequence.prompt_tokens, self._kv.reserve
        if kind == "max_length":
            assert self._max_length is not None
            return self._max_length
        if kind == "power_of_two":
            return prompt + _power_of_two(sequence.output_tokens)
        return prompt + (sequence.output_tokens if kind == "exact" else sequence.asked_tokens)

    @property
    def changes_its_mind(self) -> bool:
        """Who was refused may be admitted later though nothing was freed."""
        return self._share is not None or self._is_padded

    def passed(self, steps: int, *, is_idle: bool, preempted: bool) -> None:
        """So many steps were computed; the last left nothing running; or memory ran out before it."""
        if self._share:
            self._share.passed(steps, starts_anew=is_idle or preempted)


def _power_of_two(tokens: int) -> int:
    return 1 << (tokens - 1).bit_length()


def _padding(sequences: list[Sequence]) -> int:
    known = [sequence.known_tokens for sequence in sequences]
    return len(known) * max(known) - sum(known)
