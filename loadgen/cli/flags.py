"""Flags laid over a scenario file, or making one alone. Names as in vLLM's benchmark where it has them."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from loadgen.scenario import Scenario, ScenarioError, build
from loadgen.scenario import load as load_scenario
from loadgen.units import duration_s

# flag -> key path in the scenario
_KEYS = {
    "name": "name",
    "seed": "seed",
    "drain": "drain",
    "base_url": "target.base_url",
    "model": "target.model",
    "endpoint": "target.endpoint",
    "api_key_env": "target.api_key_env",
    "connections": "target.connections",
    "ca_file": "target.ca_file",
    "insecure": "target.insecure",
    "num_prompts": "load.num_requests",
    "duration": "load.duration",
    "input_len": "load.prompt_tokens",
    "output_len": "load.output_tokens",
    "ignore_eos": "load.ignore_eos",
    "max_concurrency": "load.max_concurrency",
    "max_in_flight": "load.max_in_flight",
    "timeout_connect": "timeouts.connect",
    "timeout_first_token": "timeouts.first_token",
    "timeout_idle": "timeouts.idle",
    "timeout_total": "timeouts.total",
}
_GOODPUT = {"ttft": "ttft", "tpot": "tpot", "e2el": "e2e", "e2e": "e2e"}
_WHERE = "command line"


def shipped() -> Path:
    """The folder of the scenarios that come with the package."""
    packaged = Path(__file__).parents[1] / "workloads"
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / "workloads"


def read(scenario: str) -> Scenario:
    """The scenario in the file of that name, or the shipped one of that name."""
    ours = shipped() / f"{scenario}.yaml"
    if not Path(scenario).exists() and re.fullmatch(r"[\w-]+", scenario) and ours.is_file():
        return load_scenario(ours)
    return load_scenario(scenario)


def overlay(scenario: str | None, flags: dict[str, Any]) -> Scenario:
    """The scenario file with every given flag laid over it. `flags`: None means not given.

    Raises ScenarioError that names the flag's key path.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    base = read(scenario) if scenario else None
    if base is not None and not given:
        return base
    data: dict[str, Any] = base.model_dump(mode="json", by_alias=True) if base else {"load": {}}
    _take_arrivals(data["load"], given)
    _take_stop(data["load"], given)
    for name, path in _KEYS.items():
        if name in given:
            _put(data, path, given[name])
    if given.get("no_tail"):
        data["load"]["tail"] = False
    for name, parse in (("header", _headers), ("extra_body", _json_object), ("goodput", _goodput)):
        if name in given:
            path = "goodput" if name == "goodput" else f"target.{'headers' if name == 'header' else name}"
            _put(data, path, parse(given[name]))
    if data.get("target") and not data["target"].get("base_url"):
        raise ScenarioError(f"{_WHERE}: the flags speak of a server, but there is none: give --base-url")
    return build(data, _WHERE)


def _take_arrivals(load: dict[str, Any], given: dict[str, Any]) -> None:
    """--request-rate, --burstiness and --arrival; an infinite rate is a burst, as vLLM has it."""
    kind, rate, burstiness = given.get("arrival"), given.get("request_rate"), given.get("burstiness")
    if kind is None and rate is None and burstiness is None:
        return
    if str(rate).lower() in ("inf", "infinity") or kind == "burst":
        if kind not in (None, "burst") or (
            kind == "burst" and rate and str(rate).lower() not in ("inf", "infinity")
        ):
            raise ScenarioError(f"{_WHERE}: --arrival {kind} and --request-rate {rate} contradict each other")
        load["arrivals"] = {"kind": "burst"}
        return
    old = load.get("arrivals") or {}
    gamma = burstiness is not None and kind in (None, "gamma")
    new: dict[str, Any] = {"kind": kind or ("gamma" if gamma else old.get("kind", "poisson"))}
    new["rate"] = rate if rate is not None else old.get("rate")
    if new["rate"] is None:
        raise ScenarioError(f"{_WHERE}: --arrival {new['kind']} needs --request-rate")
    if burstiness is not None:
        new["burstiness"] = burstiness
    elif new["kind"] == "gamma" and "burstiness" in old:
        new["burstiness"] = old["burstiness"]
    load["arrivals"] = new


def _take_stop(load: dict[str, Any], given: dict[str, Any]) -> None:
    """--num-prompts and --duration replace each other; --warmup is a count or a duration."""
    if "num_prompts" in given and "duration" in given:
        raise ScenarioError(f"{_WHERE}: give --num-prompts or --duration, not both")
    for flag, other in (("num_prompts", "duration"), ("duration", "num_requests")):
        if flag in given:
            load.pop(other, None)
    if "warmup" in given:
        load.pop("warmup", None), load.pop("warmup_requests", None)
        count = given["warmup"].isdecimal()
        load["warmup_requests" if count else "warmup"] = int(given["warmup"]) if count else given["warmup"]


def _put(data: dict[str, Any], path: str, value: Any) -> None:
    *rooms, key = path.split(".")
    for room in rooms:
        data[room] = data.get(room) or {}
        data = data[room]
    data[key] = value


def _headers(pairs: list[str]) -> dict[str, str]:
    found = [re.fullmatch(r"([^\s:=]+)\s*[:=]\s*(.*)", pair, re.DOTALL) for pair in pairs]
    if None in found:
        raise ScenarioError(f"{_WHERE}: --header wants NAME=VALUE")
    return {m[1]: m[2] for m in found if m}


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as problem:
        raise ScenarioError(f"{_WHERE}: --extra-body is not JSON: {problem}") from None
    if not isinstance(value, dict):
        raise ScenarioError(f"{_WHERE}: --extra-body wants a JSON object such as '{{\"temperature\": 0}}'")
    return value


def _goodput(limits: list[str]) -> dict[str, str]:
    """vLLM's `ttft:500 tpot:50 e2el:10000` (milliseconds); a unit may be given: `ttft:500ms`."""
    found = [re.fullmatch(r"(\w+):(.+)", limit) for limit in limits]
    if any(m is None or m[1] not in _GOODPUT for m in found):
        raise ScenarioError(f"{_WHERE}: --goodput wants ttft:MS, tpot:MS or e2el:MS, as in ttft:500 tpot:50")
    return {_GOODPUT[m[1]]: f"{m[2]}ms" if re.fullmatch(r"[\d.]+", m[2]) else m[2] for m in found if m}


def duration_flag(flag: str, text: str | None) -> float | None:
    """Seconds in the text given to a flag. Raises ScenarioError that names the flag."""
    try:
        return None if text is None else duration_s(text)
    except ValueError as problem:
        raise ScenarioError(f"{_WHERE}: {flag}: {problem}") from None


def api_key(env_name: str | None) -> str | None:
    """The key in the variable of that name. Raises ScenarioError when it is not set."""
    if env_name is None:
        return None
    if not os.environ.get(env_name):
        raise ScenarioError(
            f"target.api_key_env: the variable {env_name} is not set: export it, or name another"
        )
    return os.environ[env_name]
