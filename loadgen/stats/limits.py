"""The limits of what makes a measurement doubtful, in one table; changing one is a commit of its own."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """What a finding's figure is held against."""

    lag_s: float = 2e-3  # p99 of the send lag, or:
    lag_of_ttft: float = 0.02  # this share of the median TTFT, whichever is larger
    late_rows: float = 0.05  # rows later than one mean arrival gap
    stall_p99_9_s: float = 20e-3
    stall_max_s: float = 250e-3
    stall_of_gap: float = 0.05  # mean stall as a share of the median chunk gap
    started: float = 0.999
    unsent: float = 0.001
    cpu_share: float = 0.9  # of a core: a process beyond it has nothing left
    clock_jump_s: float = 0.5
    start_s: float = 2e-3  # how far starts may lie apart, or:
    start_of_ttft: float = 0.02  # this share of the median TTFT, whichever is larger
    on_time: float = 0.99  # rows started within, of due:
    tolerance_s: float = 2e-3  # as of the send lag, or:
    tolerance_of_gap: float = 0.01  # this share of the mean gap, whichever is longer
    next_s: float = 6e-5  # rows due at one instant leave one after another: so much more for each
    law_from: int = 50  # fewer arrivals say nothing of a law
    arrivals_p: float = 1e-4
    prompt_off: float = 0.05
    output_off: float = 0.01
    zero_gaps: float = 0.5
    zero_gaps_from: int = 3  # a row with fewer gaps says nothing about buffering


LIMITS = Limits()
