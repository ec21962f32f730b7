"""How long a user thinks, as asked."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from loadgen.fields import Duration, DurationOrZero, Strict

CENTURY_S = 100 * 31_536_000.0  # instants are 64-bit nanoseconds: 292 years
FARTHEST = 8.3  # standard deviations that a draw of 52 bits can be from the mean


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
    """Log-normal with `median` and `sigma`, truncated truly at `max`.

    Refused where some would be longer than a century, and where all but 1e-280 would be longer than `max`.
    """

    kind: Literal["lognormal"]
    median_s: Duration = Field(alias="median", description="half of them are longer, before truncation")
    sigma: Annotated[float, Field(ge=1e-6, le=10, allow_inf_nan=False)] = Field(
        description="standard deviation of the logarithm"
    )
    max_s: Duration | None = Field(default=None, alias="max", description="longer ones do not occur")

    @model_validator(mode="after")
    def _sound(self) -> Self:
        if self.max_s is None and math.log(CENTURY_S / self.median_s) < FARTHEST * self.sigma:
            raise ValueError("give max: with such a sigma some times would be longer than a century")
        if self.max_s is not None and math.log(self.max_s / self.median_s) < -36 * self.sigma:
            raise ValueError("all of such a law is above max: the probability of less is below 1e-280")
        return self


def _bare_time(value: Any) -> Any:
    return value if isinstance(value, dict | BaseModel) else {"kind": "fixed", "time": value}


NO_TIME = FixedSpan(time=0.0)

Spans = Annotated[
    Annotated[FixedSpan | ExponentialSpan | UniformSpan | LognormalSpan, Field(discriminator="kind")],
    BeforeValidator(_bare_time),
]
