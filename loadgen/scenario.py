"""What is asked: a Scenario, written in YAML or made from flags. Values only; nothing here draws, sends or judges.

Fields carry their unit in Python (`connect_s`); the YAML key carries it in the text instead (`connect: 10s`).
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PlainSerializer,
    Tag,
    model_validator,
)

from loadgen.units import duration_s, rate_rps, show_duration, show_rate


class ScenarioError(Exception):
    """A user's mistake: one line that says where, which rule, and what to do. The CLI prints it and exits 2."""


def _positive(value: float) -> float:
    if value <= 0:
        raise ValueError("must be above zero")
    return value


def _not_negative(value: float) -> float:
    if value < 0:
        raise ValueError("must not be negative")
    return value


_Seconds = Annotated[float, BeforeValidator(duration_s), PlainSerializer(show_duration)]
Duration = Annotated[_Seconds, AfterValidator(_positive)]
DurationOrZero = Annotated[_Seconds, AfterValidator(_not_negative)]
Rate = Annotated[float, BeforeValidator(rate_rps), AfterValidator(_positive), PlainSerializer(show_rate)]
Count = Annotated[int, Field(ge=1, le=2**31 - 1, strict=True)]
CountOrZero = Annotated[int, Field(ge=0, le=2**31 - 1, strict=True)]


class Strict(BaseModel):
    """Unknown keys are errors; values do not change after they were read."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_by_name=True, validate_by_alias=True)


# --- arrivals ---------------------------------------------------------------------------------------------------


class Poisson(Strict):
    """Independent exponential gaps of mean 1/rate."""

    kind: Literal["poisson"]
    rate_rps: Rate = Field(alias="rate")


class Constant(Strict):
    """Equal gaps of 1/rate; the first request is due at 0."""

    kind: Literal["constant"]
    rate_rps: Rate = Field(alias="rate")


class Gamma(Strict):
    """Gamma gaps of mean 1/rate and shape `burstiness`, as in vLLM's benchmark: CV = 1/sqrt(burstiness); 1 is Poisson."""

    kind: Literal["gamma"]
    rate_rps: Rate = Field(alias="rate")
    burstiness: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0


class Burst(Strict):
    """All requests at once; or, with `size` and `every`, groups of `size` every so often."""

    kind: Literal["burst"]
    size: Count | None = None
    every_s: Duration | None = Field(None, alias="every")

    @model_validator(mode="after")
    def _both_or_neither(self) -> Self:
        if (self.size is None) != (self.every_s is None):
            raise ValueError("size and every belong together: give both for groups, neither for one burst")
        return self


Arrivals = Annotated[Poisson | Constant | Gamma | Burst, Field(discriminator="kind")]


# --- lengths ----------------------------------------------------------------------------------------------------


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
    """X = min - 1 + ceil(Y), Y exponential with the given `mean` (before truncation), truncated to (0, cap - min + 1].

    `rounding: redraw` is instead the 2023 static-against-continuous study's: round an exponential, redraw until
    it is at most `cap`, raise to `min`.
    """

    kind: Literal["truncated_exponential"]
    mean: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    cap: Count
    min: Count = 1
    rounding: Literal["ceil", "redraw"] = "ceil"

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min > self.cap:
            raise ValueError(f"min {self.min} is above cap {self.cap}")
        return self


def _lengths_tag(value: Any) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return "tokens"
    return value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)


Lengths = Annotated[
    Annotated[Fixed, BeforeValidator(lambda n: {"kind": "fixed", "tokens": n}), Tag("tokens")]
    | Annotated[Fixed, Tag("fixed")]
    | Annotated[Uniform, Tag("uniform")]
    | Annotated[TruncatedExponential, Tag("truncated_exponential")],
    Discriminator(_lengths_tag),
]


# --- load -------------------------------------------------------------------------------------------------------


class Row(Strict):
    """One request written out: when it is due, its prompt (a text, or a number of tokens), its output length."""

    due_s: DurationOrZero = Field(0.0, alias="due")
    prompt: Annotated[str, Field(min_length=1)] | Count
    output: Count
    priority: Annotated[int, Field(strict=True)] = 0
    id: Annotated[str, Field(pattern=r"^[\x21-\x7e]{1,128}$")] | None = None


