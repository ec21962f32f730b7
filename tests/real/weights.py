"""A small Llama with random weights, made on the spot: as GGUF, and as a folder in Hugging Face's way."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.real.tokenizer import BEGIN, END, PAD, SPECIAL, TEMPLATE, UNKNOWN, VOCABULARY, tokenizer

CONTEXT = 2048
EPSILON = 1e-6
Matrix = NDArray[np.float32]


@dataclass(frozen=True)
class Size:
    """`spread`: of the weights; wide enough that the next token is not the same for ever."""

    hidden: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    spread: float

    @property
    def head(self) -> int:
        return self.hidden // self.heads


SIZES = {
    "tiny": Size(hidden=128, inner=384, layers=2, heads=4, kv_heads=2, spread=0.1),  # 1.4 M weights
    "mid": Size(hidden=1024, inner=2816, layers=12, heads=16, kv_heads=4, spread=0.02),  # 144 M
}

# Of a layer: its name with Hugging Face, and in GGUF.
NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
OUTER = {"embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output"}


def _tensors(size: Size) -> Iterator[tuple[str | None, str, Matrix]]:
    """Each: its layer, its name with Hugging Face, its values. Always the same ones."""
    chance = np.random.default_rng(0)
    kv = size.kv_heads * size.head
    shapes = [
        *((size.hidden, size.hidden), (kv, size.hidden), (kv, size.hidden), (size.hidden, size.hidden)),
        *((size.inner, size.hidden), (size.inner, size.hidden), (size.hidden, size.inner)),
        *((size.hidden,), (size.hidden,)),
    ]
    outer = [(VOCABULARY, size.hidden), (size.hidden,), (VOCABULARY, size.hidden)]
    places: list[tuple[str | None, str, tuple[int, ...]]] = [
        *((None, name, shape) for name, shape in zip(OUTER, outer, strict=True)),
        *((str(n), name, s) for n in range(size.layers) for name, s in zip(NAMES, shapes, strict=True)),
    ]
    for layer, name, shape in places:
        is_norm = len(shape) == 1
        drawn = np.ones(shape) if is_norm else chance.standard_normal(shape, np.float32) * size.spread
        yield layer, name, drawn.astype(np.float32)


def write_gguf(path: Path, name: str) -> None:
    """For llama.cpp, in half precision."""
    import gguf

    size = SIZES[name]
    out = gguf.GGUFWriter(path, "llama")
    out.add_name(name)
    out.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    out.add_context_length(CONTEXT)
    out.add_embedding_length(size.hidden)
    out.add_feed_forward_length(size.inner)
    out.add_block_count(size.layers)
    out.add_head_count(size.heads)
    out.add_head_count_kv(size.kv_heads)
    out.add_layer_norm_rms_eps(EPSILON)
    out.add_rope_dimension_count(size.head)
    out.add_vocab_size(VOCABULARY)
    _add_tokenizer(out)
    for layer, tensor, values in _tensors(size):
        at = OUTER[tensor] if layer is None else f"blk.{layer}.{NAMES[tensor]}"
        if tensor.endswith(("q_proj", "k_proj")):
            values = _interleaved(values, size.head)
        out.add_tensor(f"{at}.weight", values if values.ndim == 1 else values.astype(np.float16))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def _add_tokenizer(out: Any) -> None:
    import gguf

    learned = tokenizer()["model"]
    words = sorted(learned["vocab"], key=learned["vocab"].__getitem__)
    assert len(words) == VOCABULARY
    kinds = gguf.TokenType
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("gpt-2")
    out.add_token_list(words)
    out.add_token_types([kinds.CONTROL if n < len(SPECIAL) else kinds.NORMAL for n in range(len(words))])
    out.add_token_merges([" ".join(pair) for pair in learned["merges"]])
    out.add_bos_token_id(BEGIN)
    out.add_eos_token_id(END)
    out.add_pad_token_id(PAD)
    out.add_unk_token_id(UNKNOWN)
    out.add_add_bos_token(False)
    out.add_chat_template(TEMPLATE)


def _interleaved(rows: Matrix, head: int) -> Matrix:
    """llama.cpp turns neighbours where Hugging Face turns the two halves of a head: the rows in its order."""
    halves = rows.reshape(-1, 2, head // 2, rows.shape[1])
    return halves.swapaxes(1, 2).reshape(rows.shape)


def write_folder(folder: Path, name: str) -> None:
    """For vLLM and transformers: safetensors in bfloat16, the configuration and the tokenizer."""
    size = SIZES[name]
    folder.mkdir(parents=True, exist_ok=True)
    _write_safetensors(folder / "model.safetensors", size)
    ids = {"bos_token_id": BEGIN, "eos_token_id": END, "pad_token_id": PAD}
    marks = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    config = ids | {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "bfloat16",
        "hidden_act": "silu",
        "hidden_size": size.hidden,
        "intermediate_size": size.inner,
        "num_hidden_layers": size.layers,
        "num_attention_heads": size.heads,
        "num_key_value_heads": size.kv_heads,
        "head_dim": size.head,
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": EPSILON,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        "tie_word_embeddings": False,
        "vocab_size": VOCABULARY,
    }
    files = {
        "config": config,
        "generation_config": ids,
        "tokenizer": tokenizer(),
        "tokenizer_config": marks
        | {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": CONTEXT,
            "chat_template": TEMPLATE,
        },
    }
    for file, what in files.items():
        (folder / f"{file}.json").write_text(json.dumps(what, indent=1))


def _write_safetensors(path: Path, size: Size) -> None:
    """The length of a JSON header, the header, and the values one after another."""
    places: dict[str, Any] = {}
    parts, end = [], 0
    for layer, name, values in _tensors(size):
        outer = name if name == "lm_head" else f"model.{name}"
        key = f"{outer if layer is None else f'model.layers.{layer}.{name}'}.weight"
        part = (values.view(np.uint32) >> 16).astype("<u2").tobytes()  # bfloat16: the upper half of a float
        places[key] = {
            "dtype": "BF16",
            "shape": list(values.shape),
            "data_offsets": [end, end + len(part)],
        }
        parts.append(part)
        end += len(part)
    head = json.dumps(places).encode()
    with path.open("wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        file.writelines(parts)
