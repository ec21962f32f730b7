"""The three standard streams: always there, and never the reason why a run is lost."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import IO, Any, cast


def open_closed() -> None:
    """Open the null device for each standard stream that was closed: else a socket takes its number."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number: this one
            setattr(sys, name, os.fdopen(descriptor, "w" if descriptor else "r", closefd=False))


@contextmanager
def guarded() -> Iterator[None]:
    """A reader who leaves (`| head`) ends nothing, nor do progress and remarks that cannot be written.

    Results that cannot be written raise WriteError.
    """
    out, err = (cast("IO[str]", _Guarded(stream)) for stream in (sys.stdout, sys.stderr))
    with redirect_stdout(out), redirect_stderr(err):
        yield


class _Guarded:
    """A stream that goes to the null device once it cannot be written."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError as problem:
            _lose(self._stream, problem)
        return len(text)


@contextmanager
def whole_output() -> Iterator[None]:
    """For bytes that go to stdout past `guarded`: the same there."""
    try:
        yield
        sys.stdout.buffer.flush()
    except OSError as problem:
        _lose(sys.__stdout__, problem)


def _lose(stream: IO[str] | None, problem: OSError) -> None:
    """Send what is still to come to the null device. Raises WriteError where results are lost."""
    if stream is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    if stream is sys.__stdout__ and not isinstance(problem, BrokenPipeError):
        from loadgen.whole_file import WriteError

        raise WriteError(f"cannot write to standard output: {problem.strerror}") from None
