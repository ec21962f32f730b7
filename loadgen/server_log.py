"""What the server said of itself during a run: `server.jsonl`, a Scrape a line, on the run's own clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from loadgen.strict_json import NOT_JSON
from loadgen.units import told

SERVER = "server.jsonl"
EVERY_S = 1.0  # from one look to the next
QUICK_S, QUICK_FOR_S = 0.1, 2.0  # in the first seconds of a run: many are short
MOST = 1e15  # beyond, a float does not tell one from the next

# Canonical names. A server that has no such figure has no such key: absent is never zero.
GAUGES = ("running", "waiting", "kv_share")
COUNTERS = (
    "preemptions", "prompt_tokens", "output_tokens", "succeeded", "rejected", "aborted", "prefix_queries",
    "prefix_hits", "queue_s_sum", "queue_s_count", "step_tokens_sum", "step_tokens_count", "ttft_s_sum",
    "ttft_s_count",
)  # fmt: skip
MEANINGS = {
    "running": "requests in a slot",
    "waiting": "requests in the server's queue",
    "kv_share": "share of the KV cache that is held, 0 to 1",
    "preemptions": "times a request lost its slot",
    "prompt_tokens": "tokens of prompts, those found in the prefix cache by most servers included",
    "output_tokens": "tokens of answers computed",
    "succeeded": "requests that ended well",
    "rejected": "requests refused for lack of room",
    "aborted": "requests given up, by the client mostly",
    "prefix_queries": "prompt tokens looked up in the prefix cache",
    "prefix_hits": "prompt tokens found in it",
    "queue_s_sum": "seconds that requests waited in the queue, together",
    "queue_s_count": "requests that left the queue",
    "step_tokens_sum": "tokens of all steps, together",
    "step_tokens_count": "steps",
    "ttft_s_sum": "seconds to the first token by the server's count, together",
    "ttft_s_count": "requests that have a first token",
}


class Scrape(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One look at the metrics of one server. `at_s`: when the answer had come, from the run's origin; may be
    below zero. `took_s`: how long that took.

    `target`: which server, of several. `kind`: what it is, as its names tell. `values`: by canonical names.
    `raw`: samples that have none, by their Prometheus names with labels, those alone that changed since the
    look before; buckets of histograms are left out. `error`: why there are none. `left_out`: what cannot be,
    or is too much to keep.
    """

    at_s: float
    took_s: float
    target: str | None = None
    kind: str | None = None
    values: dict[str, float] = {}
    raw: dict[str, float] = {}
    error: str | None = None
    left_out: str | None = None


def is_possible(name: str, value: float) -> bool:
    """Whether a figure can have that value; canonical names."""
    return 0 <= value <= (1.001 if name == "kv_share" else MOST)  # sums of parts may round above 1


def reasons(errors: Sequence[str]) -> str:
    """Why several looks told nothing; of more than two, how often each was said, without where."""
    unlike = list(dict.fromkeys(errors))
    if len(unlike) <= 2:
        return "; ".join(unlike)
    often = Counter(error.partition(": ")[2] or error for error in errors).most_common(3)
    return "; ".join(f"{n} servers: {why}" if n > 1 else f"1 server: {why}" for why, n in often)


class ServerLog(msgspec.Struct, kw_only=True, frozen=True):
    """All of a run's. `absent`: why there are none, in a sentence; None where there are."""

    scrapes: tuple[Scrape, ...] = ()
    absent: str | None = None

    def targets(self) -> list[str | None]:
        return list(dict.fromkeys(scrape.target for scrape in self.scrapes))


NO_LOG = ServerLog(absent="the server's metrics were not looked at")


def read(folder: Path, absent: str | None = None) -> ServerLog:
    """What is in the run's folder. A last line that was cut short is left out; of a file that is broken
    nothing is taken, and why is told: the requests are sound without it. `absent`: why there is no file,
    where that is known.
    """
    path = folder / SERVER
    if not path.is_file():  # a pipe, or a device, has no end
        return NO_LOG if absent is None else ServerLog(absent=absent)
    try:
        scrapes = tuple(_scrapes(path))
    except (OSError, ValueError) as problem:
        return ServerLog(absent=str(problem))
    return ServerLog(scrapes=scrapes, absent=absent if scrapes or absent else f"{path}: no whole look in it")


def _scrapes(path: Path) -> Iterable[Scrape]:
    """Raises ValueError with the line's number for one that is broken."""
    decode = msgspec.json.Decoder(Scrape).decode
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                scrape = decode(line)
            except NOT_JSON as problem:
                if line.endswith(b"\n"):
                    raise ValueError(f"{path}:{number}: {told(problem)}") from None
                continue
            scrape.values = {k: v for k, v in scrape.values.items() if is_possible(k, v)}
            yield scrape
