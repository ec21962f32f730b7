"""A real model's tokens, whatever the batching: against each other, and against the transformers library."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install '.[torch]'")

import torch

from loadgen.engine.batching import Idle, Scheduler, Sequence
from loadgen.engine.model import weights
from loadgen.engine.model.compute import Model
from loadgen.engine.model.decoder import Decoder, Piece
from loadgen.engine.model.shape import NAMED, Shape, bounded
from loadgen.knobs import Engine

pytestmark = pytest.mark.torch

SHAPE = NAMED["llama-1m"]
PAGED = {"reserve": "paged", "tokens": 160, "block_tokens": 8}
SETTINGS: dict[str, dict[str, Any]] = {
    "continuous": {},
    "small_budget": {"max_sequences": 6, "token_budget": 7, "prefill_chunk": 5},
    "list": {"order": "list", "token_budget": 16, "max_sequences": 8},
    "prefill_first": {"order": "prefill_first", "token_budget": 64, "prefill_chunk": 24},
    "hybrid": {"order": "hybrid", "prefill_chunk": None, "token_budget": 128},
    "preempted": {"kv": PAGED, "max_sequences": 8, "max_length": 128},
    "preempted_in_pieces": {"kv": PAGED, "max_sequences": 8, "prefill_chunk": 3, "max_length": 128},
    "static": {"batching": "static", "max_sequences": 5, "max_wait": "0s"},
    "static_of_run": {"batching": "static", "max_sequences": 5, "max_wait": "0s", "pad": "run"},
    "static_unpadded": {"batching": "static", "max_sequences": 5, "max_wait": "0s", "pad": "none"},
    "dynamic": {"batching": "dynamic", "max_sequences": 4, "preferred_sizes": [2], "release": "batch"},
    "reserved": {
        "batching": "static",
        "max_sequences": 6,
        "max_wait": "0s",
        "kv": {"reserve": "completion", "tokens": 256, "block_tokens": 8},
    },
}


def engine(**knobs: Any) -> Engine:
    asked = {"model": "torch:llama-1m", "compute": {"dtype": "float32", "device": "cpu", "threads": 1}}
    return bounded(Engine.model_validate(asked | knobs))


def asked(n: int = 12) -> list[Sequence]:
    """Prompts of 1 to 60 tokens and answers of 1 to 25, the same each time."""
    chance, found = random.Random(7), []
    for number in range(n):
        prompt = [chance.randrange(SHAPE.vocabulary) for _ in range(chance.choice((1, 3, 17, 40, 60)))]
        sequence = Sequence(number, len(prompt), chance.randint(1, 25))
        sequence.tokens = prompt
        found.append(sequence)
    return found


def drive(
    of: Engine, model: Model, sequences: list[Sequence], cancel: dict[int, int] | None = None
) -> Scheduler:
    """Compute all of them, half of them coming later; `cancel`: whom in the middle of which step."""
    scheduler, steps, later = Scheduler(of), 0, list(sequences[len(sequences) // 2 :])
    for sequence in sequences[: len(sequences) // 2]:
        scheduler.add(sequence, 0.0)
    while True:
        if later and steps % 3 == 2:
            scheduler.add(later.pop(0), float(steps))
        step = scheduler.next_step(float(steps))
        model.keep(scheduler.running)
        if isinstance(step, Idle):
            if not later and math.isinf(step.until_s):
                return scheduler
            steps += 1
            continue
        if cancel and steps in cancel:
            scheduler.cancel(cancel[steps])
        model.compute(step)
        scheduler.finish(step)
        steps += 1


@pytest.fixture(scope="module")
def alone() -> list[list[int]]:
    """Each prompt's tokens with nobody beside it."""
    found = []
    for sequence in asked():
        drive(engine(), Model(engine()), [sequence])
        found.append(sequence.tokens)
    return found


