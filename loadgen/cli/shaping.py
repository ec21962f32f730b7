"""The flags that shape a load: laid over a scenario's `load`, in plain data. vLLM's, where it has them."""

from __future__ import annotations

import re
from typing import Any, get_args

from loadgen.fields import NAME
from loadgen.laws import Constant, Renewal
from loadgen.scenario import ScenarioError

# flag -> the key paths that it decides
PATHS: dict[str, tuple[str, ...]] = {
    "seed": ("seed",),
    "num_prompts": ("load.num_requests",),
    "duration": ("load.duration",),
    "input_len": ("load.prompt_tokens",),
    "output_len": ("load.output_tokens",),
    "random_range_ratio": ("load.prompt_tokens.ratio", "load.output_tokens.ratio"),
    "request_rate": ("load.arrivals.rate",),
    "burstiness": ("load.arrivals.burstiness",),
    "cv": ("load.arrivals.cv",),
    "ramp_up_start_rps": ("load.arrivals.from",),
    "ramp_up_end_rps": ("load.arrivals.to",),
    "ramp_up_strategy": (),
    "arrival": ("load.arrivals.kind", "load.arrivals"),
    "warmup": ("load.warmup", "load.warmup_requests"),
    "dataset_name": ("load.trace.format",),
    "dataset_path": ("load.trace.file", "load.trace"),
    "lora_modules": ("load.classes",),
    "lora_assignment": (),
}
_RAMP = ("ramp_up_strategy", "ramp_up_start_rps", "ramp_up_end_rps")
_DATASETS = {
    "sharegpt": "sharegpt",
    "burstgpt": "burstgpt",
    "custom": "vllm_custom",
    "timed_trace": "timed_trace",
}
_STOPS = {"num_prompts": "num_requests", "duration": "duration"}
_RATED = [
    kind for law in (Constant, *get_args(Renewal)) for kind in get_args(law.model_fields["kind"].annotation)
]
_LENGTHS = {"input_len": "prompt_tokens", "output_len": "output_tokens"}


def shape(load: dict[str, Any], given: dict[str, Any]) -> None:
    """Lay the flags in `given` over `load`. Raises ScenarioError that names the flag."""
    _take_dataset(load, given)
    _take_stop(load, given)
    if any(flag in given for flag in _RAMP):
        _take_ramp(load, given)
    else:
        _take_arrivals(load, given)
    _take_lengths(load, given)
    _take_loras(load, given)


def spelt(flag: str) -> str:
    return f"--{flag.replace('_', '-')}"


def _take_dataset(load: dict[str, Any], given: dict[str, Any]) -> None:
    """A file of requests becomes the load's trace, which gives lengths, prompts and, if timed, instants."""
    name, path = given.get("dataset_name"), given.get("dataset_path")
    if name in (None, "random") and path is None:
        return
    if name not in _DATASETS:
        raise ScenarioError(
            f"--dataset-name: {name or 'it'} must be random or one of {', '.join(_DATASETS)}; "
            "other files go into a scenario, as load.trace"
        )
    if path is None:
        raise ScenarioError(f"--dataset-name {name} needs --dataset-path FILE")
    timed = name == "timed_trace"
    load["trace"] = {"file": path, "format": _DATASETS[name], "order": "file" if timed else "shuffle"}
    load["prompt_tokens"] = load["output_tokens"] = {"kind": "trace"}
    if timed and not any(flag in given for flag in ("request_rate", "arrival", *_RAMP)):
        load["arrivals"] = {"kind": "trace"}


def _take_stop(load: dict[str, Any], given: dict[str, Any]) -> None:
    """--num-prompts and --duration replace what a file says of either; --warmup is a count or a duration."""
    stops = {key: given[flag] for flag, key in _STOPS.items() if flag in given}
    if stops:
        for key in ("num_requests", "num_sessions", "duration"):
            load.pop(key, None)
        load.update(stops)
    if "warmup" in given:
        load.pop("warmup", None), load.pop("warmup_requests", None)
        count = given["warmup"].isdecimal()
        load["warmup_requests" if count else "warmup"] = int(given["warmup"]) if count else given["warmup"]


