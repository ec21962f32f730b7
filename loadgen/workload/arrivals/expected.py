"""What a law of arrivals says before anything is drawn: its words, its rate, how many are to be expected."""

from __future__ import annotations

import math
from typing import assert_never

import numpy as np

from loadgen.laws import (
    Arrivals,
    Batches,
    Burst,
    Closed,
    Constant,
    Curve,
    Custom,
    Gamma,
    Mmpp,
    OnOff,
    Poisson,
    Ramp,
    Replay,
    Sine,
    Stage,
    Stages,
    Steps,
    Weibull,
)
from loadgen.units import show_duration, show_rate
from loadgen.workload.arrivals.switching import states_of
from loadgen.workload.arrivals.varying import rate_of


def describe(law: Arrivals) -> str:
    """The law on one line."""
    match law:
        case Gamma(shape=shape):
            return f"gamma, {show_rate(law.rate_rps)}, burstiness {shape:g} (gaps' CV {shape**-0.5:.4g})"
        case Weibull(shape=shape):
            return f"weibull, {show_rate(law.rate_rps)}, shape {shape:g}"
        case Burst() | Batches():
            return _describe_batches(law)
        case OnOff() | Mmpp() | Steps() | Curve() | Ramp() | Sine():
            return _describe_varying(law)
        case Replay():
            return _describe_replay(law)
        case Custom(law=name):
            return f"custom, {name}"
        case Stages(stages=stages):
            again = ", over and over" if law.repeat else ""
            return f"stages{again}: " + "; ".join(map(_describe_stage, stages))
        case Closed(concurrency=users):
            return f"closed loop of {users} users"
        case Poisson() | Constant():
            return f"{law.kind}, {show_rate(law.rate_rps)}"
        case _:
            assert_never(law)


def _describe_batches(law: Burst | Batches) -> str:
    match law:
        case Burst(size=int(size), every_s=float(every_s)):
            return f"burst, groups of {size} every {show_duration(every_s)}"
        case Burst():
            return "burst, all at once"
        case Batches(size=size, sizes=sizes):
            of = f"{size}" if sizes == "fixed" else f"{size} in the mean, geometric"
            when = (
                f"{show_rate(law.batch_rate)} at random"
                if law.batch_rate
                else f"every {show_duration(law.every_s or 0.0)}"
            )
            return f"batches of {of}, {when}"


def _describe_varying(law: OnOff | Mmpp | Steps | Curve | Ramp | Sine) -> str:
    mean = f"{show_rate(float(f'{mean_rps(law) or 0.0:.6g}'))} in the long run"
    match law:
        case OnOff():
            on = f"{show_rate(law.rate_rps)} for {show_duration(law.on_s)}"
            off = f"{show_rate(law.off_rate_rps)} for {show_duration(law.off_s)}"
            return f"on/off, {on}, then {off}, {law.dwell} times, {mean}"
        case Mmpp(states=states):
            return f"mmpp of {len(states)} states, {mean}"
        case Steps(points=points) | Curve(points=points):
            return f"{law.kind} of {len(points)} points, {mean}"
        case Ramp():
            to = f"{show_rate(law.from_rps)} to {show_rate(law.to_rps)}"
            return f"ramp, {to} over {show_duration(law.over_s)}"
        case Sine():
            swing = f"{show_rate(law.rate_rps)} +- {law.amplitude * 100:g} %"
            return f"sine, {swing}, period {show_duration(law.period_s)}"


def _describe_replay(law: Replay) -> str:
    said = ["trace"]
    if law.speed_up != 1:
        said.append(f"{law.speed_up:g} times as fast")
    if law.rate_rps is not None:
        said.append(f"{'stretched' if law.scale == 'stretch' else 'thinned'} to {show_rate(law.rate_rps)}")
    if law.loop:
        said.append("over and over")
    return ", ".join(said)


def _describe_stage(stage: Stage) -> str:
    end = f"{stage.num_requests} requests" if stage.duration_s is None else show_duration(stage.duration_s)
    return f"{describe(stage.arrivals)} for {end}"


def mean_rps(law: Arrivals) -> float | None:
    """Requests per second in the long run; infinite for one burst.

    None where it is not known before: for a law of the user's own, a closed loop, a trace as it is.
    """
    match law:
        case Burst(size=size, every_s=every_s):
            return size / every_s if size and every_s else math.inf
        case Batches(size=size, every_s=every_s):
            return size / every_s if every_s else size * (law.batch_rate or 0.0)
        case OnOff() | Mmpp():
            states = states_of(law)
            return sum(rate * dwell_s for rate, dwell_s in states) / sum(dwell_s for _, dwell_s in states)
        case Steps(points=points, every_s=every_s):
            return expected(law, every_s) / every_s if every_s else points[-1].rate_rps
        case Curve(points=points):
            whole_s = points[-1].at_s
            return expected(law, whole_s) / whole_s if law.repeat else points[-1].rate_rps
        case Ramp(to_rps=to_rps):
            return to_rps
        case Stages(stages=stages):
            rows, seconds = _round(stages)
            return rows / seconds if seconds else math.inf
        case Custom() | Closed():
            return None
        case _:
            return law.rate_rps


def expected(law: Arrivals, seconds: float) -> float:
    """How many are due in [0, seconds) in the mean; 0 where nothing is known of it (see `mean_rps`)."""
    match law:
        case Steps() | Curve() | Ramp() | Sine() | OnOff(dwell="fixed"):
            return float(rate_of(law).integral(np.array([seconds * 1e9]))[0]) / 1e9
        case Stages():
            return _expected_of_stages(law, seconds)
        case _:
            return (mean_rps(law) or 0.0) * seconds if seconds else 0.0


def _round(stages: tuple[Stage, ...]) -> tuple[float, float]:
    """Rows and seconds of all stages together."""
    rows, seconds = np.sum([_rows_and_seconds(stage) for stage in stages], axis=0)
    return float(rows), float(seconds)


def _rows_and_seconds(stage: Stage) -> tuple[float, float]:
    if stage.duration_s is not None:
        return expected(stage.arrivals, stage.duration_s), stage.duration_s
    rows = float(stage.num_requests or 0)
    match stage.arrivals:
        case Steps() | Curve() | Ramp() | Sine() | OnOff(dwell="fixed"):
            return rows, int(rate_of(stage.arrivals).inverse(np.array([rows * 1e9]))[0]) / 1e9
        case law:
            rate = mean_rps(law)
            return rows, rows / rate if rate else 0.0


def _expected_of_stages(law: Stages, seconds: float) -> float:
    rows_a_round, round_s = _round(law.stages)
    rounds = seconds // round_s if law.repeat and round_s else 0.0
    rows, left_s = rounds * rows_a_round, seconds - rounds * round_s
    for stage in law.stages:
        stage_rows, stage_s = _rows_and_seconds(stage)
        if left_s < stage_s:
            return rows + min(stage_rows, expected(stage.arrivals, left_s))
        rows, left_s = rows + stage_rows, left_s - stage_s
    return rows
