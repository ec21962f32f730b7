"""Iterations as a picture for ui.perfetto.dev or chrome://tracing: Chrome's trace-event format.

One thread for each slot, on it a slice for each stay of a request, and inside it what was computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from loadgen.engine.trace import Iteration, Slots
from loadgen.engine.trace_events import PID, Event, about, event, thread

_QUEUE = 1  # the thread on which refused requests are marked
_FIRST_SLOT = 2


def events(iterations: Iterable[Iteration], title: str) -> Iterator[Event]:
    """Trace events, `ts` in microseconds and never falling; `title` names the process.

    A request takes the lowest free slot and keeps it until it is preempted or no longer active. Steps in
    which it decodes, one after the other, are one slice; in those without one it only holds its slot.
    """
    yield about("process_name", _QUEUE, name=title)
    yield from thread(_QUEUE, "queue")
    picture = _Picture()
    for iteration in iterations:
        yield from picture.iteration(iteration)
    yield from picture.end()


@dataclass(slots=True)
class _Stay:
    """A request in a slot; `doing`: the slice that is open in it, if one is, of so many `tokens`."""

    name: str
    thread: int
    doing: str | None = None
    tokens: int = 0


class _Picture:
    def __init__(self) -> None:
        self._now_us = 0.0
        self._stays: dict[str, _Stay] = {}
        self._slots = Slots()
        self._threads = 0
        self._counted: dict[str, dict[str, int]] = {}

    def iteration(self, it: Iteration) -> Iterator[Event]:
        self._pass_to(it.start_s)
        preempted, came = self._slots.start(it)
        yield from self._leave(preempted, "preempted")
        for name in it.rejected:
            yield self._event("i", "rejected", _QUEUE, s="t", args={"request": name})
        prompts, decodes = dict(it.prefill), set(it.decode)
        for name, slot in came.items():
            yield from self._come(name, slot)
        for stay in self._stays.values():
            yield from self._compute(stay, prompts.get(stay.name), stay.name in decodes, it.iteration)
        yield from self._count_step(it)
        self._pass_to(it.start_s + it.step_s)
        for name in prompts:
            yield from self._stop(self._stays[name])
        yield from self._leave(self._slots.end(it))
        yield from self._count("requests", waiting=len(it.queue), active=len(it.active))

    def end(self) -> Iterator[Event]:
        yield from self._leave(self._slots.held)

    def _pass_to(self, instant_s: float) -> None:
        self._now_us = max(self._now_us, round(instant_s * 1e6, 3))

    def _come(self, name: str, slot: int) -> Iterator[Event]:
        stay = self._stays[name] = _Stay(name, _FIRST_SLOT + slot)
        if slot == self._threads:
            yield from thread(stay.thread, f"slot {slot}")
            self._threads += 1
        yield self._event("B", name, stay.thread)

    def _leave(self, names: Iterable[str], why: str | None = None) -> Iterator[Event]:
        for stay in [self._stays.pop(name) for name in names]:
            yield from self._stop(stay)
            if why is not None:
                yield self._event("i", why, stay.thread, s="t", args={"request": stay.name})
            yield self._event("E", stay.name, stay.thread)

    def _compute(self, stay: _Stay, prompt: int | None, decodes: bool, iteration: int) -> Iterator[Event]:
        doing = "prefill" if prompt is not None else "decode" if decodes else None
        if doing != stay.doing:
            yield from self._stop(stay)
            if doing is not None:
                yield self._event("B", doing, stay.thread, args={"iteration": iteration})
            stay.doing = doing
        stay.tokens += prompt if prompt is not None else decodes

    def _stop(self, stay: _Stay) -> Iterator[Event]:
        if stay.doing is not None:
            yield self._event("E", stay.doing, stay.thread, args={"tokens": stay.tokens})
        stay.doing, stay.tokens = None, 0

    def _count_step(self, it: Iteration) -> Iterator[Event]:
        used = len(it.decode) + sum(tokens for _, tokens in it.prefill)
        unused = {} if it.unused_tokens is None else {"unused": it.unused_tokens}
        yield from self._count("tokens", used=used, **unused)
        if it.kv_blocks or "KV" in self._counted:
            yield from self._count("KV", blocks=it.kv_blocks)

    def _count(self, name: str, **values: int) -> Iterator[Event]:
        if self._counted.get(name) != values:
            self._counted[name] = values
            yield {"ph": "C", "name": name, "pid": PID, "ts": self._now_us, "args": values}

    def _event(self, phase: str, name: str, where: int, **more: Any) -> Event:
        return event(phase, name, where, self._now_us, **more)
