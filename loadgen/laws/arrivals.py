"""When requests arrive, as asked."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, ValidationInfo, model_validator

from loadgen.fields import Count, Duration, DurationOrZero, JsonObject, Rate, RateOrZero, Strict, Symbol
from loadgen.laws.spans import NO_TIME, Spans

# --- renewal processes: independent gaps of one law ---------------------------------------------------------


class Poisson(Strict):
    """Independent exponential gaps of mean 1/rate: many users who know nothing of each other."""

    kind: Literal["poisson"]
    rate_rps: Rate = Field(alias="rate", description="requests per second in the mean, such as 8/s")


class Constant(Strict):
    """Equal gaps of 1/rate; the first request is due at 0."""

    kind: Literal["constant"]
    rate_rps: Rate = Field(alias="rate", description="requests per second, such as 8/s")


class Gamma(Strict):
    """Gamma gaps of mean 1/rate and shape `burstiness`, as in vLLM's benchmark: CV = 1/sqrt(burstiness).

    Shape 1 is Poisson. Below 0.001 most gaps would be too small for a float.
    """

    kind: Literal["gamma"]
    rate_rps: Rate = Field(alias="rate", description="requests per second in the mean")
    burstiness: Annotated[float, Field(ge=0.001, le=1e6, allow_inf_nan=False)] = Field(
        default=1.0, description="shape of the gaps: 1 is Poisson, less is burstier, more is steadier"
    )
    cv: Annotated[float, Field(ge=0.001, le=31.0, allow_inf_nan=False)] | None = Field(
        default=None, description="instead of burstiness: standard deviation / mean of the gaps"
    )

    @model_validator(mode="after")
    def _one(self) -> Self:
        if self.cv is not None and "burstiness" in self.model_fields_set and self.burstiness != 1.0:
            raise ValueError("give burstiness or cv, not both: burstiness = 1 / cv^2")
        return self

    @property
    def shape(self) -> float:
        return self.burstiness if self.cv is None else 1 / (self.cv * self.cv)


class Weibull(Strict):
    """Weibull gaps of mean 1/rate. Shape 1 is Poisson; below it gaps have a heavy tail."""

    kind: Literal["weibull"]
    rate_rps: Rate = Field(alias="rate", description="requests per second in the mean")
    shape: Annotated[float, Field(ge=0.1, le=100, allow_inf_nan=False)] = Field(
        description="1 is Poisson, less is burstier, more is steadier"
    )


Renewal = Poisson | Gamma | Weibull  # gaps at random, of which each knows nothing of the others

# --- several at once ----------------------------------------------------------------------------------------


class Burst(Strict):
    """All requests at once; or, with `size` and `every`, groups of `size` every so often."""

    kind: Literal["burst"]
    size: Count | None = Field(default=None, description="requests in a group")
    every_s: Duration | None = Field(default=None, alias="every", description="from group to group")

    @model_validator(mode="after")
    def _both_or_neither(self) -> Self:
        if (self.size is None) != (self.every_s is None):
            raise ValueError("size and every belong together: give both for groups, neither for one burst")
        return self


class Batches(Strict):
    """Batches of requests due together, of fixed or geometric size; they come every so often, or as Poisson.

    With `every` the first batch is due at 0; with `batch_rate` gaps between batches are exponential.
    """

    kind: Literal["batches"]
    size: Count = Field(description="requests in a batch, in the mean")
    sizes: Literal["fixed", "geometric"] = Field(
        default="fixed", description="geometric: 1, 2, 3, ... with mean `size`"
    )
    every_s: Duration | None = Field(default=None, alias="every", description="from batch to batch")
    batch_rate: Rate | None = Field(default=None, description="instead: batches per second, Poisson")

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.every_s is None) == (self.batch_rate is None):
            raise ValueError("give exactly one of every and batch_rate")
        return self


# --- rates that change --------------------------------------------------------------------------------------


class OnOff(Strict):
    """Poisson at `rate` while on and at `off_rate` while off, by turns.

    Exponential dwell times make it a two-state MMPP, whose first state is drawn as in the long run. With
    fixed ones it starts on.
    """

    kind: Literal["on_off"]
    rate_rps: Rate = Field(alias="rate", description="requests per second while on")
    off_rate_rps: RateOrZero = Field(
        default=0.0, alias="off_rate", description="requests per second while off"
    )
    on_s: Duration = Field(alias="on_for", description="how long it stays on, in the mean")
    off_s: Duration = Field(alias="off_for", description="how long it stays off, in the mean")
    dwell: Literal["exponential", "fixed"] = Field(default="exponential", description="law of both times")


class State(Strict):
    """One state of an MMPP."""

    rate_rps: RateOrZero = Field(alias="rate", description="requests per second in this state")
    dwell_s: Duration = Field(alias="dwell", description="how long a visit lasts, in the mean")


class Mmpp(Strict):
    """Markov-modulated Poisson: exponential visits to each state, then any other state, equally likely.

    The first state is drawn as in the long run.
    """

    kind: Literal["mmpp"]
    states: Annotated[tuple[State, ...], Field(strict=False, min_length=2, max_length=64)] = Field(
        description="two or more, each with its rate and how long a visit lasts"
    )

    @model_validator(mode="after")
    def _some_load(self) -> Self:
        if not any(state.rate_rps for state in self.states):
            raise ValueError("every state's rate is 0: no request would ever be due")
        return self


class Point(Strict):
    """The rate at an instant."""

    at_s: DurationOrZero = Field(alias="at", description="from the start")
    rate_rps: RateOrZero = Field(alias="rate", description="requests per second there")


def _rising(points: tuple[Point, ...]) -> None:
    if points[0].at_s != 0:
        raise ValueError("the first point must be at 0s")
    if any(a.at_s >= b.at_s for a, b in pairwise(points)):
        raise ValueError("points must rise in time: each `at` above the one before")


class Steps(Strict):
    """Poisson whose rate jumps: each point's rate holds until the next, the last one's for ever.

    With `every` it all starts anew after that time.
    """

    kind: Literal["steps"]
    points: Annotated[tuple[Point, ...], Field(strict=False, min_length=1, max_length=10_000)] = Field(
        description="from when on which rate holds; the first at 0s"
    )
    every_s: Duration | None = Field(default=None, alias="every", description="repeat after so long")

    @model_validator(mode="after")
    def _sound(self) -> Self:
        _rising(self.points)
        if self.every_s is not None and self.every_s <= self.points[-1].at_s:
            raise ValueError("every must be longer than the last point's `at`")
        if not (self.points[-1].rate_rps if self.every_s is None else any(p.rate_rps for p in self.points)):
            raise ValueError("the rate ends at 0: give the last point a rate, or repeat with every")
        return self


class Curve(Strict):
    """Poisson whose rate runs straight from point to point, and stays at the last one's; a day's curve, say.

    With `repeat` it starts anew at the last point.
    """

    kind: Literal["curve"]
    points: Annotated[tuple[Point, ...], Field(strict=False, min_length=2, max_length=10_000)] = Field(
        description="the rate at each instant; the first at 0s"
    )
    repeat: bool = Field(default=False, description="start anew at the last point")

    @model_validator(mode="after")
    def _sound(self) -> Self:
        _rising(self.points)
        if not (any(p.rate_rps for p in self.points) if self.repeat else self.points[-1].rate_rps):
            raise ValueError("the rate ends at 0: give the last point a rate, or set repeat: true")
        return self


class Ramp(Strict):
    """Poisson whose rate goes straight from `from` to `to` over a time, and stays there."""

    kind: Literal["ramp"]
    from_rps: RateOrZero = Field(alias="from", description="requests per second at first")
    to_rps: Rate = Field(alias="to", description="requests per second at last")
    over_s: Duration = Field(alias="over", description="how long it takes")


class Sine(Strict):
    """Poisson of rate(t) = rate x (1 + amplitude x sin(2 pi (t / period + phase)))."""

    kind: Literal["sine"]
    rate_rps: Rate = Field(alias="rate", description="requests per second in the mean")
    amplitude: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = Field(
        description="0 is a steady rate; at 1 it touches zero"
    )
    period_s: Duration = Field(alias="period", description="from peak to peak")
    phase: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)] = Field(
        default=0.0, description="where in the period it starts: 0 rising through the mean, 0.25 at the peak"
    )


# --- others' instants ---------------------------------------------------------------------------------------


class Replay(Strict):
    """The instants of `load.trace`, as they are or changed as said.

    `rate` scales them to a mean rate: `stretch` multiplies every instant, which keeps the order and shape of
    bursts; `thin` keeps each request with one probability, which keeps the time of day (it cannot add any).
    """

    kind: Literal["trace"]
    speed_up: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] = Field(
        default=1.0, description="2 replays an hour in half an hour"
    )
    loop: bool = Field(default=False, description="start anew after the last request")
    rate_rps: Rate | None = Field(default=None, alias="rate", description="scale to this mean rate")
    scale: Literal["stretch", "thin"] = Field(default="stretch", description="how to reach `rate`")

    @property
    def ends(self) -> bool:
        return not self.loop

    @model_validator(mode="after")
    def _one(self) -> Self:
        if self.rate_rps is not None and self.scale == "stretch" and self.speed_up != 1.0:
            raise ValueError("give speed_up or a rate to stretch to, not both: each decides the other")
        return self


def _scenarios_own(value: Any, info: ValidationInfo) -> Any:
    if value is not None and not isinstance(value, str):
        raise ValueError("must be the path of a folder")
    own = (info.context or {}).get("folder")
    return value if own is None else str(Path(own, value or "."))


Folder = Annotated[str | None, BeforeValidator(_scenarios_own)]


class Custom(Strict):
    """A law of your own: a Python function `module:function`, found beside the scenario or installed.

    It is called as function(uniform, **args), where uniform(n) gives the next n numbers of a seeded stream in
    (0, 1), and yields gaps in seconds, one a request, for ever or until it has no more.
    """

    kind: Literal["custom"]
    law: Symbol = Field(description="module:function")
    args: JsonObject = Field(default={}, description="given to the function by name")
    folder: Folder = Field(
        default=None, validate_default=True, description="where the module is: the scenario's own folder"
    )


# --- combinations -------------------------------------------------------------------------------------------

OpenLaw = Poisson | Constant | Renewal | Burst | Batches | OnOff | Mmpp | Steps | Curve | Ramp | Sine | Custom
StageLaw = Annotated[OpenLaw, Field(discriminator="kind")]


class Stage(Strict):
    """One stretch of a load: its law, and what ends it. Its time counts from its own start."""

    arrivals: StageLaw = Field(description="any law but trace, closed and stages")
    duration_s: Duration | None = Field(default=None, alias="duration", description="how long it lasts")
    num_requests: Count | None = Field(default=None, description="or how many requests it has")

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.duration_s is None) == (self.num_requests is None):
            raise ValueError("a stage ends by exactly one of duration and num_requests")
        if isinstance(self.arrivals, Burst) and self.arrivals.size is None and self.num_requests is None:
            raise ValueError("one burst has no duration: give num_requests")
        return self


class Stages(Strict):
    """Laws one after another. After the last one there is nothing, unless `repeat`: then all starts anew.

    A stage by count ends, and the next begins, with its last request.
    """

    kind: Literal["stages"]
    stages: Annotated[tuple[Stage, ...], Field(strict=False, min_length=1, max_length=1000)] = Field(
        description="in this order"
    )
    repeat: bool = Field(default=False, description="start anew after the last stage")

    @property
    def ends(self) -> bool:
        return not self.repeat


class Closed(Strict):
    """A closed loop: `concurrency` users; each sends its next request `think` after its last answer ended.

    It cannot offer more than the server answers, and passes no open-loop SLO. With `num_requests` they share
    one list: whoever is free takes the next. The first request of each is due after a `think` as well.
    """

    kind: Literal["closed"]
    concurrency: Annotated[int, Field(ge=1, le=1_000_000)] = Field(description="users, each with one request")
    think: Spans = Field(default=NO_TIME, description="from an answer's end to the next request")


Arrivals = Annotated[OpenLaw | Replay | Stages | Closed, Field(discriminator="kind")]
