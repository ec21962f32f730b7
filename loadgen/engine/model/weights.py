"""A model's weights by the names that safetensors files of Llama have: random, or read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from loadgen.engine.model.shape import Shape
from loadgen.scenario import ScenarioError

EMBEDDING, NORM, HEAD = "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"


def load(shape: Shape, seed: int, dtype: torch.dtype) -> dict[str, Tensor]:
    """All of them. Raises ScenarioError where a folder's are not those of its config.json."""
    if shape.folder is None:
        return _random(shape, seed, dtype)
    found = _read(shape.folder)
    for name, size in sizes(shape):
        if name not in found:
            raise ScenarioError(f"engine.model: {shape.folder} has no weights {name}")
        if tuple(found[name].shape) != size:
            has = list(found[name].shape)
            raise ScenarioError(
                f"engine.model: {shape.folder}: {name} is {has}, its config says {list(size)}"
            )
    return {name: found[name].to(dtype) for name, _ in sizes(shape)}


def sizes(shape: Shape) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Every tensor's name and size."""
    hidden, inner, q, kv = (
        shape.hidden,
        shape.inner,
        shape.heads * shape.head_size,
        shape.kv_heads * shape.head_size,
    )
    yield EMBEDDING, (shape.vocabulary, hidden)
    for i in range(shape.layers):
        layer = f"model.layers.{i}."
        yield f"{layer}input_layernorm.weight", (hidden,)
        yield f"{layer}self_attn.q_proj.weight", (q, hidden)
        yield f"{layer}self_attn.k_proj.weight", (kv, hidden)
        yield f"{layer}self_attn.v_proj.weight", (kv, hidden)
        yield f"{layer}self_attn.o_proj.weight", (hidden, q)
        yield f"{layer}post_attention_layernorm.weight", (hidden,)
        yield f"{layer}mlp.gate_proj.weight", (inner, hidden)
        yield f"{layer}mlp.up_proj.weight", (inner, hidden)
        yield f"{layer}mlp.down_proj.weight", (hidden, inner)
    yield NORM, (hidden,)
    if not shape.is_tied:
        yield HEAD, (shape.vocabulary, hidden)


def _random(shape: Shape, seed: int, dtype: torch.dtype) -> dict[str, Tensor]:
    """The same for the same seed: norms are ones, all else normal, so that what passes keeps its size."""
    generator = torch.Generator().manual_seed(seed)

    def made(size: tuple[int, ...]) -> Tensor:
        if len(size) == 1:
            return torch.ones(size, dtype=dtype)
        return torch.randn(size, generator=generator).mul_(size[1] ** -0.5).to(dtype)

    return {name: made(size) for name, size in sizes(shape)}


def _read(folder: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ScenarioError(f"engine.model: {folder} has no *.safetensors")
    found: dict[str, Tensor] = {}
    for path in files:
        try:
            found |= load_file(path)
        except (OSError, SafetensorError) as problem:
            raise ScenarioError(f"engine.model: {path} cannot be read: {problem}") from None
    return found
