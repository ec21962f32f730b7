"""How many tokens, as asked. All laws give whole numbers; those with bounds are truncated, never clipped.

A continuous law Y gives X = round(Y), with Y truncated to [min - 1/2, max + 1/2].
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from loadgen.fields import MAX_COUNT, Count, SentFile, Strict
from loadgen.units import quoted

MAX_TABLE = 1_048_576  # of the laws that are kept as a table of probabilities
LOG_LEAST = -650.0  # e^-650 = 1e-282: shares of a probability below that do not fit in doubles

Bound = Annotated[int, Field(ge=1, le=MAX_TABLE)]
Positive = Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]
Size = Annotated[float, Field(ge=1e-6, le=1e9, allow_inf_nan=False)]


class Fixed(Strict):
    """Every request the same number of tokens. YAML accepts a bare integer for it."""

    kind: Literal["fixed"] = "fixed"
    tokens: Count = Field(description="of every request")


class Uniform(Strict):
    """Integers from `min` to `max`, both included, equally likely."""

    kind: Literal["uniform"]
    min: Count = Field(description="the fewest tokens")
    max: Count = Field(description="the most tokens")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"min {self.min} is above max {self.max}")
        return self


class VllmRange(Strict):
    """vLLM's --random-range-ratio (0.32): from floor(tokens x (1 - ratio)) to ceil(tokens x (1 + ratio)).

    Both included, equally likely, and at least 1. vLLM itself first takes the tokenizer's special tokens off
    a prompt's length.
    """

    kind: Literal["vllm_range"]
    tokens: Count = Field(description="the middle of the range")
    ratio: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)] = Field(
        description="half the range's width, as a share of tokens"
    )

    @model_validator(mode="after")
    def _countable(self) -> Self:
        if self.bounds[1] > MAX_COUNT:
            raise ValueError(f"tokens x (1 + ratio) is above {MAX_COUNT}")
        return self

    @property
    def bounds(self) -> tuple[int, int]:
        """The fewest and the most tokens, by the same floating-point products as vLLM's."""
        return max(1, math.floor(self.tokens * (1 - self.ratio))), math.ceil(self.tokens * (1 + self.ratio))


class SglangRange(Strict):
    """SGLang's --random-range-ratio (0.5.23): from max(1, floor(tokens x ratio)) to tokens.

    Both included, equally likely. At 0, its default, lengths go from 1 to `tokens`; vLLM's are all `tokens`.
    """

    kind: Literal["sglang_range"]
    tokens: Count = Field(description="the most tokens")
    ratio: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = Field(
        description="the fewest, as a share of tokens: 1 is a fixed length"
    )

    @property
    def bounds(self) -> tuple[int, int]:
        """The fewest and the most tokens."""
        return max(1, math.floor(self.tokens * self.ratio)), self.tokens


class TruncatedExponential(Strict):
    """X = min - 1 + ceil(Y), Y exponential of `mean` (before truncation), truncated to (0, cap - min + 1].

    `rounding: redraw` is instead the 2023 static-against-continuous study's: round an exponential, redraw
    until it is at most `cap`, raise to `min`. Refused where fewer than one draw in a thousand would be kept.
    """

    kind: Literal["truncated_exponential"]
    mean: Positive = Field(description="of the exponential, before truncation")
    cap: Count = Field(description="the most tokens")
    min: Count = Field(default=1, description="the fewest tokens")
    rounding: Literal["ceil", "redraw"] = Field(default="ceil", description="how whole numbers are made")

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


class _Bounded(Strict):
    min: Bound = Field(default=1, description="the fewest tokens")
    max: Bound = Field(default=131_072, description="the most tokens")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"min {self.min} is above max {self.max}")
        return self

    def _nearest(self, centre: float) -> float:
        """The point of [min - 1/2, max + 1/2] that is nearest to `centre`."""
        return min(max(centre, self.min - 0.5), self.max + 0.5)

    def _possible(self, log_bound: float) -> None:
        """Refuses the law where P(min..max) is below `log_bound`, too small to say how it is spread."""
        if log_bound < LOG_LEAST:
            raise ValueError(
                f"next to all of such a law is outside min..max, {self.min}..{self.max}, whose probability "
                "is below 1e-282: change the bounds or the law"
            )


class Exponential(_Bounded):
    """Exponential of `mean`, rounded, truncated to min..max."""

    kind: Literal["exponential"]
    mean: Size = Field(description="before truncation")

    @model_validator(mode="after")
    def _sound(self) -> Self:
        self._possible((0.5 - self.min) / self.mean)
        return self


class Normal(_Bounded):
    """Normal of `mean` and `sd`, rounded, truncated to min..max."""

    kind: Literal["normal"]
    mean: Annotated[float, Field(ge=-1e9, le=1e9, allow_inf_nan=False)] = Field(
        description="before truncation"
    )
    sd: Size = Field(description="before truncation")

    @model_validator(mode="after")
    def _sound(self) -> Self:
        self._possible(-(((self._nearest(self.mean) - self.mean) / self.sd) ** 2) / 2)
        return self


