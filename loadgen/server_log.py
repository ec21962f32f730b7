"""What the server said of itself during a run: `server.jsonl`, a Scrape a line, on the run's own clock."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

SERVER = "server.jsonl"
EVERY_S = 1.0  # from one look to the next

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
    look before; buckets of histograms are left out. `error`: why there are none.
    """

    at_s: float
    took_s: float
    target: str | None = None
    kind: str | None = None
    values: dict[str, float] = {}
    raw: dict[str, float] = {}
    error: str | None = None


class ServerLog(msgspec.Struct, kw_only=True, frozen=True):
    """All of a run's. `absent`: why there are none, in a sentence; None where there are."""

    scrapes: tuple[Scrape, ...] = ()
    absent: str | None = None

    def targets(self) -> list[str | None]:
        return list(dict.fromkeys(scrape.target for scrape in self.scrapes))


NO_LOG = ServerLog(absent="the server's metrics were not looked at")


def read(folder: Path, absent: str | None = None) -> ServerLog:
    """What is in the run's folder. A last line that was cut short is left out. Raises ValueError with the
    line's number for one that is broken. `absent`: why there is no file, where that is known.
    """
    path = folder / SERVER
    if not path.is_file():
        return NO_LOG if absent is None else ServerLog(absent=absent)
    return ServerLog(scrapes=tuple(_scrapes(path)), absent=absent)


def _scrapes(path: Path) -> Iterable[Scrape]:
    decode = msgspec.json.Decoder(Scrape).decode
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                yield decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError) as problem:
                if line.endswith(b"\n"):
                    raise ValueError(f"{path}:{number}: {problem}") from None
