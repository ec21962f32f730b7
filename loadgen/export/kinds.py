"""The formats of an export by name: their endings, and what is in each. Light, as help is made of it."""

from __future__ import annotations

from typing import NamedTuple


class Kind(NamedTuple):
    endings: tuple[str, ...]
    holds: str


KINDS = {
    "csv": Kind(
        (".csv",),
        "a row a request, but for its lists: its record, and what it measured (ttft_s, e2e_s, ...).",
    ),
    "parquet": Kind((".parquet",), "the same, typed, with every gap."),
    "jsonl": Kind((".jsonl",), "the same, as an object a request."),
    "vllm": Kind(
        (".vllm.json",),
        "a result of vLLM's benchmark with its details, as loadgen import vllm reads them.",
    ),
    "perfetto": Kind((".json",), "requests as a picture for https://ui.perfetto.dev, at most 100,000."),
    "openmetrics": Kind((".om", ".prom", ".txt"), "the summary, for Prometheus."),
}
ROWS = "Rows come as requests ended, warm-up and tail too: by phase, those that count are measured."