class Lognormal(_Bounded):
    """Log-normal by `median` and `sigma`, or by `mean` and `cv`; rounded, truncated to min..max."""

    kind: Literal["lognormal"]
    median: Size | None = Field(default=None, description="before truncation; with sigma")
    sigma: Annotated[float, Field(ge=1e-6, le=10, allow_inf_nan=False)] | None = Field(
        default=None, description="standard deviation of the logarithm"
    )
    mean: Size | None = Field(default=None, description="instead, before truncation; with cv")
    cv: Annotated[float, Field(ge=1e-6, le=1e4, allow_inf_nan=False)] | None = Field(
        default=None, description="standard deviation / mean, before truncation"
    )

    @model_validator(mode="after")
    def _sound(self) -> Self:
        given = {name for name in ("median", "sigma", "mean", "cv") if getattr(self, name) is not None}
        if given not in ({"median", "sigma"}, {"mean", "cv"}):
            raise ValueError("give median and sigma, or mean and cv")
        nearest = math.log(self._nearest(math.exp(self.log_mean)))
        self._possible(-(((nearest - self.log_mean) / self.log_sd) ** 2) / 2)
        return self

    @property
    def log_sd(self) -> float:
        return self.sigma if self.sigma is not None else math.sqrt(math.log1p((self.cv or 0) ** 2))

    @property
    def log_mean(self) -> float:
        return math.log(self.median) if self.median else math.log(self.mean or 1) - self.log_sd**2 / 2


class GammaLength(_Bounded):
    """Gamma of `mean` and `cv`, rounded, truncated to min..max."""

    kind: Literal["gamma"]
    mean: Size = Field(description="before truncation")
    cv: Annotated[float, Field(ge=0.001, le=31, allow_inf_nan=False)] = Field(
        description="standard deviation / mean, before truncation: 1 is exponential"
    )

    @property
    def shape(self) -> float:
        return 1 / (self.cv * self.cv)

    @model_validator(mode="after")
    def _sound(self) -> Self:
        x = self._nearest(self.mean) / self.mean
        self._possible(self.shape * (math.log(x) + 1 - x))  # Chernoff's bound of either tail
        return self


class Zipf(_Bounded):
    """P(X = k) proportional to k^-alpha for min <= k <= max."""

    kind: Literal["zipf"]
    alpha: Annotated[float, Field(ge=0, le=20, allow_inf_nan=False)] = Field(
        description="0 is uniform; larger is shorter"
    )


class Empirical(Strict):
    """Lengths as they were seen: a histogram (`values`, with `weights`), or a `column` of a CSV `file`.

    A histogram's values are drawn by weight, a column's rows are equally likely. Rows that say no length, or
    0, are dropped and counted.
    """

    kind: Literal["empirical"]
    values: Annotated[tuple[Count, ...], Field(strict=False, max_length=MAX_TABLE)] | None = Field(
        default=None, description="numbers of tokens"
    )
    weights: (
        Annotated[
            tuple[Annotated[float, Field(ge=0, allow_inf_nan=False)], ...],
            Field(strict=False, max_length=MAX_TABLE),
        ]
        | None
    ) = Field(default=None, description="how often each of values occurs; left out, all alike")
    file: SentFile | None = Field(default=None, description="a CSV file, its path relative to the scenario")
    column: str | None = Field(default=None, description="the file's column that holds the lengths")

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.values is None) == (self.file is None):
            raise ValueError("give values (with weights), or file and column")
        if (self.file is None) != (self.column is None):
            raise ValueError("file and column belong together")
        if self.weights is not None and (self.values is None or len(self.weights) != len(self.values)):
            raise ValueError("weights: one for each of values")
        if self.values is not None and not self.values:
            raise ValueError("values is empty")
        if self.weights is not None and not sum(self.weights):
            raise ValueError("weights: at least one must be above 0")
        return self


class TraceLength(Strict):
    """The length in `load.trace`, of the row whose prompt or other length goes with it."""

    kind: Literal["trace"]
    otherwise: Count | None = Field(default=None, description="for rows of which the trace does not say it")


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


LengthLaw = (
    Fixed
    | Uniform
    | VllmRange
    | SglangRange
    | TruncatedExponential
    | Exponential
    | Normal
    | Lognormal
    | GammaLength
    | Zipf
    | Empirical
    | TraceLength
)

Lengths = Annotated[
    Annotated[LengthLaw, Field(discriminator="kind")],
    BeforeValidator(_bare_tokens),
]


AnswerLaw = Fixed | Uniform | TruncatedExponential

AnswerLengths = Annotated[  # of the bundled engine's own answers
    Annotated[AnswerLaw, Field(discriminator="kind")],
    BeforeValidator(_bare_tokens),
]


def longest(law: LengthLaw) -> int:
    """The most tokens that `law` can give; what a file or a trace holds is not known here: 1."""
    match law:
        case Fixed(tokens=tokens):
            return tokens
        case VllmRange() | SglangRange():
            return law.bounds[1]
        case TruncatedExponential(cap=cap):
            return cap
        case Empirical(values=values):
            return max(values or (1,))
        case TraceLength():
            return 1
        case _:
            return law.max
