"""The bundled engine's knobs, as asked: how it batches, and what a step costs."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from loadgen.fields import Count, CountOrZero, Duration, DurationOrZero, Strict


class FixedCost(Strict):
    """Every step takes `step`, plus `per_token` for each token computed in it. For teaching and for tests."""

    kind: Literal["fixed"]
    step_s: Duration = Field(alias="step")
    per_token_s: DurationOrZero = Field(default=0.0, alias="per_token")


class RooflineCost(Strict):
    """Step time from a GPU's bandwidth and arithmetic and a model's size, plus `overhead` per step."""

    kind: Literal["roofline"] = "roofline"
    gpu: str = "a100-40gb"
    model: str = "opt-13b"
    overhead_s: DurationOrZero = Field(default=0.005, alias="overhead")


Cost = Annotated[FixedCost | RooflineCost, Field(discriminator="kind")]


class Engine(Strict):
    """The bundled mini-engine's knobs; `batching` says when membership of the batch may change.

    static: a batch starts when `max_sequences` are waiting or the oldest has waited `max_wait` (1 s), and its
    slots are held until its longest member ends. dynamic: the same with a short `max_wait` (50 ms).
    continuous: membership is decided anew before every step, under `token_budget`, `max_sequences` and
    `prefill_chunk`.
    """

    batching: Literal["static", "dynamic", "continuous"] = "continuous"
    max_sequences: Count = 64
    token_budget: Count = 2048
    prefill_chunk: Count | None = 512
    max_queue: CountOrZero | None = None
    max_wait_s: DurationOrZero | None = Field(default=None, alias="max_wait")
    cost: Cost = RooflineCost()
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
        """Seconds the oldest waiting request may wait for its batch to fill (static and dynamic)."""
        if self.max_wait_s is not None:
            return self.max_wait_s
        return 1.0 if self.batching == "static" else 0.05
