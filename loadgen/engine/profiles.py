"""What GPUs and models are to the engine: their constants as data, each with where it comes from.

The data are gpus.yaml and models.yaml beside this file.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from loadgen import strict_yaml
from loadgen.faults import nearest
from loadgen.knobs import Engine, Kv, RooflineCost
from loadgen.scenario import ScenarioError

_MOST_GPUS = 1024  # that are worth advising

Status = Literal["read", "computed", "fitted", "guessed"]


class Constant(NamedTuple):
    """A number, how it was come by, and where."""

    value: float
    status: Status
    source: str


class _Profile(msgspec.Struct, frozen=True):
    title: str

    def constants(self) -> Iterator[tuple[str, Constant]]:
        """Each constant with its name, in the order of the file."""
        return ((name, getattr(self, name)) for name in self.__struct_fields__ if name != "title")


class Gpu(_Profile, frozen=True):
    """Memory, its peak bandwidth, peak dense 16-bit arithmetic, and the share of each that kernels reach."""

    memory_bytes: Constant
    bandwidth_bytes_per_s: Constant
    flops: Constant
    bandwidth_share: Constant
    flops_share: Constant

    @property
    def line(self) -> str:
        """The profile in a line."""
        return (
            f"{self.title}: {self.bandwidth_bytes_per_s.value / 1e12:.3g} TB/s and "
            f"{self.flops.value / 1e12:.4g} TFLOPS, of which kernels reach "
            f"{self.bandwidth_share.value:.0%} and {self.flops_share.value:.0%} ({self.flops_share.status})"
        )


class Model(_Profile, frozen=True):
    """A dense decoder in 16-bit weights. `lookup_parameters`: of its parameters those of an input embedding
    that is a table of its own, through which no token passes.
    """

    parameters: Constant
    lookup_parameters: Constant
    layers: Constant
    hidden: Constant
    kv_heads: Constant
    head_size: Constant

    @property
    def line(self) -> str:
        """The profile in a line."""
        return (
            f"{self.title}: {self.parameters.value / 1e9:.3g}B parameters, {self.layers.value:g} layers, "
            f"KV of {self.kv_bytes_per_token / 1024:.4g} KiB a token"
        )

    @property
    def weight_bytes(self) -> float:
        """Of memory, embeddings included."""
        return 2 * self.parameters.value

    @property
    def passed_parameters(self) -> float:
        """Through which each token passes."""
        return self.parameters.value - self.lookup_parameters.value

    @property
    def kv_bytes_per_token(self) -> float:
        """Key and value, in each layer and KV head, of 2 bytes a number."""
        return 2 * self.layers.value * self.kv_heads.value * self.head_size.value * 2


_AnyProfile = TypeVar("_AnyProfile", Gpu, Model)


@cache
def gpus() -> Mapping[str, Gpu]:
    """Every GPU profile by its name, in the order of the file."""
    return _read("gpus", Gpu)


@cache
def models() -> Mapping[str, Model]:
    """Every model profile by its name, in the order of the file."""
    return _read("models", Model)


def gpu(name: str) -> Gpu:
    """The profile of that name. Raises ScenarioError, with the nearest name, where there is none."""
    return _named("gpu", name, gpus())


def model(name: str) -> Model:
    """The profile of that name. Raises ScenarioError, with the nearest name, where there is none."""
    return _named("model", name, models())


def kv_tokens(engine: Engine) -> int | None:
    """Positions that fit into the engine's KV memory; None where it is unlimited.

    `kv.tokens` if given; else what the weights leave: (utilization x memory x gpus - weights) / KV bytes of a
    position, rounded down. Raises ScenarioError where that is less than one request needs, and for an unknown
    profile.
    """
    kv = engine.kv
    if kv is None:
        return None
    if kv.tokens is not None:
        return kv.tokens
    cost = engine.cost
    assert isinstance(cost, RooflineCost), "the engine's own rule: others must give kv.tokens"
    per_gpu_bytes = kv.utilization * gpu(cost.gpu).memory_bytes.value
    held = model(cost.model)
    tokens = math.floor((per_gpu_bytes * cost.gpus - held.weight_bytes) / held.kv_bytes_per_token)
    least_tokens = max(kv.block_tokens, engine.max_length or 0)
    if tokens < least_tokens:
        needed_bytes = held.weight_bytes + least_tokens * held.kv_bytes_per_token
        raise ScenarioError(_too_small(cost, kv, needed_bytes, math.ceil(needed_bytes / per_gpu_bytes)))
    return tokens


def _too_small(cost: RooflineCost, kv: Kv, needed_bytes: float, enough_gpus: int) -> str:
    memory_bytes, weight_bytes = gpu(cost.gpu).memory_bytes.value, model(cost.model).weight_bytes
    share_bytes = kv.utilization * memory_bytes * cost.gpus
    return (
        f"engine.kv: the weights of {cost.model} take {weight_bytes / 1e9:.1f} GB, with KV for one request "
        f"{needed_bytes / 1e9:.1f} GB; {kv.utilization:g} of {cost.gpus} x {memory_bytes / 1e9:.1f} GB "
        f"({cost.gpu}) is {share_bytes / 1e9:.1f} GB: use "
        + (f"gpus: {enough_gpus}" if enough_gpus <= _MOST_GPUS else "more of it, or a larger GPU")
    )


def _read(what: str, kind: type[_AnyProfile]) -> dict[str, _AnyProfile]:
    text = (Path(__file__).parent / f"{what}.yaml").read_text(encoding="utf-8")
    data = strict_yaml.read(text).data
    return {name: _profile(fields, kind, data["sources"]) for name, fields in data[what].items()}


def _profile(fields: dict[str, Any], kind: type[_AnyProfile], sources: Mapping[str, str]) -> _AnyProfile:
    told = {
        name: field if name == "title" else (field[0], field[1], sources[field[2]])
        for name, field in fields.items()
    }
    return msgspec.convert(told, kind)


def _named(what: str, name: str, known: Mapping[str, _AnyProfile]) -> _AnyProfile:
    if name in known:
        return known[name]
    near = nearest(name, known)
    hint = f"did you mean {near}? " if near else ""
    raise ScenarioError(f"engine.cost.{what}: no profile of {name!r}; {hint}known: {', '.join(known)}")
