"""Traces: files of requests that happened, or of prompts, read into columns."""

from loadgen.workload.traces.read import read
from loadgen.workload.traces.trace import Spread, Trace, TraceFacts

__all__ = ["Spread", "Trace", "TraceFacts", "read"]
