"""The bundled engine's knobs, as asked: how it batches, what it remembers, and what a step costs.

Each knob says in its description what it does; `loadgen engines show PRESET` prints them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import PurePath
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from loadgen import presets
from loadgen.fields import ComputedModel, Count, CountOrZero, Duration, DurationOrZero, Rate, Strict
from loadgen.laws.lengths import AnswerLengths

Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Factor = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
Spread = Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)]

# --- what a step costs --------------------------------------------------------------------------------------


class FixedCost(Strict):
    """Every step takes `step`, plus `per_token` for each token computed in it and `per_swapped_token` for
    each token of KV moved over the bus. For teaching and for tests.
    """

    kind: Literal["fixed"]
    step_s: Duration = Field(alias="step", description="what every step takes")
    per_token_s: DurationOrZero = Field(
        default=0.0, alias="per_token", description="more for each token computed in it"
    )
    per_swapped_token_s: DurationOrZero = Field(
        default=0.0,
        alias="per_swapped_token",
        description="more for each position whose KV is moved over the bus",
    )


class FittedCost(Strict):
    """Step time from constants that somebody measured: seconds = hypot(weights, per_token x tokens) +
    per_context_token x contexts + overhead. `loadgen engines fit` prints one.
    """

    kind: Literal["fitted"]
    weights_s: DurationOrZero = Field(alias="weights", description="to read the weights once")
    per_token_s: DurationOrZero = Field(alias="per_token", description="arithmetic of a token")
    per_context_token_s: DurationOrZero = Field(
        default=0.0, alias="per_context_token", description="to read the KV of a position attended to"
    )
    overhead_s: DurationOrZero = Field(default=0.0, alias="overhead", description="added to every step")
    per_swapped_token_s: DurationOrZero = Field(
        default=0.0,
        alias="per_swapped_token",
        description="more for each position whose KV is moved over the bus",
    )

    @model_validator(mode="after")
    def _takes_time(self) -> Self:
        if not self.weights_s + self.per_token_s + self.overhead_s:
            raise ValueError("weights, per_token and overhead are all zero: a step would take no time")
        return self


class RooflineCost(Strict):
    """Step time from a GPU's bandwidth and arithmetic and a model's size, plus `overhead` and `sleep`."""

    kind: Literal["roofline"] = "roofline"
    gpu: str = Field(default="a100-40gb", description="a profile: loadgen engines lists them")
    model: str = Field(default="opt-13b", description="a profile: loadgen engines lists them")
    gpus: Count = Field(default=1, description="how many share the model, without any cost of communication")
    overhead_s: DurationOrZero = Field(default=0.005, alias="overhead", description="added to every step")
    sleep_s: DurationOrZero = Field(
        default=0.0, alias="sleep", description="added too: a loop that sleeps between steps"
    )
    kv_touches: Annotated[float, Field(ge=1, le=100, allow_inf_nan=False)] = Field(
        default=1.0,
        description="how often a step moves each key and value (3: caches concatenated in each step)",
    )
    bus_gb_per_s: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] = Field(
        default=25.0, description="what swapped KV moves at, in 1e9 bytes per second"
    )


_ROOFLINE = {field.alias or name for name, field in RooflineCost.model_fields.items()}

Cost = Annotated[FixedCost | FittedCost | RooflineCost, Field(discriminator="kind")]


class Jitter(Strict):
    """Seeded lognormal factors of mean 1 on every step's time; each knob is a coefficient of variation."""

    step: Spread = Field(default=0.0, description="cv of a factor that is drawn anew for each step")
    drift: Spread = Field(default=0.0, description="cv of a factor that wanders, an AR(1) process")
    drift_steps: Count = Field(default=200, description="steps over which drift forgets")
    run: Spread = Field(default=0.0, description="cv of one factor for the whole run")


# --- memory -------------------------------------------------------------------------------------------------


class ExpectedShare(Strict):
    """What part of the answers still to come a newcomer must leave room for: from `start` down to `end` over
    `steps` steps; back at `start` after a preemption for want of memory, and when nothing is left to run.
    """

    start: Share = Field(default=0.7, description="share at first and after a preemption")
    end: Share = Field(default=0.098, description="share that it falls to")
    steps: Count = Field(default=600, description="steps that the fall takes")