def _take_ramp(load: dict[str, Any], given: dict[str, Any]) -> None:
    """vLLM's three flags: straight from one rate to the other, until the measured part ends."""
    if lacking := [spelt(flag) for flag in _RAMP if flag not in given]:
        raise ScenarioError(f"{', '.join(lacking)}: a ramp needs {', '.join(map(spelt, _RAMP))}")
    if given["ramp_up_strategy"] != "linear":
        raise ScenarioError(
            "--ramp-up-strategy: must be linear; for another curve, a scenario has kind: curve"
        )
    clash = [spelt(flag) for flag in ("request_rate", "burstiness", "cv", "arrival") if flag in given]
    if clash:
        raise ScenarioError(
            f"{', '.join(clash)} cannot stand beside a ramp, which is Poisson of its own rates"
        )
    first, last = given["ramp_up_start_rps"], given["ramp_up_end_rps"]
    load["arrivals"] = {"kind": "ramp", "from": first, "to": last, "over": _ramp_time(load, first, last)}


def _ramp_time(load: dict[str, Any], first: float, last: float) -> str:
    """The measured time; by count, the time in which so many are due in the mean."""
    if load.get("duration"):
        return str(load["duration"])
    if load.get("num_requests") and first + last > 0:
        return f"{2 * load['num_requests'] / (first + last):.9f}s"
    raise ScenarioError("a ramp needs --duration or --num-prompts, in which it goes from rate to rate")


def _take_arrivals(load: dict[str, Any], given: dict[str, Any]) -> None:
    """--request-rate, --burstiness, --cv and --arrival; an infinite rate is a burst, as vLLM has it."""
    kind, rate = given.get("arrival"), given.get("request_rate")
    spread: dict[str, Any] = {key: given[key] for key in ("burstiness", "cv") if key in given}
    if kind is None and rate is None and not spread:
        return
    endless = str(rate).lower() in ("inf", "infinity")
    if endless or kind == "burst":
        if kind not in (None, "burst") or not (endless or rate is None):
            raise ScenarioError(f"--arrival {kind} and --request-rate {rate} contradict each other")
        load["arrivals"] = {"kind": "burst"}
        return
    if len(spread) == 2:
        raise ScenarioError("give --burstiness or --cv, not both: burstiness = 1 / cv^2")
    if spread and kind not in (None, "gamma"):
        raise ScenarioError(f"{spelt(*spread)} needs --arrival gamma, not {kind}")
    load["arrivals"] = _renewal(load.get("arrivals") or {}, kind, rate, spread)


def _renewal(
    old: dict[str, Any], kind: str | None, rate: str | None, spread: dict[str, Any]
) -> dict[str, Any]:
    """What the flags say of arrivals, over what the file says of the same kind."""
    kind = kind or ("gamma" if spread else old.get("kind", "poisson"))
    new = {**old} if kind == old.get("kind") else {"kind": kind, "rate": old.get("rate")}
    if rate is not None and "rate" not in new:
        raise ScenarioError(f"--request-rate: {kind} arrivals have no such rate: give --arrival too")
    if rate is not None:
        new["rate"] = rate
    if kind in _RATED and new["rate"] is None:
        raise ScenarioError(f"{kind} arrivals need --request-rate")
    if spread:
        new = {key: value for key, value in new.items() if key not in ("burstiness", "cv")} | spread
    return new


def _take_lengths(load: dict[str, Any], given: dict[str, Any]) -> None:
    for flag, key in _LENGTHS.items():
        if flag in given:
            load[key] = given[flag]
    if (ratio := given.get("random_range_ratio")) is None:
        return
    for flag, key, usual in (("input_len", "prompt_tokens", 256), ("output_len", "output_tokens", 128)):
        law = load.get(key, usual)
        tokens = law.get("tokens") if isinstance(law, dict) else law
        if tokens is None:
            raise ScenarioError(f"--random-range-ratio spreads fixed lengths: give {spelt(flag)} too")
        load[key] = {"kind": "vllm_range", "tokens": tokens, "ratio": ratio}


def _take_loras(load: dict[str, Any], given: dict[str, Any]) -> None:
    """A class for each LoRA, all as likely: what vLLM calls a random assignment."""
    modules, assignment = given.get("lora_modules"), given.get("lora_assignment")
    if assignment not in (None, "random"):
        raise ScenarioError(
            f"--lora-assignment: must be random, not {assignment}: each request draws its own, as users do"
        )
    if not modules:
        if assignment:
            raise ScenarioError("--lora-assignment needs --lora-modules")
        return
    if load.get("classes"):
        raise ScenarioError("--lora-modules: the scenario has classes: give each of them its model there")
    names = [name if re.fullmatch(NAME, name) else f"lora-{i}" for i, name in enumerate(modules, 1)]
    load["classes"] = {
        name: {"weight": 1, "model": module} for name, module in zip(names, modules, strict=True)
    }
