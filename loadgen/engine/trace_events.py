"""The events of Chrome's trace-event format, which ui.perfetto.dev and chrome://tracing read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Event = dict[str, Any]

PID = 1


def event(phase: str, name: str, thread: int, ts_us: float, **more: Any) -> Event:
    return {"ph": phase, "name": name, "pid": PID, "tid": thread, "ts": ts_us, **more}


def about(what: str, thread: int, **facts: Any) -> Event:
    """Of the process, or of a thread: its name, or its place in the order."""
    return {"ph": "M", "name": what, "pid": PID, "tid": thread, "args": facts}


def thread(number: int, name: str) -> Iterator[Event]:
    """A thread's name, and its place by its number."""
    yield about("thread_name", number, name=name)
    yield about("thread_sort_index", number, sort_index=number)
