"""The laws a load is drawn from, as asked: when requests arrive, and how many tokens they have."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from loadgen.fields import MAX_COUNT, Count, Duration, Rate, Strict
from loadgen.units import quoted

# --- arrivals -----------------------------------------------------------------------------------------------


class Poisson(Strict):
    """Independent exponential gaps of mean 1/rate."""

    kind: Literal["poisson"]
    rate_rps: Rate = Field(alias="rate")


class Constant(Strict):
    """Equal gaps of 1/rate; the first request is due at 0."""

    kind: Literal["constant"]
    rate_rps: Rate = Field(alias="rate")


class Gamma(Strict):
    """Gamma gaps of mean 1/rate and shape `burstiness`, as in vLLM's benchmark: CV = 1/sqrt(burstiness).

    Shape 1 is Poisson. Below 0.001 most gaps would be too small for a float.
    """

    kind: Literal["gamma"]
    rate_rps: Rate = Field(alias="rate")
    burstiness: Annotated[float, Field(ge=0.001, le=1e6, allow_inf_nan=False)] = 1.0


class Burst(Strict):
    """All requests at once; or, with `size` and `every`, groups of `size` every so often."""

    kind: Literal["burst"]
    size: Count | None = None
    every_s: Duration | None = Field(default=None, alias="every")

    @model_validator(mode="after")
    def _both_or_neither(self) -> Self:
        if (self.size is None) != (self.every_s is None):
            raise ValueError("size and every belong together: give both for groups, neither for one burst")
        return self


Arrivals = Annotated[Poisson | Constant | Gamma | Burst, Field(discriminator="kind")]


# --- lengths ------------------------------------------------------------------------------------------------


class Fixed(Strict):
    """Every request the same number of tokens. YAML accepts a bare integer for it."""

    kind: Literal["fixed"] = "fixed"
    tokens: Count


class Uniform(Strict):
    """Integers from `min` to `max`, both included, equally likely."""

    kind: Literal["uniform"]
    min: Count
    max: Count

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"min {self.min} is above max {self.max}")
        return self


class TruncatedExponential(Strict):
    """X = min - 1 + ceil(Y), Y exponential of `mean` (before truncation), truncated to (0, cap - min + 1].

    `rounding: redraw` is instead the 2023 static-against-continuous study's: round an exponential, redraw
    until it is at most `cap`, raise to `min`. Refused where fewer than one draw in a thousand would be kept.
    """

    kind: Literal["truncated_exponential"]
    mean: Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]
    cap: Count
    min: Count = 1
    rounding: Literal["ceil", "redraw"] = "ceil"

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min > self.cap:
            raise ValueError(f"min {self.min} is above cap {self.cap}")
        kept = -math.expm1(-(self.cap + 0.5) / self.mean)  # P(round(exponential) <= cap)
        if self.rounding == "redraw" and kept < 1e-3:
            raise ValueError(
                f"rounding: redraw would keep {kept:.2g} of the draws, since mean {self.mean:g} is far above "
                f"cap {self.cap}: lower the mean, or use rounding: ceil"
            )
        return self


def is_count(value: Any) -> bool:
    """Whether `value` is a number of tokens; ValueError for one out of range."""
    if not isinstance(value, int) or isinstance(value, bool):
        return False
    if not 1 <= value <= MAX_COUNT:
        raise ValueError(f"must be from 1 to {MAX_COUNT} tokens, not {value}")
    return True


def _bare_tokens(value: Any) -> Any:
    """A bare whole number of tokens is a fixed length."""
    if isinstance(value, dict | BaseModel):
        return value
    if is_count(value):
        return {"kind": "fixed", "tokens": value}
    raise ValueError(
        f"must be a whole number of tokens, or a kind of length with its keys, not {quoted(value)}"
    )


Lengths = Annotated[
    Annotated[Fixed | Uniform | TruncatedExponential, Field(discriminator="kind")],
    BeforeValidator(_bare_tokens),
]
