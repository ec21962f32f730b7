"""Flags laid over a scenario file, or making one alone. Names as in vLLM's benchmark where it has them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from typing import Any

from loadgen.backends import dialect_at
from loadgen.cli import environment, shaping
from loadgen.scenario import Scenario, ScenarioError, build
from loadgen.shipped import read
from loadgen.units import duration_s

# flag -> key path in the scenario, of those whose value goes there as it is
_KEYS = {
    "name": "name",
    "drain": "drain",
    "policy": "policy",
    "repeats": "repeats",
    "base_url": "target.base_url",
    "model": "target.model",
    "backend": "target.backend",
    "endpoint": "target.endpoint",
    "balance": "target.balance",
    "metrics": "target.metrics",
    "api_key_env": "target.api_key_env",
    "connections": "target.connections",
    "ca_file": "target.ca_file",
    "insecure": "target.insecure",
    "cert_file": "target.cert_file",
    "key_file": "target.key_file",
    "unix_socket": "target.unix_socket",
    "proxy": "target.proxy",
    "warm": "client.warm",
    "clock": "client.clock",
    "ignore_eos": "load.ignore_eos",
    "max_concurrency": "load.max_concurrency",
    "max_in_flight": "load.max_in_flight",
    "timeout_connect": "timeouts.connect",
    "timeout_first_token": "timeouts.first_token",
    "timeout_idle": "timeouts.idle",
    "timeout_total": "timeouts.total",
}
# flag -> the key paths that it decides otherwise
_PARTS = {
    "no_tail": ("load.tail",),
    "header": ("target.headers",),
    "extra_body": ("target.extra_body",),
    "slo": ("slos",),
    "goodput": ("goodput",),
    "processes": ("client.processes",),
}
_FLAGS = {path: flag for flag, path in _KEYS.items()} | {
    path: flag for parts in (_PARTS, shaping.PATHS) for flag, paths in parts.items() for path in paths
}
_GOODPUT = {"ttft": "ttft", "tpot": "tpot", "e2el": "e2e", "e2e": "e2e"}
_WHERE = "command line"


def overlay(scenario: str | None, params: dict[str, Any]) -> Scenario:
    """The scenario file with every flag given laid over it.

    `params`: a command's parameters by name; those that are None or no key of a scenario are passed over.

    Raises ScenarioError that names the flag.
    """
    return laid(read(scenario, environment.readable()) if scenario else None, params)


def laid(base: Scenario | None, params: dict[str, Any]) -> Scenario:
    """The same over a scenario that was read, with what the environment adds to its targets."""
    from loadgen.client.secrets import meet

    asked = environment.completed(_laid(base, params), quiet=bool(params.get("quiet")))
    meet(asked, os.environ)
    return asked


def _laid(base: Scenario | None, params: dict[str, Any]) -> Scenario:
    names = {*_KEYS, *_PARTS, *shaping.PATHS}
    given = {name: value for name, value in params.items() if name in names and value not in (None, [], ())}
    if base is not None and not given:
        return base
    data: dict[str, Any] = base.model_dump(mode="json", by_alias=True) if base else {"load": {}}
    if base and base.target and "endpoint" not in base.target.model_fields_set:
        del data["target"]["endpoint"]  # left open, the preflight may choose it
    if "seed" in given:
        data["seed"] = given["seed"]
    shaping.shape(data["load"], given)
    for name, path in _KEYS.items():
        if name in given:
            _put(data, path, given[name])
    _choose_api(data, given)
    if "no_tail" in given:
        data["load"]["tail"] = False
    if "slo" in given:
        data["slos"] = [*data.get("slos", ()), *given["slo"]]
    for name, parse in _PARSERS.items():
        if name in given:
            _put(data, _PARTS[name][0], parse(given[name]))
    if target := data.get("target"):
        target["base_url"] = target.get("base_url") or _base_url(quiet=bool(params.get("quiet")))
    if base is None:
        _refuse_half(data["load"])
    return _built(data)


def _choose_api(data: dict[str, Any], given: dict[str, Any]) -> None:
    """A file's backend and endpoint go together: one of them given takes the place of both."""
    if "backend" in given and "endpoint" not in given:
        data["target"].pop("endpoint", None)
    elif "endpoint" in given and "backend" not in given and dialect_at(given["endpoint"]):
        _put(data, "target.backend", None)


