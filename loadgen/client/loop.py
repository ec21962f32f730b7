"""The event loop that a run has for itself."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from contextlib import closing
from typing import Any, TypeVar

from loadgen.client.headroom import allow_many_descriptors

T = TypeVar("T")


def on_loop(work: Coroutine[Any, Any, T]) -> T:
    """`work` on a loop of its own, uvloop's where there is one, that may open many files.

    Raises ScenarioError where no run could open its own.
    """
    with closing(work):
        allow_many_descriptors()
        if sys.platform == "win32":
            return asyncio.run(work)
        import uvloop

        return uvloop.run(work)
