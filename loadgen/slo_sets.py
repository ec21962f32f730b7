"""SLOs that others published, by name, so that a run can be held to them as they stand."""

from __future__ import annotations

from typing import NamedTuple

CONFIDENCE = 0.95  # of every bound, where a set does not say otherwise


class SloSet(NamedTuple):
    """What is promised together: SLOs as texts, how sure their bounds are, and whose they are."""

    slos: tuple[str, ...]
    confidence: float
    note: str


def _mlperf(model: str, **scenarios: tuple[int, int]) -> dict[str, SloSet]:
    """`scenarios`: the limits of TTFT and TPOT by the scenario's name, in milliseconds."""
    return {
        f"mlperf-{model}-{scenario}": SloSet(
            (f"p99(ttft) <= {ttft_ms}ms", f"p99(tpot) <= {tpot_ms}ms"),
            0.99,
            "MLPerf inference, data center: each p99 by itself, Poisson arrivals, 600 s or more"
            + _MLPERF_NOTES.get(f"{model}-{scenario}", ""),
        )
        for scenario, (ttft_ms, tpot_ms) in scenarios.items()
    }


def _distserve(model: str, ttft: str, tpot: str) -> dict[str, SloSet]:
    note = "DistServe (OSDI 2024): nine requests in ten within both limits"
    return {f"distserve-{model}": SloSet((f"share(ttft<={ttft}, tpot<={tpot}) >= 90%",), CONFIDENCE, note)}


def _sarathi(model: str, strict: str, relaxed: str) -> dict[str, SloSet]:
    """The paper bounds the median scheduling delay, which a client cannot see: TTFT holds it, and more."""
    return {
        f"sarathi-{model}-{name}": SloSet(
            (f"p99(itl) <= {limit}", "p50(ttft) <= 2s"),
            CONFIDENCE,
            "Sarathi-Serve (OSDI 2024): p99 of the time between tokens; its median scheduling delay of 2 s "
            "is asked of TTFT, which has the prefill in it too: stricter, by that",
        )
        for name, limit in (("strict", strict), ("relaxed", relaxed))
    }


_MLPERF_NOTES = {
    "gpt-oss-120b-interactive": "; TPOT as the rules have it (the reference configuration says 15ms)"
}

SETS: dict[str, SloSet] = {
    **_mlperf("llama3.1-8b", server=(2000, 100), interactive=(500, 30)),
    **_mlperf("llama2-70b", server=(2000, 200), interactive=(450, 40)),
    **_mlperf("llama3.1-405b", server=(6000, 175), interactive=(4500, 80)),
    **_mlperf("mixtral-8x7b", server=(2000, 200)),
    **_mlperf("deepseek-r1", server=(2000, 80), interactive=(1500, 15)),
    **_mlperf("gpt-oss-120b", server=(3000, 80), interactive=(2000, 20)),
    **_distserve("opt-13b-sharegpt", "250ms", "100ms"),
    **_distserve("opt-66b-sharegpt", "2500ms", "150ms"),
    **_distserve("opt-175b-sharegpt", "4s", "200ms"),
    **_distserve("opt-66b-humaneval", "125ms", "200ms"),
    **_distserve("opt-66b-longbench", "15s", "150ms"),
    **_sarathi("mistral-7b", "100ms", "500ms"),
    **_sarathi("yi-34b", "200ms", "1s"),
    **_sarathi("llama2-70b", "1s", "5s"),
    **_sarathi("falcon-180b", "1s", "5s"),
}
