"""Open-loop load tester for streaming LLM servers.

From Python: `from loadgen import run, simulate, merge, summarize, judge, compare, gate, find_capacity`; see
`loadgen.api`. Nothing is read before it is used.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loadgen.api import Judgement as Judgement
    from loadgen.api import compare as compare
    from loadgen.api import find_capacity as find_capacity
    from loadgen.api import gate as gate
    from loadgen.api import judge as judge
    from loadgen.api import load as load
    from loadgen.api import read_scenario as read_scenario
    from loadgen.api import run as run
    from loadgen.api import run_async as run_async
    from loadgen.api import simulate as simulate
    from loadgen.capacity import Capacity as Capacity
    from loadgen.client.unreachable import Unreachable as Unreachable
    from loadgen.compare import Comparison as Comparison
    from loadgen.gate import Gate as Gate
    from loadgen.merging import merge as merge
    from loadgen.run import Run as Run
    from loadgen.scenario import Scenario as Scenario
    from loadgen.scenario import ScenarioError as ScenarioError
    from loadgen.stats import SloResult as SloResult
    from loadgen.stats import Summary as Summary
    from loadgen.stats import summarize as summarize
    from loadgen.stats.figures import Tolerance as Tolerance
    from loadgen.whole_file import WriteError as WriteError

__version__ = "0.1.0"

_NAMES = {
    "loadgen.api": (
        *("Judgement", "compare", "find_capacity", "gate", "judge", "load", "read_scenario"),
        *("run", "run_async", "simulate"),
    ),
    "loadgen.capacity": ("Capacity",),
    "loadgen.client.unreachable": ("Unreachable",),
    "loadgen.compare": ("Comparison",),
    "loadgen.gate": ("Gate",),
    "loadgen.merging": ("merge",),
    "loadgen.run": ("Run",),
    "loadgen.scenario": ("Scenario", "ScenarioError"),
    "loadgen.whole_file": ("WriteError",),
    "loadgen.stats": ("SloResult", "Summary", "summarize"),
    "loadgen.stats.figures": ("Tolerance",),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}
__all__ = [*_HOMES]


class _Package(ModuleType):
    """`loadgen.run` is the function, though a module has that name too: what one does with it.

    Without this it would become the module as soon as anything reads that. `from loadgen.run import Run` is
    of the module, as ever.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module 'loadgen' has no attribute {name!r}")
        value = getattr(import_module(_HOMES[name]), name)
        setattr(self, name, value)
        return value

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_HOMES})


sys.modules[__name__].__class__ = _Package
