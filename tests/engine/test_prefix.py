"""What a prefix cache knows a prompt by."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from loadgen.engine.prefix import block_hashes
from loadgen.engine.tokens import count_tokens, token_ids

TEXTS = st.binary(max_size=200)


def test_a_hash_is_the_same_in_every_process() -> None:
    """Written down once; Python's own hash of bytes differs from run to run."""
    assert block_hashes(b"sixteen bytes of", 2) == (8533333451894807335, 17407529001383436128)


@given(TEXTS, st.integers(1, 9))
def test_there_is_a_hash_for_each_whole_block_and_a_text_equals_its_ids(text: bytes, block: int) -> None:
    """As many as tokens // block, whether the prompt comes as a text or as what /tokenize makes of it."""
    hashes = block_hashes(text, block)
    assert len(hashes) == count_tokens(len(text)) // block
    assert hashes == block_hashes(token_ids(text), block)
    assert len(token_ids(text)) == count_tokens(len(text))


@given(TEXTS, TEXTS, TEXTS, st.integers(1, 5))
def test_hashes_agree_as_far_as_the_prompts_do(prefix: bytes, one: bytes, other: bytes, block: int) -> None:
    """Block k has the same hash exactly if all bytes up to its end are equal."""
    first, second = prefix + one, prefix + other
    padded = [text.ljust(4 * count_tokens(len(text)), b"\0") for text in (first, second)]
    for k, (a, b) in enumerate(zip(block_hashes(first, block), block_hashes(second, block), strict=False)):
        end = 4 * block * (k + 1)
        assert (a == b) == (padded[0][:end] == padded[1][:end])
