"""What prompts are made of, and have in common, as asked."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from loadgen.fields import Count, DataFile, Strict

MAX_PROMPT_TOKENS = 16_000_000  # 64 MB of synthetic words


def sendable(tokens: int) -> int:
    if tokens > MAX_PROMPT_TOKENS:
        raise ValueError(f"a prompt has at most {MAX_PROMPT_TOKENS:,} tokens, not {tokens:,}")
    return tokens


PrefixTokens = Annotated[Count, AfterValidator(sendable)]


class NoPrefix(Strict):
    """No two prompts begin alike, nor do those of two runs: no prefix cache can answer."""

    kind: Literal["none"] = "none"


class SharedPrefix(Strict):
    """All prompts begin with one text, a system prompt. A prompt is never shorter than it and a token."""

    kind: Literal["shared"]
    tokens: PrefixTokens = Field(description="of the part that is shared, counted in the prompt's length")


class GroupPrefix(Strict):
    """Each prompt begins with the text of one of `groups`; group k is drawn with probability ~ k^-zipf."""

    kind: Literal["groups"]
    groups: Annotated[int, Field(ge=1, le=1_000_000)] = Field(description="how many different texts")
    tokens: PrefixTokens = Field(description="of the part that is shared, counted in the prompt's length")
    zipf: Annotated[float, Field(ge=0, le=20, allow_inf_nan=False)] = Field(
        default=0.0, description="0: all groups are equally popular"
    )


class Prompts(Strict):
    """What synthetic prompts are made of. All are salted by run: a second run meets no cache of the first."""

    kind: Literal["words", "tokenizer", "token_ids"] = Field(
        default="words",
        description="words: about a token each, calibrated by the server's own usage; tokenizer: text of an "
        "exact number of tokens; token_ids: numbers, for /v1/completions",
    )
    tokenizer: DataFile | None = Field(default=None, description="a tokenizer.json")
    vocabulary: Annotated[int, Field(ge=2, le=10_000_000)] = Field(
        default=32_000, description="token_ids: ids are below it"
    )
    calibrate: bool = Field(
        default=True, description="words: ask the server at the preflight how many tokens its words make"
    )
    prefix: Annotated[NoPrefix | SharedPrefix | GroupPrefix, Field(discriminator="kind")] = Field(
        default=NoPrefix(), description="what prompts have in common"
    )

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if (self.kind == "tokenizer") != (self.tokenizer is not None):
            raise ValueError("kind: tokenizer and the path of a tokenizer belong together")
        return self
