"""A user's own law of gaps: a Python generator function, called with seeded numbers."""

from __future__ import annotations

import hashlib
import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from loadgen.laws import Custom
from loadgen.scenario import ScenarioError
from loadgen.workload import streams
from loadgen.workload.arrivals.stream import Floats, Instants, Stream, refuse_far


class CustomStream(Stream):
    """What the function yields, gap by gap. A copy calls the function anew and goes on where this stood."""

    def __init__(self, law: Custom, seed: int, purpose: str) -> None:
        self._law, self._seed, self._purpose = law, seed, purpose
        self._row = self._last_ns = 0
        self._gaps = self._call()

    def take(self, n: int) -> Instants:
        gaps_ns = [round(gap_s * 1e9) for gap_s in islice(self._gaps, n)]
        refuse_far(self._last_ns + float(sum(gaps_ns)))
        due_ns = np.cumsum(np.array(gaps_ns, np.int64)) + self._last_ns
        self._row += len(due_ns)
        self._last_ns = int(due_ns[-1]) if len(due_ns) else self._last_ns
        return due_ns

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_gaps"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._gaps = self._call()
        next(islice(self._gaps, self._row, self._row), None)  # what was taken is passed over

    def _call(self) -> Iterator[float]:
        function = _function(self._law)
        try:
            with redirect_stdout(sys.stderr):  # what it prints is no result of ours
                yielded = iter(function(_Uniform(self._seed, self._purpose), **self._law.args))
        except (Exception, SystemExit) as problem:
            raise _mistake(self._law, f"cannot be called: {_told(problem)}") from problem
        return self._checked(yielded)

    def _checked(self, yielded: Iterator[Any]) -> Iterator[float]:
        row = 0
        while True:
            try:
                with redirect_stdout(sys.stderr):
                    gap_s = next(yielded)
            except StopIteration:
                return
            except (Exception, SystemExit) as problem:
                raise _mistake(self._law, f"failed at request {row}: {_told(problem)}") from problem
            if isinstance(gap_s, bool) or not isinstance(gap_s, int | float | np.integer | np.floating):
                raise _mistake(
                    self._law, f"gave {gap_s!r:.60} for request {row}: a gap is a number of seconds"
                )
            if not 0 <= gap_s < 1e10:
                raise _mistake(self._law, f"gave {gap_s} for request {row}: a gap is from 0 to 1e10 seconds")
            yield float(gap_s)
            row += 1


class _Uniform:
    """uniform(n): the next n numbers of the law's stream, in (0, 1)."""

    def __init__(self, seed: int, purpose: str) -> None:
        self._seed, self._purpose, self._drawn = seed, purpose, 0

    def __call__(self, n: int = 1) -> Floats:
        drawn = streams.uniforms(self._seed, self._purpose, self._drawn, n)
        self._drawn += n
        return drawn


def source_hash(law: Custom) -> str:
    """SHA-256 of the file that holds the law, in hex. Raises ScenarioError where there is none."""
    return hashlib.sha256(Path(_module(law).__file__ or "").read_bytes()).hexdigest()


def _function(law: Custom) -> Callable[..., Any]:
    module, name = _module(law), law.law.partition(":")[2]
    function: Callable[..., Any] | None = getattr(module, name, None)
    if function is None or not callable(function):
        raise _mistake(law, f"{module.__file__} has no function {name}")
    return function


def _module(law: Custom) -> ModuleType:
    """The module, from beside the scenario or as installed. Raises ScenarioError where it cannot be had."""
    name = law.law.partition(":")[0]
    beside = Path(law.folder or ".", *name.split(".")).with_suffix(".py")
    try:
        with redirect_stdout(sys.stderr):
            module = _run(beside) if beside.is_file() else importlib.import_module(name)
    except (Exception, SystemExit) as problem:
        is_absent = isinstance(problem, ModuleNotFoundError) and problem.name == name
        where = f"{beside} does not exist, nor is {name} installed"
        raise _mistake(law, where if is_absent else f"cannot be imported: {_told(problem)}") from problem
    if not getattr(module, "__file__", None):
        raise _mistake(law, f"{name} is no file of Python")
    return module


def _run(path: Path) -> ModuleType:
    """What is in the file, under a name that no other file and no other version of it has."""
    source = path.read_bytes()
    name = f"_law_{hashlib.sha256(str(path.resolve()).encode() + source).hexdigest()[:32]}"
    if name in sys.modules:
        return sys.modules[name]
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module  # dataclasses look themselves up there
    sys.path.insert(0, str(path.parent))  # for what it imports from beside itself
    try:
        exec(compile(source, str(path), "exec"), vars(module))  # noqa: S102
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        sys.path.remove(str(path.parent))
    return module


def _mistake(law: Custom, what: str) -> ScenarioError:
    return ScenarioError(f"load.arrivals.law: {law.law}: {what}")


def _told(problem: BaseException) -> str:
    """On one line."""
    return " ".join(f"{type(problem).__name__}: {problem}".split())
