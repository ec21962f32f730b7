"""Run -> Summary: what the figures are, and whether they can be trusted. Pure."""

from loadgen.stats.meaning import summarize
from loadgen.stats.summary import (
    Certificate,
    Distribution,
    Finding,
    Goodput,
    Part,
    SloResult,
    Summary,
    Verdict,
    from_json,
)
from loadgen.stats.vllm import vllm_result

__all__ = [
    "Certificate",
    "Distribution",
    "Finding",
    "Goodput",
    "Part",
    "SloResult",
    "Summary",
    "Verdict",
    "from_json",
    "summarize",
    "vllm_result",
]