def _warmup(value: Any) -> Any:
    """A count of requests, or a duration."""
    return value if isinstance(value, int) and not isinstance(value, bool) else duration_s(value)


class Load(Strict):
    """Which requests fall due when, and how long they are. Stops by `num_requests` or `duration` (measured part)."""

    arrivals: Arrivals | None = None
    prompt_tokens: Lengths = Field(Fixed(tokens=256), validate_default=False)
    output_tokens: Lengths = Field(Fixed(tokens=128), validate_default=False)
    requests: Annotated[tuple[Row, ...], Field(min_length=1)] | None = None
    num_requests: Count | None = None
    duration_s: Duration | None = Field(None, alias="duration")
    warmup_s: DurationOrZero = Field(0.0, alias="warmup")
    warmup_requests: CountOrZero = 0
    tail: bool = True
    ignore_eos: bool = True
    max_concurrency: Count | None = None
    max_in_flight: Count | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.requests is not None:
            drawn = {"arrivals", "num_requests", "duration_s", "warmup_s", "warmup_requests", "prompt_tokens", "output_tokens"}
            if extra := sorted(drawn & self.model_fields_set):
                raise ValueError(f"requests is the whole plan: {', '.join(extra).replace('_s', '')} cannot stand beside it")
            ids = [row.id for row in self.requests if row.id is not None]
            if len(ids) != len(set(ids)):
                raise ValueError("two rows of requests have the same id")
            return self
        if self.arrivals is None:
            raise ValueError("say when requests arrive: give arrivals, or the rows themselves as requests")
        if (self.num_requests is None) == (self.duration_s is None):
            raise ValueError("give exactly one of num_requests and duration")
        if self.warmup_s and self.warmup_requests:
            raise ValueError("give warmup or warmup_requests, not both")
        if isinstance(self.arrivals, Burst) and self.arrivals.size is None:
            if self.num_requests is None:
                raise ValueError("one burst has no duration: give num_requests")
            if self.warmup_s or self.warmup_requests:
                raise ValueError("one burst has no warm-up: every request is due at once")
        return self


# --- target and engine ------------------------------------------------------------------------------------------


def _base_url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{value!r} is not a base URL: write http://host:port or https://host")
    if parts.username or parts.password:
        raise ValueError("a base URL may not hold a user name or password; name the key's variable in api_key_env")
    if parts.query or parts.fragment:
        raise ValueError("a base URL has no query and no fragment")
    try:
        _ = parts.port
    except ValueError:
        raise ValueError(f"{value!r} has an impossible port") from None
    return value.rstrip("/")


class Target(Strict):
    """A live OpenAI-compatible server. `api_key_env` names the variable that holds the key; the key is never stored."""

    base_url: Annotated[str, AfterValidator(_base_url)]
    model: str | None = None
    endpoint: Literal["/v1/chat/completions", "/v1/completions"] = "/v1/chat/completions"
    api_key_env: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = None
    headers: dict[str, str] = {}
    extra_body: dict[str, Any] = {}
    connections: Literal["keep-alive", "fresh"] = "keep-alive"
    ca_file: str | None = None
    insecure: bool = False


class FixedCost(Strict):
    """Every step takes `step`, plus `per_token` for each token computed in it. For teaching and for tests."""

    kind: Literal["fixed"]
    step_s: Duration = Field(alias="step")
    per_token_s: DurationOrZero = Field(0.0, alias="per_token")


class RooflineCost(Strict):
    """Step time from a GPU's bandwidth and arithmetic and a model's size; `overhead` is a fixed addition per step."""

    kind: Literal["roofline"] = "roofline"
    gpu: str = "a100-40gb"
    model: str = "opt-13b"
    overhead_s: DurationOrZero = Field(0.005, alias="overhead")


Cost = Annotated[FixedCost | RooflineCost, Field(discriminator="kind")]


