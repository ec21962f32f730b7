"""What is asked: a Scenario, written in YAML or made from flags. Nothing here draws, sends or judges.

`load` reads a file, `parse` a text, `build` plain data; a mistake in any of them is one ScenarioError.

Fields carry their unit in Python (`connect_s`); the YAML key carries it in the text instead (`connect: 10s`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, ValidationInfo, field_validator, model_validator

from loadgen import faults, presets, strict_yaml
from loadgen.backends import COMPLETIONS, OF_IDS
from loadgen.faults import ScenarioError as ScenarioError
from loadgen.fields import (
    NAME,
    CountOrZero,
    Duration,
    DurationOrZero,
    Name,
    Processes,
    Repeats,
    Strict,
    is_secret,
    varied_files,
    without_credentials,
    without_query_secrets,
)
from loadgen.knobs import Engine
from loadgen.load import Load
from loadgen.manners import Fluidity, Goodput, RequestClass
from loadgen.slo import Slos, undefined
from loadgen.strict_yaml import KeyPath, Position
from loadgen.target import Target
from loadgen.units import printable, quoted

MASKED = "***"
MAX_FILE_BYTES = 20_000_000
MOST_MISTAKES = 10  # told at once


class Client(Strict):
    """How the measuring side goes about it. None of it changes what is asked of the server.

    `clock`: which instant a read has. `kernel`: when the kernel received it (Linux, TCP without TLS), `user`:
    when it had been read; `auto`: the first where it can be had.
    """

    processes: Processes = Field(
        default="auto", description="that share the plan; auto: as many as its events need, while cores last"
    )
    clock: Literal["auto", "kernel", "user"] = Field(
        default="auto", description="whose instant of a read counts: the kernel's, or our own"
    )
    warm: CountOrZero = Field(
        default=0, description="connections to open before the start; they count in no figure"
    )


class Timeouts(Strict):
    """How long to wait: for a connection, a first token (from sending), between tokens, all in all.

    `idle` counts from the last token: pings and empty events do not put it off.
    """

    connect_s: Duration = Field(default=10.0, alias="connect", description="for a connection")
    first_token_s: Duration = Field(
        default=300.0, alias="first_token", description="from sending to the first token"
    )
    idle_s: Duration = Field(default=120.0, alias="idle", description="from one token to the next")
    total_s: Duration = Field(default=1800.0, alias="total", description="for the whole answer")


class Variant(Strict):
    """One side of a comparison: the bundled engine with knobs changed, or another server.

    One that names neither is the scenario as it stands. With a `load` of its own it can be run, not compared.
    """

    engine: Engine | None = None
    target: Target | None = None
    load: Load | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if self.engine is not None and self.target is not None:
            raise ValueError("a variant has an engine or a target, not both")
        return self


class Scenario(Strict):
    """Everything a run is asked to do. Without a `target` the bundled engine answers."""

    name: Name = Field(default="run", description="of the run; left out, the file's")
    seed: CountOrZero = Field(default=0, description="same seed, same plan")
    target: Target | None = None
    engine: Engine = Engine()
    load: Load
    client: Client = Client()
    timeouts: Timeouts = Timeouts()
    goodput: Goodput | None = None
    fluidity: Fluidity | None = None
    drain_s: DurationOrZero = Field(
        default=10.0, alias="drain", description="how long Ctrl-C waits for what is in flight"
    )
    slos: Slos = Field(
        default=(),
        description="what must hold, such as p99(ttft) <= 500ms, or the name of a set (loadgen slos)",
    )
    repeats: Repeats = Field(default=1, description="runs of the one plan, one after another")
    policy: Literal["interval", "point"] = Field(
        default="interval",
        description="an SLO is judged by the bounds of its figure; point: by the figure alone",
    )
    vary: dict[str, Annotated[tuple[Any, ...], Field(strict=False, min_length=1, max_length=1000)]] = Field(
        default={}, description="a grid: the values of each key path, one run for every combination"
    )
    variants: dict[Name, Variant] = Field(default={}, description="the sides of a comparison, by name")

    @field_validator("vary")
    @classmethod
    def _varied_files_are_its_own(
        cls, vary: dict[str, tuple[Any, ...]], info: ValidationInfo
    ) -> dict[str, tuple[Any, ...]]:
        return {key: tuple(varied_files(key, values, info)) for key, values in vary.items()}

    @model_validator(mode="after")
    def _ids_are_taken(self) -> Self:
        if self.load.sends_ids and self.target is not None and self.target.dialect not in OF_IDS:
            raise ValueError(f"prompts of token_ids need a target.endpoint that takes them: {COMPLETIONS}")
        return self

    @model_validator(mode="after")
    def _warm_ones_are_kept(self) -> Self:
        if self.client.warm and self.target is not None and self.target.connections == "fresh":
            raise ValueError("warm connections are never used where connections are fresh: give one of them")
        return self

    @model_validator(mode="after")
    def _one_way_to_be_many(self) -> Self:
        if self.vary and self.variants:
            raise ValueError("vary makes a run of each cell, variants a comparison: give one of them")
        if self.vary and (self.repeats > 1 or "repeats" in self.vary):
            raise faults.InsideError(
                ("repeats",), "repeats one run, and vary makes several: give one of them"
            )
        return self

    @model_validator(mode="before")
    @classmethod
    def _variants_inherit(cls, data: Any) -> Any:
        """A variant's engine starts from the scenario's engine and changes what it names."""
        if isinstance(data, dict) and set(data) <= {"name"}:
            raise ValueError(
                "nothing is asked: give a load, and the target that it goes to (without one the bundled "
                "engine answers)"
            )
        if not isinstance(data, dict) or not isinstance(data.get("variants"), dict):
            return data
        engine = data.get("engine")
        own = engine if isinstance(engine, dict) else {}
        return data | {"variants": {name: _inherit(own, v) for name, v in data["variants"].items()}}

    @model_validator(mode="after")
    def _promises_are_defined(self) -> Self:
        classes = self.load.mixture
        promised: list[tuple[KeyPath, tuple[str, ...], list[RequestClass]]] = [
            (("slos",), self.slos, [*classes.values()]),
            *((("load", "classes", name, "slos"), own.slos, [own]) for name, own in classes.items()),
        ]
        for path, slos, classes_of_it in promised:
            rule = undefined(
                slos,
                goodput=any([self.goodput, *(own.goodput for own in classes_of_it)]),
                fluidity=self.fluidity is not None or all(own.fluidity for own in classes_of_it),
            )
            if rule is not None:
                raise faults.InsideError(path, rule)
        return self

    def single(self, variant: str) -> Scenario:
        """The scenario without variants that one of them stands for."""
        v = self.variants[variant]
        return self.model_copy(
            update={
                "engine": v.engine or self.engine,
                "target": self.target if v.engine is None and v.target is None else v.target,
                "load": v.load or self.load,
                "variants": {},
            }
        )

    def as_asked(self) -> dict[str, Any]:
        """Plain data with units in the text, fit for YAML or JSON.

        Masked: the value of every header, what a proxy's URL says of us, and in `extra_body`, and in an
        endpoint's query, every text under a name like a secret's.
        """
        asked = self.model_dump(mode="json", by_alias=True)
        for side in (asked, *asked["variants"].values()):
            if target := side["target"]:
                target["proxy"] = target["proxy"] and without_credentials(target["proxy"])
                target["endpoint"] = without_query_secrets(target["endpoint"])
                target["headers"] = _masked(target["headers"], secret=True)
                target["extra_body"] = _masked(target["extra_body"], secret=False)
            if load := side["load"]:
                for manners in (load, *load["classes"].values()):
                    manners["extra_body"] = _masked(manners["extra_body"], secret=False)
        return asked


def _inherit(own: dict[str, Any], variant: Any) -> Any:
    if isinstance(variant, dict) and isinstance(variant.get("engine"), dict):
        return variant | {"engine": presets.laid(own, variant["engine"])}
    return variant


def _masked(value: Any, *, secret: bool) -> Any:
    if isinstance(value, dict):
        return {name: _masked(inner, secret=secret or is_secret(name)) for name, inner in value.items()}
    if isinstance(value, list):
        return [_masked(inner, secret=secret) for inner in value]
    return MASKED if secret and isinstance(value, str) else value


# --- reading ------------------------------------------------------------------------------------------------


def load(path: Path | str, readable: Sequence[Path] = ()) -> Scenario:
    """The scenario in a YAML file; its `name` is the file's stem unless it says otherwise.

    `readable`: files, and folders of them, that it may send from, besides its own folder.

    Raises ScenarioError, a line a mistake: `chat.yaml:12: load.arrivals.raate: unknown key, did you mean
    rate?`
    """
    name = str(Path(path))
    try:
        with Path(path).open("rb") as file:
            raw = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as problem:  # ValueError: a path that no file can have
        why = getattr(problem, "strerror", None) or str(problem)
        raise _mistake(name, f"cannot be read: {why}") from None
    if len(raw) > MAX_FILE_BYTES:
        raise _mistake(name, f"is larger than {MAX_FILE_BYTES // 1_000_000} MB")
    try:
        text = raw.decode()
    except UnicodeDecodeError as problem:
        line = raw.count(b"\n", 0, problem.start) + 1
        raise _mistake(name, f"not UTF-8 text: byte 0x{raw[problem.start]:02x}", Position(line, 1)) from None
    return parse(text, name, readable)


def parse(text: str, name: str, readable: Sequence[Path] = ()) -> Scenario:
    """The scenario in a YAML text; errors call it `name`, whose stem is also the default of the key `name`.

    Raises ScenarioError.
    """
    try:
        document = strict_yaml.read(text)
    except strict_yaml.YamlError as problem:
        raise _mistake(name, problem.rule, problem.at, problem.path) from None
    stem = Path(name).stem
    default = {"name": stem} if re.fullmatch(NAME, stem) else {}
    folder = Path(name).parent
    return _checked(default | document.data, name, document.at, folder=folder, readable=readable)


def build(
    data: dict[str, Any], where: str = "command line", *, unknown: Literal["forbid", "ignore"] = "forbid"
) -> Scenario:
    """The scenario in plain data, keys and units as in YAML; `where` is what errors call it.

    `unknown`: what to do with keys that a later version may have written. Raises ScenarioError, without a
    line number.
    """
    return _checked(data, where, lambda _: None, unknown)


def _checked(
    data: dict[str, Any],
    where: str,
    at: Callable[[KeyPath], Position | None],
    unknown: Literal["forbid", "ignore"] = "forbid",
    folder: Path | None = None,
    readable: Sequence[Path] = (),
) -> Scenario:
    context = {"folder": folder, "readable": readable}
    try:
        return Scenario.model_validate(data, by_name=False, extra=unknown, context=context)
    except ValidationError as problem:
        found = faults.explain(problem, Scenario)
    placed = [(_nearest(path, at), path, rule) for path, rule in found]
    once: dict[Any, tuple[Position | None, KeyPath, str]] = {}
    for place, path, rule in placed:  # what variants inherit stands in one place, and is said once
        once.setdefault((place or path, rule), (place, path, rule))
    mistakes = sorted(once.values(), key=lambda mistake: mistake[0] or (0, 0))
    lines = [str(_mistake(where, rule, place, path)) for place, path, rule in mistakes[:MOST_MISTAKES]]
    if more := len(mistakes) - len(lines):
        lines.append(f"and {more} more")
    raise ScenarioError("\n".join(lines))


def _nearest(path: KeyPath, at: Callable[[KeyPath], Position | None]) -> Position | None:
    """Where `path` stands, or what it was inherited from, or the nearest thing around it."""
    if path[:1] == ("variants",) and path[2:3] == ("engine",) and at(path) is None and (base := at(path[2:])):
        return base
    return next((place for end in range(len(path), -1, -1) if (place := at(path[:end]))), None)


def _mistake(where: str, rule: str, at: Position | None = None, path: KeyPath = ()) -> ScenarioError:
    """One printable line, whatever was in the file or its name."""
    place = f"{where}:{at.line}" if at else where
    keys = ".".join(str(key) if re.fullmatch(r"[\w-]{1,60}", str(key)) else quoted(key) for key in path)
    line = ": ".join(part for part in (place, keys, rule) if part)
    return ScenarioError(printable(line))
