"""How long a user thinks, as asked."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from loadgen.fields import Duration, DurationOrZero, Strict


class FixedSpan(Strict):
    """Always as long. YAML accepts a bare duration for it, such as 2s."""

    kind: Literal["fixed"] = "fixed"
    time_s: DurationOrZero = Field(alias="time", description="how long, such as 2s")


class ExponentialSpan(Strict):
    """Exponential of `mean`, truncated truly at `max`."""

    kind: Literal["exponential"]
    mean_s: Duration = Field(alias="mean", description="before truncation")
    max_s: Duration | None = Field(default=None, alias="max", description="longer ones do not occur")


class UniformSpan(Strict):
    """Any time from `min` to `max`, equally likely."""

    kind: Literal["uniform"]
    min_s: DurationOrZero = Field(alias="min", description="the shortest")
    max_s: Duration = Field(alias="max", description="the longest")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min_s > self.max_s:
            raise ValueError("min is above max")
        return self


class LognormalSpan(Strict):
    """Log-normal with `median` and `sigma`, truncated truly at `max`."""

    kind: Literal["lognormal"]
    median_s: Duration = Field(alias="median", description="half of them are longer, before truncation")
    sigma: Annotated[float, Field(gt=0, le=10, allow_inf_nan=False)] = Field(
        description="standard deviation of the logarithm"
    )
    max_s: Duration | None = Field(default=None, alias="max", description="longer ones do not occur")


def _bare_time(value: Any) -> Any:
    return value if isinstance(value, dict | BaseModel) else {"kind": "fixed", "time": value}


NO_TIME = FixedSpan(time=0.0)

Spans = Annotated[
    Annotated[FixedSpan | ExponentialSpan | UniformSpan | LognormalSpan, Field(discriminator="kind")],
    BeforeValidator(_bare_time),
]