def _base_url(*, quiet: bool) -> str:
    if (url := environment.base_url(quiet=quiet)) is None:
        raise ScenarioError("the flags speak of a server, but there is none: give --base-url")
    return url


def _refuse_half(load: dict[str, Any]) -> None:
    if "arrivals" not in load:
        raise ScenarioError("say when requests arrive: give --request-rate, or a scenario")
    by_itself = (load["arrivals"] or {}).get("kind") == "trace"
    if "num_requests" not in load and "duration" not in load and not by_itself:
        raise ScenarioError("say when the load ends: give --num-prompts or --duration")


def _built(data: dict[str, Any]) -> Scenario:
    try:
        return build(data, _WHERE)
    except ScenarioError as trouble:
        told = re.sub(rf"(?m)^{_WHERE}: ([\w.]+)(?=:)", _in_flags, str(trouble))
        raise ScenarioError("\n".join(dict.fromkeys(told.splitlines()))) from None  # one flag, two keys


def _in_flags(found: re.Match[str]) -> str:
    """The flag that decides the key path of an error, or the words as they are."""
    steps = found[1].split(".")
    paths = (".".join(steps[:end]) for end in range(len(steps), 0, -1))
    flag = next((_FLAGS[path] for path in paths if path in _FLAGS), None)
    return found[0] if flag is None else shaping.spelt(flag)


def _put(data: dict[str, Any], path: str, value: Any) -> None:
    *rooms, key = path.split(".")
    for room in rooms:
        data[room] = data.get(room) or {}
        data = data[room]
    data[key] = value


def _headers(pairs: list[str]) -> dict[str, str]:
    found = [re.fullmatch(r"([^\s:=]+)\s*[:=]\s*(.*)", pair, re.DOTALL) for pair in pairs]
    if None in found:
        raise ScenarioError("--header wants NAME=VALUE")
    return {m[1]: m[2] for m in found if m}


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text, object_pairs_hook=_no_twins)
    except (ValueError, RecursionError) as problem:
        raise ScenarioError(f"--extra-body is not JSON: {problem}") from None
    if not isinstance(value, dict):
        raise ScenarioError("--extra-body wants a JSON object such as '{\"temperature\": 0}'")
    return value


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is given twice")
    return found


def _goodput(limits: list[str]) -> dict[str, str]:
    """vLLM's `ttft:500 tpot:50 e2el:10000` (milliseconds); a unit may be given: `ttft:500ms`."""
    found = [re.fullmatch(r"(\w+):(.+)", limit) for limit in limits]
    if any(m is None or m[1] not in _GOODPUT for m in found):
        raise ScenarioError("--goodput wants ttft:MS, tpot:MS or e2el:MS, as in ttft:500 tpot:50")
    return {_GOODPUT[m[1]]: f"{m[2]}ms" if re.fullmatch(r"[\d.]+", m[2]) else m[2] for m in found if m}


def _count_or_word(text: str) -> int | str:
    return int(text) if re.fullmatch("[0-9]{1,9}", text) else text


_PARSERS: dict[str, Callable[[Any], Any]] = {
    "header": _headers,
    "extra_body": _json_object,
    "goodput": _goodput,
    "processes": _count_or_word,
}


def positive_s(flag: str, text: str | None) -> float | None:
    """Seconds above zero in the text given to a flag. Raises ScenarioError that names the flag."""
    try:
        seconds = None if text is None else duration_s(text)
    except ValueError as problem:
        raise ScenarioError(f"{flag}: {problem}") from None
    if seconds is not None and seconds <= 0:
        raise ScenarioError(f"{flag}: must be above zero, not {text}")
    return seconds


def api_key(env_name: str | None) -> str | None:
    """The key in the variable of that name. Raises ScenarioError when it is not set."""
    from loadgen.client.secrets import key_in

    return key_in(os.environ, env_name)