class Engine(Strict):
    """The bundled mini-engine's knobs. One scheduler; `batching` says when membership of the batch may change.

    static: a batch starts when `max_sequences` are waiting or the oldest has waited `max_wait` (1 s), and its slots
    are held until its longest member ends. dynamic: the same with a short `max_wait` (50 ms). continuous: membership
    is decided anew before every step, under `token_budget`, `max_sequences` and `prefill_chunk`.
    """

    batching: Literal["static", "dynamic", "continuous"] = "continuous"
    max_sequences: Count = 64
    token_budget: Count = 2048
    prefill_chunk: Count | None = 512
    max_queue: CountOrZero | None = None
    max_wait_s: DurationOrZero | None = Field(None, alias="max_wait")
    cost: Cost = Field(RooflineCost(), validate_default=False)
    model_name: str = "mini-engine"

    @model_validator(mode="after")
    def _can_run(self) -> Self:
        if self.batching == "continuous" and self.token_budget < self.max_sequences:
            raise ValueError(
                f"token_budget {self.token_budget} is below max_sequences {self.max_sequences}: "
                "a step could not give every running sequence its token"
            )
        return self

    @property
    def window_s(self) -> float:
        """How long the oldest waiting request may wait for its batch to fill (static and dynamic), in seconds."""
        if self.max_wait_s is not None:
            return self.max_wait_s
        return 1.0 if self.batching == "static" else 0.05


class Timeouts(Strict):
    """How long to wait, each from its own start: connecting, first token (from sending), between tokens, all in all."""

    connect_s: Duration = Field(10.0, alias="connect")
    first_token_s: Duration = Field(300.0, alias="first_token")
    idle_s: Duration = Field(120.0, alias="idle")
    total_s: Duration = Field(1800.0, alias="total")


class Goodput(Strict):
    """Per-request limits; a request is good when it meets every one given. Counted from `due`."""

    ttft_s: Duration | None = Field(None, alias="ttft")
    tpot_s: Duration | None = Field(None, alias="tpot")
    e2e_s: Duration | None = Field(None, alias="e2e")


class Variant(Strict):
    """One side of a comparison: the bundled engine with knobs changed, or another server."""

    engine: Engine | None = None
    target: Target | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if self.engine is not None and self.target is not None:
            raise ValueError("a variant has an engine or a target, not both")
        return self


class Scenario(Strict):
    """Everything a run is asked to do. Without a `target` the bundled engine answers."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")] = "run"
    seed: CountOrZero = 0
    target: Target | None = None
    engine: Engine = Field(Engine(), validate_default=False)
    load: Load
    timeouts: Timeouts = Field(Timeouts(), validate_default=False)
    goodput: Goodput | None = None
    drain_s: DurationOrZero = Field(10.0, alias="drain")
    variants: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")], Variant] = {}

    @model_validator(mode="before")
    @classmethod
    def _variants_inherit(cls, data: Any) -> Any:
        """A variant's engine starts from the scenario's engine and changes what it names."""
        if not isinstance(data, dict) or not isinstance(data.get("variants"), dict):
            return data
        own = data.get("engine") if isinstance(data.get("engine"), dict) else {}
        return data | {"variants": {name: _inherit(own, v) for name, v in data["variants"].items()}}

    def as_asked(self) -> dict[str, Any]:
        """The scenario as plain data with units in the text, fit for YAML or JSON; credentials in headers masked."""
        asked = self.model_dump(mode="json", by_alias=True)
        for target in [asked.get("target"), *(v.get("target") for v in asked["variants"].values())]:
            if target:
                target["headers"] = {k: "***" if _secret(k) else v for k, v in target["headers"].items()}
        return asked


def _inherit(own: dict[str, Any], variant: Any) -> Any:
    if isinstance(variant, dict) and isinstance(variant.get("engine"), dict):
        return variant | {"engine": own | variant["engine"]}
    return variant


def _secret(header: str) -> bool:
    return re.search(r"auth|key|token|secret|cookie|password|session", header, re.IGNORECASE) is not None
