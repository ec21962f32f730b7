"""What is said of presets, GPUs and models, and of one engine in a line."""

from __future__ import annotations

import io
from typing import Any

import pytest
from pydantic import BaseModel
from rich.cells import cell_len
from rich.console import Console

from loadgen import presets
from loadgen.engine import profiles
from loadgen.knobs import Engine, Faults, FittedCost, FixedCost, Jitter, Kv, RooflineCost
from loadgen.report import engine_view
from loadgen.report.terminal import print_engines, print_explained


def printed(width: int, name: str | None = None) -> str:
    file = io.StringIO()
    console = Console(file=file, width=width, legacy_windows=False, _environ={})
    if name is None:
        print_engines(console)
    else:
        print_explained(engine_view.explain(name), console)
    return file.getvalue()


def flat(text: str) -> str:
    return " ".join(text.split())


def engine(**knobs: Any) -> Engine:
    return Engine.model_validate(knobs)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_nothing_is_wider_than_the_page(width: int) -> None:
    """Neither the list nor an explanation."""
    for text in (printed(width), printed(width, "sglang"), printed(width, "h200")):
        assert max(map(cell_len, text.splitlines())) <= width


@pytest.mark.parametrize("width", [80, 120])
def test_everything_has_one_line_of_the_list(width: int) -> None:
    """At 80 columns no line about a preset, a GPU or a model is broken."""
    lines = printed(width).splitlines()
    for name in engine_view.names():
        [line] = [line for line in lines if line.split()[:1] == [name]]
        if name in presets.names():
            assert line.endswith(presets.document(name)["about"])


def test_an_explanation_holds_the_whole_file() -> None:
    """About, source, date and every rule of a preset."""
    text, found = flat(printed(100, "tgi")), presets.document("tgi")
    for said in (found["about"], found["source"], found["date"], *found["rules"]):
        assert flat(said) in text


def keys(model: BaseModel, prefix: str = "") -> set[str]:
    """The paths of its dump, down to the last group."""
    whole = model.model_dump(by_alias=True)

    def paths(group: dict[str, Any], above: str) -> set[str]:
        inner = {f"{above}{k}": v for k, v in group.items()}
        return {
            path for k, v in inner.items() for path in (paths(v, f"{k}.") if isinstance(v, dict) else {k})
        }

    return paths(whole, prefix)


@pytest.mark.parametrize("name", presets.names())
def test_every_knob_of_a_preset_is_explained_once(name: str) -> None:
    """Those of groups too; what the file sets stands apart from what it leaves."""
    found = engine(preset=name)
    given, left = engine_view.explain(name).tables
    explained = [row[0] for row in (*given.rows, *left.rows)]
    assert sorted(explained) == sorted(keys(found) - {"preset"})
    assert all(row[2] for row in (*given.rows, *left.rows))
    assert {row[0].split(".")[0] for row in given.rows} == presets.document(name)["engine"].keys()


def test_a_knobs_value_is_written_as_in_yaml() -> None:
    """null, numbers, words, durations."""
    rows = {row[0]: row[1] for table in engine_view.explain("triton-dynamic").tables for row in table.rows}
    assert (rows["preferred_sizes"], rows["max_wait"], rows["kv"]) == ("[4, 8]", "100us", "null")
    assert (rows["cost.overhead"], rows["padded_context"], rows["pad"]) == ("5ms", "false", "batch")


@pytest.mark.parametrize("group", [Engine, Kv, Jitter, Faults, FixedCost, FittedCost, RooflineCost])
def test_no_knob_is_without_a_description(group: type[BaseModel]) -> None:
    """Other than `kind`, which its group explains."""
    assert not [n for n, field in group.model_fields.items() if not field.description and n != "kind"]


@pytest.mark.parametrize("name", [*profiles.gpus(), *profiles.models()])
def test_every_constant_of_a_profile_has_its_status_and_source(name: str) -> None:
    """As in the file."""
    profile: Any = profiles.gpus().get(name) or profiles.models()[name]
    [table] = engine_view.explain(name).tables
    told = [(of, constant.status, constant.source) for of, constant in profile.constants()]
    assert [(row[0], row[2], row[3]) for row in table.rows] == told


def test_plain_data_holds_what_is_printed() -> None:
    """A preset with every knob; a profile with each constant's value, status and source."""
    every = engine_view.everything()
    assert [*every] == ["presets", "gpus", "models"]
    assert Engine.model_validate(every["presets"]["tgi"]["engine"]) == engine(preset="tgi")
    assert every["models"]["llama-3-8b"]["layers"]["value"] == 32
    assert every["gpus"]["h100-80gb"]["bandwidth_share"]["status"] == "fitted"


HELD = "64 sequences, a batch waits"
FREE, ROOFLINE = "no bound on the queue", "roofline of opt-13b on a100-40gb + 5ms a step"
ORCA = "orca, continuous, 32 sequences, any number of tokens a step, whole prompts"
V1 = "vllm-v1, continuous, 256 sequences, 2048 tokens a step, chunks of any size"
FITTED = {"kind": "fitted", "weights": "9ms", "per_token": 0}
LINES: list[tuple[dict[str, Any], str]] = [
    (
        {"preset": "orca", "kv": {"tokens": 15700}},
        f"{ORCA}, {FREE}, KV of 15,700 tokens (completion), {ROOFLINE}",
    ),
    ({"preset": "vllm-v1", "kv": None, "preempt": "none"}, f"{V1}, {FREE}, {ROOFLINE}"),
    (
        {"batching": "static", "max_wait": "forever", "cost": {"kind": "fixed", "step": "2ms"}},
        f"static, {HELD} until it is full, {FREE}, 2ms a step",
    ),
    (
        {"batching": "dynamic", "max_queue": 3, "cost": FITTED},
        f"dynamic, {HELD} 50ms at most, a queue of 3, steps as fitted",
    ),
]


@pytest.mark.parametrize(("knobs", "said"), LINES, ids=["orca", "vllm-v1", "static", "dynamic"])
def test_an_engine_in_a_line(knobs: dict[str, Any], said: str) -> None:
    """What is true of its batching, its memory and its cost."""
    assert engine_view.line(engine(**knobs)) == f"mini-engine: {said}"
