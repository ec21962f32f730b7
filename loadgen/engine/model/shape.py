"""What a model is made of: a named one, or the one whose config.json and weights lie in a folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from loadgen.faults import nearest
from loadgen.knobs import MODEL_PREFIX, Engine
from loadgen.scenario import ScenarioError
from loadgen.units import quoted

_CONFIG = "config.json"


@dataclass(frozen=True, slots=True)
class Shape:
    """A decoder of the Llama family. `folder`: where its weights are; None: random ones are made."""

    vocabulary: int
    hidden: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    context: int
    norm_epsilon: float = 1e-6
    rope_theta: float = 10_000.0
    is_tied: bool = False
    ends: tuple[int, ...] = (2,)
    """Ids that end an answer."""
    folder: Path | None = None

    @property
    def parameters(self) -> int:
        of_attention = 2 * self.hidden * self.head_size * (self.heads + self.kv_heads)
        of_layer = of_attention + 3 * self.hidden * self.inner + 2 * self.hidden
        return self.layers * of_layer + self.hidden * (1 + self.vocabulary * (1 if self.is_tied else 2))

    @property
    def kv_numbers(self) -> int:
        """Numbers kept of one position, in all layers."""
        return 2 * self.layers * self.kv_heads * self.head_size


NAMED: Mapping[str, Shape] = {
    "llama-1m": Shape(4096, 128, 384, 2, 4, 2, 32, context=2048),
    "llama-144m": Shape(4096, 1024, 2816, 12, 16, 4, 64, context=2048),
}
"""Models of random weights: what they say means nothing, what they cost does."""


def find(model: str) -> Shape:
    """The shape of `torch:NAME` or `torch:FOLDER`. Raises ScenarioError where there is none, where it is of
    another family, and where torch is not installed.
    """
    name = model.removeprefix(MODEL_PREFIX)
    if name in NAMED:
        found = NAMED[name]
    elif (Path(name).expanduser() / _CONFIG).is_file():
        found = _of_folder(Path(name).expanduser())
    else:
        near = nearest(name, NAMED)
        hint = f"did you mean {near}? " if near else ""
        raise ScenarioError(
            f"engine.model: {quoted(name)} is no folder with a {_CONFIG}, and no model of ours; "
            f"{hint}known: {', '.join(NAMED)}"
        )
    if find_spec("torch") is None or (found.folder and find_spec("safetensors") is None):
        raise ScenarioError(f"engine.model: {quoted(model)} needs torch: pip install 'loadgen[torch]'")
    return found


def bounded(engine: Engine) -> Engine:
    """The same, asked for no more than its model's context. Raises ScenarioError as `find` does."""
    if engine.model is None:
        return engine
    context = find(engine.model).context
    return engine.model_copy(update={"max_length": min(engine.max_length or context, context)})


def _of_folder(folder: Path) -> Shape:
    path = folder / _CONFIG
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        if (why := _foreign(config)) is not None:
            raise ScenarioError(f"engine.model: {path}: {why}; only plain Llama is built")
        return _read(config, folder)
    except (OSError, ValueError, TypeError, AttributeError) as problem:
        raise ScenarioError(f"engine.model: {path} cannot be read: {problem}") from None
    except KeyError as missing:
        raise ScenarioError(f"engine.model: {path} has no {missing}") from None


def _foreign(config: dict[str, Any]) -> str | None:
    """What of it is not built here."""
    rope = _rope(config)
    kind = rope.get("rope_type", rope.get("type", "default"))
    if config.get("architectures") != ["LlamaForCausalLM"]:
        return f"architectures is {config.get('architectures')}"
    if kind != "default":
        return f"its RoPE is scaled ({kind})"
    if config.get("hidden_act", "silu") != "silu":
        return f"hidden_act is {config['hidden_act']}"
    return next((f"{name} is true" for name in ("attention_bias", "mlp_bias") if config.get(name)), None)


def _rope(config: dict[str, Any]) -> dict[str, Any]:
    """Newer files have `rope_parameters`, older ones `rope_scaling` and a theta of its own."""
    rope: dict[str, Any] = config.get("rope_parameters") or config.get("rope_scaling") or {}
    return rope


def _read(config: dict[str, Any], folder: Path) -> Shape:
    heads, ends = config["num_attention_heads"], config.get("eos_token_id")
    return Shape(
        vocabulary=config["vocab_size"],
        hidden=config["hidden_size"],
        inner=config["intermediate_size"],
        layers=config["num_hidden_layers"],
        heads=heads,
        kv_heads=config.get("num_key_value_heads") or heads,
        head_size=config.get("head_dim") or config["hidden_size"] // heads,
        context=config["max_position_embeddings"],
        norm_epsilon=config["rms_norm_eps"],
        rope_theta=_rope(config).get("rope_theta") or config.get("rope_theta", 10_000.0),
        is_tied=bool(config.get("tie_word_embeddings")),
        ends=tuple(ends) if isinstance(ends, list) else () if ends is None else (ends,),
        folder=folder,
    )
