"""What is said about the bundled engine: its presets and profiles, and all that one of them sets."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic import BaseModel

from loadgen import presets
from loadgen.engine import profiles
from loadgen.engine.model import shape
from loadgen.engine.profiles import Constant, Gpu, Model
from loadgen.knobs import MODEL_PREFIX, Engine, FixedCost, RooflineCost
from loadgen.report.tables import Column, Table
from loadgen.units import show_duration


@dataclass(frozen=True, slots=True)
class Explained:
    """A preset or a profile: what it is in a line, facts about it, its rules, and tables of what it sets."""

    name: str
    about: str
    facts: list[str]
    rules: list[str]
    tables: list[Table]


class Knob(NamedTuple):
    """`path`: its key as in YAML. `given`: by the preset, rather than left at its default."""

    path: str
    value: str
    meaning: str
    given: bool


def listing() -> list[Table]:
    """Presets, GPUs and models, and models that compute, a line each."""
    return [_presets(), _gpus(), _models(), _computing()]


def names() -> list[str]:
    """Of everything that can be explained."""
    return [*presets.names(), *profiles.gpus(), *profiles.models()]


def everything() -> dict[str, dict[str, Any]]:
    """Presets, GPUs and models by name, as plain data."""
    kinds = {"presets": presets.names(), "gpus": profiles.gpus(), "models": profiles.models()}
    return {kind: {name: document(name) for name in known} for kind, known in kinds.items()}


def document(name: str) -> dict[str, Any]:
    """A preset with every knob, or a profile with every constant, as plain data."""
    if name in presets.names():
        engine = Engine.model_validate({"preset": name})
        return presets.document(name) | {"engine": engine.model_dump(mode="json", by_alias=True)}
    profile = _profile(name)
    constants = {of: constant._asdict() for of, constant in profile.constants()}
    return {"title": profile.title} | constants


def explain(name: str) -> Explained:
    """All about a preset or profile. KeyError where nothing has that name."""
    return _explained_preset(name) if name in presets.names() else _explained_profile(name)


def knobs(engine: Engine, given: dict[str, Any]) -> list[Knob]:
    """Every knob of `engine`, groups by key, its preset's name apart. `given`: those that were."""
    return [knob for knob in _walk(engine, given, "", "") if knob.path != "preset"]


def line(engine: Engine) -> str:
    """What an engine is, in one line. Raises ScenarioError where its memory cannot be counted."""
    facts = [engine.preset] if engine.preset else []
    facts += [engine.batching, f"{engine.max_sequences} sequences"]
    if engine.batching == "continuous":
        facts += [f"{engine.token_budget or 'any number of'} tokens a step", _chunks(engine)]
    else:
        facts.append(f"a batch waits {_wait(engine.window_s)}")
    facts.append("no bound on the queue" if engine.max_queue is None else f"a queue of {engine.max_queue}")
    if engine.kv is not None:
        facts.append(f"KV of {profiles.kv_tokens(engine):,} tokens ({engine.kv.reserve})")
    if engine.max_length is not None:
        facts.append(f"at most {engine.max_length:,} tokens a request")
    if engine.policy != "fcfs":
        facts.append(f"policy {engine.policy}")
    if engine.faults is not None:
        facts.append("FAULTS ON")
    return f"{engine.model_name}: {', '.join([*facts, _cost(engine)])}"


def _chunks(engine: Engine) -> str:
    if engine.prefill_chunk is not None:
        return f"chunks of {engine.prefill_chunk}"
    return "whole prompts" if engine.takes_whole_prompts else "chunks of any size"


def _wait(window_s: float) -> str:
    return "until it is full" if window_s == math.inf else f"{show_duration(window_s)} at most"


def _cost(engine: Engine) -> str:
    cost = engine.cost
    if engine.model is not None:
        return "steps computed"
    if isinstance(cost, FixedCost):
        per_token = f" + {show_duration(cost.per_token_s)} a token" if cost.per_token_s else ""
        return f"{show_duration(cost.step_s)} a step{per_token}"
    if isinstance(cost, RooflineCost):
        return f"roofline of {cost.model} on {cost.gpu} + {show_duration(cost.overhead_s)} a step"
    return "steps as fitted"


# --- the list -----------------------------------------------------------------------------------------------


def _presets() -> Table:
    columns = [Column("preset", "label"), Column("what it is", "words")]
    rows = [[name, presets.document(name)["about"]] for name in presets.names()]
    note = "engine: {preset: NAME} in a scenario, or loadgen serve --preset NAME"
    return Table("Presets", columns, rows, [note])


