"""The words of the command line: as vLLM's users write them, and as they may be kept."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadgen.scenario import ScenarioError


def refuse_odd(argv: list[str]) -> None:
    """Raises ScenarioError for a word that is no text, or empty. A folder's name may be any bytes.

    An empty one is a variable of the shell that is not set; as a path it would be the current folder.
    """
    for before, word in zip(["", *argv], argv, strict=False):
        if re.fullmatch("(--[a-z-]+=)?", word):
            raise _odd(f"{word.removesuffix('=') or before}: an empty word".removeprefix(": "))
        if before != "--out" and any("\ud800" <= char <= "\udfff" for char in word):
            what = f" given to {before}" if before.startswith("--") else ""
            raise _odd(f"the word {word!a}{what} is not text: its bytes are no UTF-8")


def _odd(said: str) -> ScenarioError:
    from loadgen.scenario import ScenarioError

    return ScenarioError(said)


# Flags that may have several values, and how a further one looks.
_NAMED = r"\w[\w-]*[:=]"
_SEVERAL = {
    **dict.fromkeys(("--goodput", "--header"), _NAMED),
    **dict.fromkeys(("--baseline", "--lora-modules"), "[^-]"),
    "--slo": r"[^-].*[<>]",
}


def joined(argv: list[str]) -> list[str]:
    """`--goodput a:1 b:2` as `--goodput a:1 --goodput b:2`, as vLLM has it; so with all _SEVERAL."""
    out: list[str] = []
    flag, value_due = "", False
    for word in argv:
        if word in _SEVERAL:
            flag, value_due = word, True
        elif value_due:
            value_due = False
        elif flag and re.match(_SEVERAL[flag], word):
            out.append(flag)
        else:
            flag = ""
        out.append(word)
    return out


def command_line() -> list[str]:
    """How this process was called, for run.json, with *** for what may be a secret."""
    from loadgen.fields import without_credentials, without_query_secrets

    masks: dict[str, Callable[[str], str]] = {
        "--header": lambda header: re.sub(r"[:=].*", "=***", header, flags=re.DOTALL),
        "--extra-body": lambda _: "***",
        "--proxy": without_credentials,
        "--endpoint": without_query_secrets,
    }
    words = ["loadgen", *joined(sys.argv[1:])]
    masked = []
    for before, word in zip(["", *words], words, strict=False):
        flag, is_one, value = word.partition("=")
        if before in masks:
            masked.append(masks[before](word))
        elif is_one and flag in masks:
            masked.append(f"{flag}={masks[flag](value)}")
        else:
            masked.append(word)
    return masked