class Kv(Strict):
    """The memory for keys and values, in blocks of `block_tokens` positions. Left out, it is unlimited."""

    reserve: Literal["max_length", "power_of_two", "exact", "completion", "paged"] = Field(
        default="paged",
        description="what a sequence holds from its admission on: max_length: as much as the engine's; "
        "power_of_two: its prompt and the next power of two from its answer's length on; exact: prompt and "
        "answer, as an oracle would; completion: prompt and the tokens asked for at most; paged: what is "
        "computed, block by block",
    )
    tokens: Count | None = Field(
        default=None, description="positions in all; null: what weights leave of the GPU's memory"
    )
    utilization: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = Field(
        default=0.9, description="share of the GPU's memory for weights and KV together"
    )
    block_tokens: Count = Field(default=16, description="positions in a block")
    buddy: bool = Field(
        default=False,
        description="a reservation takes a power of two of positions, as a buddy allocator gives them",
    )
    watermark: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)] = Field(
        default=0.0,
        description="paged: share of the blocks, rounded down, that newcomers leave free while others run",
    )
    expected_share: ExpectedShare | None = Field(
        default=None, description="paged: a newcomer must leave room for this share of all answers to come"
    )
    prefix_cache: bool = Field(
        default=False,
        description="blocks of equal prompt prefixes are computed once; LRU",
    )


# --- the server's faults ------------------------------------------------------------------------------------


class Faults(Strict):
    """What the served engine does wrong on purpose, to test clients. A simulation has none of it."""

    stall_every: Count | None = Field(default=None, description="hold back every n-th token for `stall`")
    stall_s: Duration = Field(default=1.0, alias="stall", description="how long a token is held back")
    drop_after: CountOrZero | None = Field(default=None, description="cut the connection after k tokens")
    error_after: CountOrZero | None = Field(default=None, description="error in the stream after k tokens")
    error_share: Share = Field(default=0.0, description="share of requests answered 500 at once")
    slow_headers_s: DurationOrZero = Field(
        default=0.0, alias="slow_headers", description="delay before the status line"
    )
    fake_streaming: bool = Field(default=False, description="the whole stream in one piece, at the end")


# --- a real model -------------------------------------------------------------------------------------------

MODEL_PREFIX = "torch:"


class Compute(Strict):
    """What a `model` is computed on. Without a model it changes nothing."""

    device: Literal["auto", "cuda", "cpu"] = Field(
        default="auto", description="auto: the GPU if there is one"
    )
    dtype: Literal["auto", "bfloat16", "float32"] = Field(
        default="auto",
        description="of weights and KV; auto: bfloat16, on a CPU only if it multiplies that. In bfloat16 "
        "sums round differently by batch, and so may greedy tokens; in float32 they are the same",
    )
    threads: Count | None = Field(
        default=None, description="of the CPU; null: a core less than there are, which serves and measures"
    )


# --- the engine ---------------------------------------------------------------------------------------------


class Deadline(Strict):
    """When a request should have its first token: `base` after it came, and `per_token` of its prompt."""

    base_s: DurationOrZero = Field(
        default=0.0, alias="base", description="a first token is due so long after its request"
    )
    per_token_s: DurationOrZero = Field(
        default=0.001, alias="per_token", description="and so much later for each token of its prompt"
    )


