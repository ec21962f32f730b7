"""A decoder of the Llama family: one forward pass over pieces of many sequences, keys and values in pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear, rms_norm, scaled_dot_product_attention, silu

from loadgen.engine.model.shape import Shape
from loadgen.engine.model.weights import EMBEDDING, HEAD, NORM


class Piece(NamedTuple):
    """What one sequence computes in a pass: `ids` from position `start` on, and so many rows of `padding`,
    which are computed and forgotten. `blocks`: where its positions lie, in their order, up to the last of
    `ids`. `emits`: the next token is wanted.
    """

    ids: Sequence[int]
    start: int
    blocks: Sequence[int]
    emits: bool
    padding: int = 0


class _Layer(NamedTuple):
    norm: Tensor
    qkv: Tensor
    out: Tensor
    mlp_norm: Tensor
    gate_up: Tensor
    down: Tensor
    keys: Tensor  # (blocks, tokens of a block, KV heads, head size)
    values: Tensor


class _Rows(NamedTuple):
    """All pieces of a pass, one row a token."""

    stored: Tensor  # rows whose keys and values are kept
    into: Tensor  # and where
    gathered: Tensor  # blocks that pieces attend to, one piece after the other
    cos: Tensor
    sin: Tensor


class Decoder:
    """Weights, and `room` for keys and values: so many blocks of so many positions. All on one device."""

    def __init__(
        self,
        shape: Shape,
        weights: Mapping[str, Tensor],
        room: tuple[int, int],
        device: torch.device | str = "cpu",
    ) -> None:
        self._shape = shape
        self._device = torch.device(device)
        self._heads, self._kv_heads = shape.heads, shape.kv_heads
        on_device = {name: tensor.to(self._device) for name, tensor in weights.items()}
        self._embedding, self._norm = on_device[EMBEDDING], on_device[NORM]
        self._head = on_device[EMBEDDING if shape.is_tied else HEAD]
        self._block_tokens = room[1]
        self._layers = [self._layer(on_device, i, room) for i in range(shape.layers)]
        self._cos, self._sin = self._turns()

    def _layer(self, weights: Mapping[str, Tensor], i: int, room: tuple[int, int]) -> _Layer:
        """Products with the same factor are one product."""

        def of(*names: str) -> Tensor:
            found = [weights[f"model.layers.{i}.{name}.weight"] for name in names]
            return found[0] if len(found) == 1 else torch.cat(found)

        def pool() -> Tensor:
            size = (*room, self._kv_heads, self._shape.head_size)
            return torch.empty(size, dtype=self._embedding.dtype, device=self._device)

        return _Layer(
            of("input_layernorm"),
            of("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
            of("self_attn.o_proj"),
            of("post_attention_layernorm"),
            of("mlp.gate_proj", "mlp.up_proj"),
            of("mlp.down_proj"),
            pool(),
            pool(),
        )

    def _turns(self) -> tuple[Tensor, Tensor]:
        """Cosines and sines of RoPE by position; each half of a head turns alike."""
        shape = self._shape
        halves = torch.arange(0, shape.head_size, 2, dtype=torch.float32) / shape.head_size
        angles = torch.outer(torch.arange(shape.context, dtype=torch.float32), shape.rope_theta**-halves)
        both = torch.cat((angles, angles), dim=-1).to(self._device)
        return both.cos().to(self._embedding.dtype), both.sin().to(self._embedding.dtype)

    def next_tokens(self, pieces: Sequence[Piece]) -> list[int]:
        """Compute all pieces in one pass; the likeliest next token of each that emits, in their order."""
        with torch.inference_mode():
            found: list[int] = self.logits(pieces).argmax(dim=-1).tolist()
        return found

    def logits(self, pieces: Sequence[Piece]) -> Tensor:
        """The same, as a row of logits for each piece that emits."""
        ids = [token for piece in pieces for token in (*piece.ids, *[0] * piece.padding)]
        rows = self._rows(pieces)
        x = self._embedding[self._index(ids)]
        for layer in self._layers:
            x = self._through(layer, x, rows, pieces)
        ends, row = [], 0
        for piece in pieces:
            if piece.emits:
                ends.append(row + len(piece.ids) - 1)
            row += len(piece.ids) + piece.padding
        return linear(self._normed(x[self._index(ends)], self._norm), self._head)

    def _rows(self, pieces: Sequence[Piece]) -> _Rows:
        positions: list[int] = []
        stored: list[int] = []
        into: list[int] = []
        gathered: list[int] = []
        for piece in pieces:
            first, n = len(positions), len(piece.ids)
            stored.extend(range(first, first + n))
            into.extend(self._places(piece))
            if not _is_whole(piece):
                gathered.extend(piece.blocks)
            positions.extend(range(piece.start, piece.start + n))
            positions.extend([piece.start + n - 1] * piece.padding)
        at = self._index(positions)
        cos, sin = self._cos[at].unsqueeze(1), self._sin[at].unsqueeze(1)
        return _Rows(self._index(stored), self._index(into), self._index(gathered), cos, sin)

    def _places(self, piece: Piece) -> Iterator[int]:
        """Where its rows' keys and values go, the blocks laid end to end."""
        for position in range(piece.start, piece.start + len(piece.ids)):
            block, offset = divmod(position, self._block_tokens)
            yield piece.blocks[block] * self._block_tokens + offset

    def _index(self, numbers: Sequence[int]) -> Tensor:
        return torch.tensor(numbers, dtype=torch.long, device=self._device)

    def _normed(self, x: Tensor, weight: Tensor) -> Tensor:
        return rms_norm(x, (self._shape.hidden,), weight, self._shape.norm_epsilon)

    def _through(self, layer: _Layer, x: Tensor, rows: _Rows, pieces: Sequence[Piece]) -> Tensor:
        heads, kv_heads = self._heads, self._kv_heads
        qkv = linear(self._normed(x, layer.norm), layer.qkv).unflatten(-1, (-1, self._shape.head_size))
        q = _turned(qkv[:, :heads], rows)
        k = _turned(qkv[:, heads : heads + kv_heads], rows)
        v = qkv[:, heads + kv_heads :]
        layer.keys.flatten(0, 1).index_copy_(0, rows.into, k[rows.stored])
        layer.values.flatten(0, 1).index_copy_(0, rows.into, v[rows.stored])
        x = x + linear(self._attended(layer, q, k, v, rows, pieces), layer.out)
        gate, up = linear(self._normed(x, layer.mlp_norm), layer.gate_up).chunk(2, dim=-1)
        return x + linear(silu(gate) * up, layer.down)

    def _attended(
        self, layer: _Layer, q: Tensor, k: Tensor, v: Tensor, rows: _Rows, pieces: Sequence[Piece]
    ) -> Tensor:
        """Each piece to what is its own."""
        keys = layer.keys.index_select(0, rows.gathered).flatten(0, 1)
        values = layer.values.index_select(0, rows.gathered).flatten(0, 1)
        found, row, place = [], 0, 0
        for piece in pieces:
            end = row + len(piece.ids) + piece.padding
            if _is_whole(piece):
                found.append(_attention(q[row:end], k[row:end], v[row:end], None))
            else:
                known = place + piece.start + len(piece.ids)
                found.append(self._further(q[row:end], keys[place:known], values[place:known], piece))
                place += len(piece.blocks) * self._block_tokens
            row = end
        return torch.cat(found).flatten(1)

    def _further(self, q: Tensor, keys: Tensor, values: Tensor, piece: Piece) -> Tensor:
        """A token more, or a later piece of a prompt."""
        if len(q) > 1:
            seen = torch.ones(len(q), len(keys), dtype=torch.bool, device=self._device).tril(piece.start)
            return _attention(q, keys, values, seen)
        grouped = q.unflatten(1, (self._kv_heads, -1))  # heads that share a key attend as rows of one
        k, v = keys.transpose(0, 1).unsqueeze(0), values.transpose(0, 1).unsqueeze(0)
        return scaled_dot_product_attention(grouped, k, v).flatten(1, 2)


def _is_whole(piece: Piece) -> bool:
    """It starts a sequence: what it attends to is all in the pass."""
    return piece.start == 0 and len(piece.ids) + piece.padding > 1


def _attention(q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None) -> Tensor:
    """Rows to rows; `seen` None: each to itself and those before it."""
    q, k, v = (rows.transpose(0, 1).unsqueeze(0) for rows in (q, k, v))
    found = scaled_dot_product_attention(q, k, v, seen, is_causal=seen is None, enable_gqa=True)
    return found[0].transpose(0, 1)


def _turned(x: Tensor, rows: _Rows) -> Tensor:
    """By RoPE: each head's halves as real and imaginary parts."""
    half = x.shape[-1] // 2
    return x * rows.cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * rows.sin
