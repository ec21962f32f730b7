"""The same law at another pace: every rate times a factor, every time over it."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel

from loadgen.laws.arrivals import Arrivals, Burst, Closed, Custom, Replay, Stages

Law = TypeVar("Law", bound=BaseModel)


def scaled(law: Arrivals, factor: float) -> Arrivals:
    """`law` whose instants are all divided by `factor`; drawn with one seed, they are the same otherwise.

    Raises ValueError for a law without a pace of its own: custom, one burst, a closed loop.
    """
    for each in [stage.arrivals for stage in law.stages] if isinstance(law, Stages) else [law]:
        if isinstance(each, Custom | Closed) or (isinstance(each, Burst) and each.size is None):
            raise ValueError(f"arrivals of kind {each.kind} have no rate that could be changed")
    if isinstance(law, Replay) and (law.rate_rps is None or law.scale == "thin"):
        return _scaled(law.model_copy(update={"speed_up": law.speed_up * factor}), factor)
    return _scaled(law, factor)


def _scaled(law: Law, factor: float) -> Law:
    """Names say what a field is: a rate, a time, or neither."""
    return law.model_copy(
        update={name: _value(name, getattr(law, name), factor) for name in type(law).model_fields}
    )


def _value(name: str, value: Any, factor: float) -> Any:
    if isinstance(value, BaseModel):
        return _scaled(value, factor)
    if isinstance(value, tuple):
        return tuple(_value(name, each, factor) for each in value)
    if isinstance(value, float) and (name.endswith("_rps") or name == "batch_rate"):
        return value * factor
    return value / factor if isinstance(value, float) and name.endswith("_s") else value