class Engine(Strict):
    """The bundled mini-engine's knobs. `batching` says when membership of the batch may change:

    static: a batch starts when `max_sequences` are waiting or the oldest has waited `max_wait` (1 s), and its
    slots are held until its longest member ends. dynamic: the same with a short `max_wait` (50 ms) and
    `preferred_sizes`. continuous: membership is decided anew before every step.

    A `preset` gives every knob that is not given here.
    """

    preset: str | None = Field(default=None, description="start from a named system's knobs")
    batching: Literal["static", "dynamic", "continuous"] = Field(
        default="continuous", description="when membership of the batch may change"
    )
    max_sequences: Count = Field(default=64, description="slots: sequences that run at once")

    max_wait_s: DurationOrZero | Literal["forever"] | None = Field(
        default=None, alias="max_wait",
        description="static, dynamic: longest wait for a batch to fill; forever: until it is full",
    )  # fmt: skip
    preferred_sizes: Annotated[tuple[Count, ...], Field(strict=False)] = Field(
        default=(), description="dynamic: start at once when so many wait (the largest size that is met)"
    )
    pad: Literal["batch", "run", "none"] = Field(
        default="batch",
        description="static, dynamic: prompts and answers padded to the longest of the batch, to the longest "
        "that the engine has been given so far, or not at all (then an ended member costs nothing)",
    )
    release: Literal["each", "batch"] = Field(
        default="each", description="static, dynamic: tokens leave as they come, or all when the batch ends"
    )

    token_budget: Count | None = Field(
        default=2048, description="continuous: tokens computed in one step; null: no bound"
    )
    prefill_chunk: Count | None = Field(
        default=512,
        description="continuous: most tokens of one prompt (or of what is recomputed) in a step; null: all",
    )
    order: Literal["decode_first", "list", "prefill_first", "hybrid"] = Field(
        default="decode_first",
        description="continuous, who gets the budget: decode_first: decodes, unfinished prefills, newcomers; "
        "list: running ones in the order they were admitted, then newcomers; prefill_first: while there is a "
        "prompt to compute, steps of prompts alone, decodes pause; hybrid: as decode_first, but a prompt is "
        "computed whole or not yet",
    )
    admit: Literal["tokens", "slot"] = Field(
        default="tokens",
        description="continuous: a slot is filled only while budget is left in the step; slot: always, "
        "and a newcomer that finds one free takes it past the queue",
    )
    waiting_served_ratio: Factor | None = Field(
        default=None,
        description="prefill_first: prompts may interrupt decodes when so many times the running ones wait",
    )
    max_waiting_tokens: Count | None = Field(
        default=None, description="prefill_first: or after so many steps of decodes alone"
    )
    padded_context: bool = Field(
        default=False,
        description="continuous: every decode attends to as many positions as the longest, and reserved "
        "memory must have room for a newcomer when all are filled up to the longest",
    )

    policy: Literal["fcfs", "priority", "aging", "deadline"] = Field(
        default="fcfs",
        description="who leaves the queue first. priority: the lowest number; aging: the same, but waiting "
        "lowers the number; deadline: the earliest deadline, its own (`deadline_ms`) or the engine's",
    )
    aging: Rate | None = Field(default=None, description="aging: what a second of waiting takes off")
    deadline: Deadline = Field(default=Deadline(), description="deadline: when first tokens are due")
    max_queue: CountOrZero | None = Field(
        default=None, description="requests that may wait beyond the free slots; null: no bound"
    )
    full_queue: Literal["reject", "drop_lowest"] = Field(
        default="reject",
        description="at a full queue: refuse the newcomer, or the last by priority of it and who waits and "
        "never ran",
    )

    kv: Kv | None = Field(default=None, description="memory for keys and values; null: no bound")
    preempt: Literal["none", "priority", "memory", "both"] = Field(
        default="none",
        description="who may lose its slot: to a newcomer of a lower number, for want of memory, or both",
    )
    victim: Literal["last", "most_remaining", "least_urgent", "fewest_emitted"] = Field(
        default="last",
        description="which one: the last admitted, with most work left, with the highest priority number, "
        "or with the fewest tokens of answer",
    )
    restore: Literal["recompute", "swap", "keep"] = Field(
        default="recompute",
        description="how it comes back: computed anew, over the bus, or as if its KV had never left (ideal)",
    )
    max_length: Count | None = Field(
        default=None, description="most tokens of prompt and answer together; longer is refused (400)"
    )

    eos: AnswerLengths | None = Field(
        default=None,
        description="answers' own length, where EOS is not ignored; null: as asked",
    )
    tokens_per_chunk: Count = Field(default=1, description="tokens in one event of the stream")
    seed: CountOrZero = Field(default=0, description="of jitter, of answers' lengths and of faults")
    cost: Cost = Field(
        default=RooflineCost(), description="seconds of a step; a model's take as long as they take"
    )
    model: ComputedModel | None = Field(
        default=None,
        description="a real model computes the answers: torch:llama-144m (random weights, made on the spot), "
        "torch:llama-1m, or torch:FOLDER with a Llama's config.json and safetensors",
    )
    compute: Compute = Field(default=Compute(), description="what the model is computed on")
    jitter: Jitter | None = Field(default=None, description="noise on the seconds of a step")
    faults: Faults | None = Field(default=None, description="what the served engine does wrong on purpose")
    model_name: str = Field(default="mini-engine", description="the name that the served engine answers to")

    @model_validator(mode="before")
    @classmethod
    def _completed(cls, data: Any) -> Any:
        """Over its preset; what goes without saying: a cost is a roofline's, and paged memory preempts."""
        if not isinstance(data, dict):
            return data
        if isinstance(data.get("preset"), str):
            data = presets.under(data["preset"], data)
        if isinstance(model := data.get("model"), str):
            data = {"model_name": PurePath(model.removeprefix(MODEL_PREFIX)).name} | data
        cost, kv = data.get("cost"), data.get("kv")
        if isinstance(cost, dict) and cost.keys() <= _ROOFLINE:
            data = data | {"cost": {"kind": "roofline"} | cost}
        is_paged = isinstance(kv, dict) and kv.get("reserve", "paged") == "paged"
        if is_paged and data.get("batching", "continuous") == "continuous":
            data = {"preempt": "memory"} | data
        return data

    @field_validator("preferred_sizes")
    @classmethod
    def _rising(cls, sizes: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted(set(sizes)))

    @model_validator(mode="after")
    def _can_run(self) -> Self:
        wrong = chain(
            self._wrong_steps(), self._wrong_preemption(), self._wrong_memory(), self._wrong_model()
        )
        if (why := next(wrong, None)) is not None:
            raise ValueError(why)
        return self

    def _wrong_steps(self) -> Iterator[str]:
        budget, slots = self.token_budget, self.max_sequences
        if self.batching == "continuous" and budget is not None and budget < slots:
            yield (
                f"token_budget {budget} is below max_sequences {slots}: "
                "a step could not give every running sequence its token"
            )
        if self.order == "hybrid" and self.prefill_chunk is not None:
            yield (
                "order hybrid computes prompts whole, and prefill_chunk would cut them: "
                "set prefill_chunk: null"
            )
        gated = self.waiting_served_ratio is not None or self.max_waiting_tokens is not None
        if gated and self.order != "prefill_first":
            yield (
                "waiting_served_ratio and max_waiting_tokens say when prompts may interrupt decodes: "
                "they need order: prefill_first"
            )
        if self.preferred_sizes and self.preferred_sizes[-1] > slots:
            yield f"preferred_sizes hold {self.preferred_sizes[-1]}, above max_sequences {slots}"
        if self.policy == "aging" and self.aging is None:
            yield "policy aging needs aging: by how much a second of waiting lowers the number, such as 1/s"

    def _wrong_preemption(self) -> Iterator[str]:
        paged, by_memory = self.is_paged, self.preempt in ("memory", "both")
        if self.batching != "continuous":
            held = f"{self.batching} batching holds its members to the end"
            if paged:
                yield (
                    f"{held}, and paged memory may run out before: "
                    "reserve max_length, power_of_two, exact or completion"
                )
            if self.preempt != "none":
                yield f"{held}: preempt must be none"
        elif paged and not by_memory:
            yield "paged memory can run out while sequences run: preempt must be memory or both"
        elif by_memory and not paged:
            yield f"preempt {self.preempt}: memory runs out only where kv.reserve is paged"

    def _wrong_memory(self) -> Iterator[str]:
        kv = self.kv
        if kv is None:
            return
        if kv.tokens is None and self.model is not None:
            yield "kv.tokens is needed: a model's KV is real memory, and a profile's GPU is not where it lies"
        elif kv.tokens is None and not isinstance(self.cost, RooflineCost):
            yield f"kv.tokens is needed: a {self.cost.kind} cost has no GPU whose memory could be counted"
        if kv.reserve == "max_length" and self.max_length is None:
            yield "kv.reserve max_length reserves as much as the engine's max_length: give max_length"
        least = max(kv.block_tokens, self.max_length or 0)
        if kv.tokens is not None and kv.tokens < least:
            yield (
                f"kv.tokens {kv.tokens} is smaller than one request "
                f"(max_length {self.max_length}, blocks of {kv.block_tokens})"
            )
        if kv.expected_share is not None and not self.is_paged:
            yield "kv.expected_share says how much paged memory newcomers leave: it needs reserve: paged"
        if kv.buddy and self.is_paged:
            yield "kv.buddy rounds what is reserved, and reserve: paged takes blocks as they are needed"
        if kv.prefix_cache and not self.is_paged:
            yield "kv.prefix_cache shares blocks: it needs reserve: paged"

    def _wrong_model(self) -> Iterator[str]:
        if self.model is None:
            return
        if self.preempt != "none" and self.restore != "recompute":
            yield f"restore {self.restore}: a model's KV is computed anew: restore must be recompute"
        if self.kv is not None and self.kv.prefix_cache:
            yield "kv.prefix_cache: a model computes each prompt whole: set it to false"
        if self.padded_context:
            yield "padded_context: a model attends to what there is: set it to false"
        if self.eos is not None:
            yield "eos draws the lengths of made-up answers: a model ends its own"
        if self.jitter is not None:
            yield "jitter is noise on computed seconds: a model's are measured"

    @property
    def takes_whole_prompts(self) -> bool:
        """Continuous: a prompt is computed in one step or not yet."""
        return self.order == "hybrid" or (self.order == "prefill_first" and self.prefill_chunk is None)

    @property
    def is_paged(self) -> bool:
        """KV memory is taken as it is needed, and may run out."""
        return self.kv is not None and self.kv.reserve == "paged"

    @property
    def window_s(self) -> float:
        """Seconds the oldest waiting request may wait for its batch to fill (static and dynamic)."""
        if self.max_wait_s == "forever":
            return float("inf")
        if self.max_wait_s is not None:
            return self.max_wait_s
        return 1.0 if self.batching == "static" else 0.05