def _gpus() -> Table:
    columns = [
        Column("gpu", "label"),
        Column("GiB"),
        Column("TB/s"),
        Column("TFLOPS"),
        Column("of which reached", "label"),
        Column("what it is", "words", drop=1),
    ]
    rows = [
        [
            name,
            f"{gpu.memory_bytes.value / 2**30:.0f}",
            f"{gpu.bandwidth_bytes_per_s.value / 1e12:.4g}",
            f"{gpu.flops.value / 1e12:.0f}",
            f"{gpu.bandwidth_share.value:.0%}, {gpu.flops_share.value:.0%} {gpu.flops_share.status}",
            gpu.title,
        ]
        for name, gpu in profiles.gpus().items()
    ]
    note = "cost: {kind: roofline, gpu: NAME, model: NAME}; dense 16-bit arithmetic"
    return Table("GPUs", columns, rows, [note])


def _models() -> Table:
    columns = [
        Column("model", "label"),
        Column("parameters"),
        Column("layers", drop=1),
        Column("weights GB"),
        Column("KV KiB a token"),
        Column("what it is", "words", drop=1),
    ]
    rows = [
        [
            name,
            f"{model.parameters.value / 1e9:.4g}B",
            f"{model.layers.value:g}",
            f"{model.weight_bytes / 1e9:.1f}",
            f"{model.kv_bytes_per_token / 1024:g}",
            model.title,
        ]
        for name, model in profiles.models().items()
    ]
    return Table("Models", columns, rows, ["loadgen engines show NAME explains any of these names"])


def _computing() -> Table:
    columns = [Column("computes", "label"), Column("parameters"), Column("layers"), Column("context")]
    rows = [
        [f"{MODEL_PREFIX}{name}", f"{made.parameters / 1e6:.0f}M", str(made.layers), f"{made.context:,}"]
        for name, made in shape.NAMED.items()
    ]
    note = (
        "engine: {model: NAME}, or loadgen serve --model NAME: real steps, random weights; "
        f"{MODEL_PREFIX}FOLDER: a Llama's own. Needs pip install 'loadgen[torch]'"
    )
    return Table("Models that compute", columns, rows, [note])


# --- one of them --------------------------------------------------------------------------------------------


def _explained_preset(name: str) -> Explained:
    found = presets.document(name)
    engine = Engine.model_validate({"preset": name})
    every = knobs(engine, found["engine"])
    facts = [f"Source: {found['source']} ({found['date']})."]
    tables = [
        _knob_table("Set by the preset", [knob for knob in every if knob.given]),
        _knob_table("At their defaults", [knob for knob in every if not knob.given]),
    ]
    return Explained(name, found["about"], facts, found["rules"], tables)


def _knob_table(title: str, rows: list[Knob]) -> Table:
    columns = [Column("knob", "label"), Column("value", "label"), Column("what it does", "words")]
    return Table(title, columns, [[knob.path, knob.value, knob.meaning] for knob in rows])


def _explained_profile(name: str) -> Explained:
    profile = _profile(name)
    columns = [
        Column("constant", "label"),
        Column("value"),
        Column("status", "label"),
        Column("source", "words"),
    ]
    rows = [[of, _plain(c), c.status, c.source] for of, c in profile.constants()]
    what = "gpu" if isinstance(profile, Gpu) else "model"
    facts = [f"cost: {{kind: roofline, {what}: {name}}}"]
    return Explained(name, profile.line, facts, [], [Table("Constants", columns, rows)])


def _profile(name: str) -> Gpu | Model:
    return profiles.gpus().get(name) or profiles.models()[name]


def _plain(constant: Constant) -> str:
    value = constant.value
    return f"{value:,.0f}" if value == int(value) and value < 1e12 else f"{value:g}"


def _walk(group: BaseModel, given: dict[str, Any], prefix: str, about: str) -> Iterator[Knob]:
    """`about`: what the group is for, which is all there is to say of its `kind`."""
    shown = group.model_dump(mode="json", by_alias=True)
    for name, field in type(group).model_fields.items():
        key, value, meaning = field.alias or name, getattr(group, name), field.description or about
        if isinstance(value, BaseModel):
            yield from _walk(value, given.get(key, {}), f"{prefix}{key}.", meaning)
        else:
            yield Knob(f"{prefix}{key}", _yaml(shown[key]), meaning, key in given)


def _yaml(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
