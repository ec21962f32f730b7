"""Steps that a real model computes, in a thread of their own; they take as long as they take."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import torch

from loadgen.engine.device import Clock
from loadgen.engine.dialect import Ask, Refusal
from loadgen.engine.model.decoder import Decoder, Piece
from loadgen.engine.model.pages import Pages
from loadgen.engine.model.shape import Shape, find
from loadgen.engine.model.vocabulary import Vocabulary
from loadgen.engine.model.weights import load
from loadgen.engine.sequence import Sequence, Step
from loadgen.knobs import Engine
from loadgen.scenario import ScenarioError

_BLOCK_TOKENS = 16  # where no knob says
_WARM = (1, 2, 8, 64)  # rows of passes before the first request: libraries prepare themselves for each size


class Model:
    """The `model` of an engine that is `bounded` by it, ready to compute.

    Raises ScenarioError where there is no such model, torch or device, and where its KV would not fit.
    """

    def __init__(self, engine: Engine) -> None:
        assert engine.model is not None
        shape = find(engine.model)
        self._device = device(engine)
        self.vocabulary = Vocabulary(shape)
        self.pages = _pages(engine)
        torch.set_num_threads(engine.compute.threads or max(1, (os.cpu_count() or 1) - 1))
        self._ends = frozenset(shape.ends)
        self._decoder = self._loaded(shape, engine)
        self._thread = ThreadPoolExecutor(1, "model")

    def _loaded(self, shape: Shape, engine: Engine) -> Decoder:
        room, dtype = (self.pages.free_blocks, self.pages.block_tokens), _dtype(engine, self._device)
        places = room[0] * room[1]
        kv_bytes = places * shape.kv_numbers * dtype.itemsize
        has_bytes = _memory_bytes(self._device)
        if kv_bytes > has_bytes:
            raise ScenarioError(
                f"engine.kv: keys and values of {places:,} positions take {kv_bytes / 1e9:.1f} GB, and "
                f"{self._device} has {has_bytes / 1e9:.1f}: give fewer kv.tokens, max_length or max_sequences"
            )
        decoder = Decoder(shape, load(shape, engine.seed, dtype), room, self._device)
        for rows in _WARM:
            rows = min(rows, places, shape.context)
            decoder.next_tokens([Piece([0] * rows, 0, range(room[0]), emits=True)])
        return decoder

    def read(self, ask: Ask) -> Ask:
        """The same with its prompt in the model's own ids. Raises Refusal for what its answer cannot have."""
        if ask.stop:
            raise Refusal(400, "stop strings are not looked for in a model's own words", param="stop")
        return msgspec.structs.replace(ask, prompt=self.vocabulary.ids(ask.prompt))

    async def run(self, step: Step, _start_s: float, clock: Clock) -> float:
        """Compute it in the thread; when we know of its end: there is none that it was due to have."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self.compute, step)
        return clock.now_s()

    def compute(self, step: Step) -> None:
        """Append a token to each sequence that emits one, and tell it where that is its last."""
        for sequence in step.preempted:
            self.pages.free(sequence.id)
        parts = [(s, len(s.tokens) - 1, 1) for s in step.decode]
        parts += [(s, start, tokens) for s, start, tokens, _ in step.prefill]
        emits = {sequence.id for sequence in step.emits}
        told = self._decoder.next_tokens([self._piece(*part, emits=part[0].id in emits) for part in parts])
        emitting = [sequence for sequence, _, _ in parts if sequence.id in emits]
        for sequence, token in zip(emitting, told, strict=True):
            sequence.tokens.append(token)
            emitted = sequence.emitted_tokens + 1
            if token in self._ends and sequence.ends_from is not None and emitted >= sequence.ends_from:
                sequence.output_tokens = emitted

    def _piece(self, sequence: Sequence, start: int, tokens: int, *, emits: bool) -> Piece:
        """What is asked for beyond what it knows is padding."""
        ids = sequence.tokens[start : start + tokens]
        blocks = self.pages.blocks(sequence.id, start + len(ids))
        return Piece(ids, start, blocks, emits, tokens - len(ids))

    def keep(self, running: Iterable[Sequence]) -> None:
        """Nobody else's keys and values are needed."""
        self.pages.keep(sequence.id for sequence in running)

    def close(self) -> None:
        """When the step that runs has ended."""
        self._thread.shutdown()


def device(engine: Engine) -> torch.device:
    """Where its model is computed. Raises ScenarioError for a GPU that is not there."""
    asked = engine.compute.device
    has_gpu = torch.cuda.is_available()
    if asked == "cuda" and not has_gpu:
        raise ScenarioError("engine.compute.device: torch finds no GPU here: cpu, or auto")
    return torch.device("cuda" if has_gpu and asked != "cpu" else "cpu")


def _dtype(engine: Engine, on: torch.device) -> torch.dtype:
    asked = engine.compute.dtype
    if asked != "auto":
        return torch.float32 if asked == "float32" else torch.bfloat16
    return torch.bfloat16 if on.type == "cuda" or _has_bfloat16() else torch.float32


def _has_bfloat16() -> bool:
    """Whether the CPU multiplies it; one that does not takes longer over it than over float32."""
    facts = Path("/proc/cpuinfo")
    return facts.is_file() and "avx512_bf16" in facts.read_text(encoding="utf-8")


def _pages(engine: Engine) -> Pages:
    """As much as the scheduler counts; where it counts nothing, as much as its slots can come to hold."""
    if engine.kv is not None:
        assert engine.kv.tokens is not None, "the engine's own rule: a model's KV is counted in tokens"
        return Pages(engine.kv.tokens // engine.kv.block_tokens, engine.kv.block_tokens)
    assert engine.max_length is not None
    return Pages(engine.max_sequences * -(-engine.max_length // _BLOCK_TOKENS), _BLOCK_TOKENS)


def _memory_bytes(on: torch.device) -> int:
    if on.type == "cuda":
        return int(torch.cuda.mem_get_info(on)[0])
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