@pytest.mark.parametrize("name", SETTINGS)
def test_tokens_are_the_same_whatever_the_batching(name: str, alone: list[list[int]]) -> None:
    """Static, dynamic, continuous, in pieces, preempted and computed anew: what each prompt gets alone."""
    of, sequences = engine(**SETTINGS[name]), asked()
    model = Model(of)
    blocks = model.pages.free_blocks
    scheduler = drive(of, model, sequences)
    assert [s.tokens[: s.prompt_tokens + s.output_tokens] for s in sequences] == alone
    assert model.pages.free_blocks == blocks
    assert (scheduler.preemptions > 0) == name.startswith("preempted")


def test_tokens_are_those_of_the_transformers_library(alone: list[list[int]]) -> None:
    """The same weights in LlamaForCausalLM, greedily, one prompt at a time."""
    transformers = pytest.importorskip("transformers")
    reference = peer(transformers, SHAPE, weights.load(SHAPE, 0, torch.float32))
    for sequence, mine in zip(asked(), alone, strict=True):
        prompt = torch.tensor([sequence.tokens])
        with torch.inference_mode():
            found = reference.generate(
                prompt,
                attention_mask=torch.ones_like(prompt),
                max_new_tokens=sequence.output_tokens,
                do_sample=False,
                eos_token_id=None,
                pad_token_id=0,
            )
        assert found[0].tolist() == mine


def peer(transformers: Any, shape: Shape, tensors: dict[str, torch.Tensor]) -> Any:
    config = transformers.LlamaConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.inner,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_size,
        max_position_embeddings=shape.context,
        rms_norm_eps=shape.norm_epsilon,
        rope_parameters={"rope_type": "default", "rope_theta": shape.rope_theta},
        tie_word_embeddings=shape.is_tied,
    )
    found = transformers.LlamaForCausalLM(config).eval()
    missing = found.load_state_dict(tensors, strict=False)
    assert missing.unexpected_keys == []
    assert set(missing.missing_keys) <= {weights.HEAD}
    found.tie_weights()
    return found


@pytest.mark.parametrize("is_tied", [False, True])
def test_logits_are_those_of_the_transformers_library(is_tied: bool) -> None:
    """A prompt in three pieces beside another's, in blocks out of order: to a part in ten thousand."""
    transformers = pytest.importorskip("transformers")
    shape = Shape(300, 48, 80, 3, 6, 2, 8, context=64, rope_theta=500.0, norm_epsilon=1e-5, is_tied=is_tied)
    tensors = weights.load(shape, 3, torch.float32)
    decoder = Decoder(shape, tensors, (16, 4))
    ids = [(17 * i + 5) % 300 for i in range(20)]
    blocks, other = [9, 2, 15, 7, 4], [3, 11]
    decoder.next_tokens([Piece(ids[:7], 0, blocks[:2], emits=False), Piece(ids[3:9], 0, other, emits=True)])
    decoder.next_tokens([Piece(ids[7:19], 7, blocks, emits=False), Piece([1], 6, other, emits=True)])
    with torch.inference_mode():
        mine = decoder.logits([Piece([2], 7, other, emits=True), Piece(ids[19:], 19, blocks, emits=True)])
        theirs = peer(transformers, shape, tensors)(torch.tensor([ids])).logits[0, -1]
    assert (mine[1] - theirs).abs().max() < 1e-4 * theirs.abs().max()


@pytest.mark.parametrize("name", ["continuous", "preempted", "static"])
def test_who_is_cancelled_leaves_no_block(name: str, alone: list[list[int]]) -> None:
    """Three are cancelled in the middle of a step; the others' tokens are untouched, all blocks are free."""
    of, sequences = engine(**SETTINGS[name]), asked()
    model = Model(of)
    blocks = model.pages.free_blocks
    drive(of, model, sequences, cancel={1: 0, 4: 3, 9: 2})
    assert model.pages.free_blocks == blocks
    assert any(s.cancelled for s in sequences)
    for sequence, mine in zip(sequences, alone, strict=True):
        if not sequence.cancelled:
            assert sequence.tokens[: len(mine)] == mine
