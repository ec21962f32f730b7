"""The kinds of value that a scenario holds: how each is written, its range, what is said of a wrong one."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import SplitResult, unquote, urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationInfo,
    WithJsonSchema,
)

from loadgen.strict_yaml import MAX_DEPTH
from loadgen.units import argument, duration_s, quoted, rate_rps, show_duration, show_rate

NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
MAX_COUNT = 2**31 - 1


def _positive(value: float) -> float:
    if value <= 0:
        raise ValueError(f"must be above zero, not {value:g}")
    return value


def _not_negative(value: float) -> float:
    if value < 0:
        raise ValueError(f"must not be negative, as {value:g} is")
    return value


def _at_most_a_year(seconds: float) -> float:
    """Instants are kept as 64-bit nanoseconds, and sums of several durations must fit."""
    if seconds > 31_536_000:
        raise ValueError(f"must be at most 8760h, a year, not {show_duration(seconds)}")
    return seconds


def _sendable(rps: float) -> float:
    if rps and not 1e-6 <= rps <= 1e6:
        raise ValueError(f"must be from 0.000001/s to 1000000/s, not {show_rate(rps)}")
    return rps


def _spelt(pattern: str, words: str) -> AfterValidator:
    """The value is never quoted: a secret may stand in the wrong place."""

    def check(value: str) -> str:
        if re.fullmatch(pattern, value) is None:
            raise ValueError(f"must be {words}")
        return value

    return AfterValidator(check)


def base_url(value: str) -> str:
    """The value is never quoted: it may hold a password."""
    parts = _url_parts(value, "a base URL")
    if "@" in parts.netloc:
        raise ValueError("a base URL may not hold a user name or password: use api_key_env or headers")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("not a base URL: write http://host:port or https://host")
    if parts.query or parts.fragment:
        raise ValueError("a base URL has no query and no fragment")
    if found := re.search(r"(/v1)?/((chat/)?completions|responses)/?$", parts.path):
        raise ValueError(f"leave {found[0]} off the base URL: the path is the endpoint's")
    return value.rstrip("/")


def proxy_url(value: str) -> str:
    """The value is never quoted: it may hold a password."""
    if value == NO_PROXY:
        return value
    parts = _url_parts(value, "a proxy's URL")
    if parts.scheme in ("https", "socks4", "socks4a", "socks5", "socks5h"):
        raise ValueError(
            f"proxies that speak {parts.scheme} are not supported: give an http:// one, or none and "
            "a tunnel of your own (ssh -L) as base_url"
        )
    if parts.scheme != "http" or not parts.hostname:
        raise ValueError("not a proxy: write http://host:port, or none")
    if parts.path.strip("/") or parts.query or parts.fragment:
        raise ValueError("a proxy is a host and a port, without a path")
    return value.rstrip("/")


def without_credentials(proxy: str) -> str:
    """`proxy` with *** for who asks, whether it is a proper URL or not."""
    return re.sub(r"^(\w+://)?.*@", r"\1***@", proxy, flags=re.DOTALL)


def without_query_secrets(endpoint: str) -> str:
    """`endpoint` with *** for what its query has under a name that sounds like a secret's."""
    return re.sub(r"([?&])([^=&]*)=[^&]*", lambda found: _told(found[0], *found.groups()), endpoint)


def _told(whole: str, separator: str, name: str) -> str:
    return f"{separator}{name}=***" if is_secret(name) else whole


def query_secrets(endpoint: str) -> list[str]:
    """What `without_query_secrets` leaves out, as it is and as it reads."""
    pairs = [pair.partition("=") for pair in endpoint.partition("?")[2].split("&")]
    return [text for name, _, value in pairs if is_secret(name) for text in (value, unquote(value))]


def _url_parts(value: str, what: str) -> SplitResult:
    if re.search(r"[\s\x00-\x1f\x7f]", value):
        raise ValueError(f"{what} has no spaces or control characters")
    try:
        parts = urlsplit(value)
    except ValueError:
        raise ValueError(f"{what} with half a pair of brackets, or none around an IPv6 address") from None
    try:
        possible = parts.port != 0
    except ValueError:
        possible = False
    if not possible:
        raise ValueError("a port is a number from 1 to 65535")
    return parts


def headers(value: dict[str, str]) -> dict[str, str]:
    for name, text in value.items():
        if re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name) is None:
            raise ValueError(f"{quoted(name)} cannot be the name of a header")
        if name.lower() in ("content-length", "transfer-encoding"):
            raise ValueError(f"{name} is set by the client")
        if re.fullmatch(r"[\t\x20-\x7e\x80-\xff]*", text) is None:
            raise ValueError(
                f"the value of {name} holds a line break or another character no header can carry"
            )
    return value


def _json(value: dict[str, Any]) -> dict[str, Any]:
    try:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError):
        raise ValueError(
            "must hold plain JSON values, no nan, no inf and no half of a surrogate pair"
        ) from None
    if _is_deeper(value, MAX_DEPTH):
        raise ValueError(f"must not be more than {MAX_DEPTH} levels deep")
    return value


def _is_deeper(value: Any, levels: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels < 0 or any(_is_deeper(one, levels - 1) for one in inner)


_UNIT = "(ns|us|µs|ms|s|m|min|h)"
_POSITIVE = r"\+?[0-9.]+([eE][+-]?[0-9]+)?"  # as an editor checks it; `units` is stricter

_DURATION = {
    "type": "string",
    "pattern": rf"^\s*{_POSITIVE}\s*{_UNIT}(\s*[0-9.]+\s*{_UNIT})*\s*$",
    "examples": ["500ms", "2s", "10m"],
}
_RATE = {
    "type": "string",
    "pattern": rf"^\s*{_POSITIVE}\s*(/\s*(s|m|min|h))?\s*$",
    "examples": ["8/s", "90/min"],
}

_Seconds = Annotated[
    float, BeforeValidator(duration_s), AfterValidator(_at_most_a_year), PlainSerializer(show_duration)
]
Duration = Annotated[_Seconds, AfterValidator(_positive), WithJsonSchema(_DURATION)]
DurationOrZero = Annotated[
    _Seconds, AfterValidator(_not_negative), WithJsonSchema({"anyOf": [_DURATION, {"const": 0}]})
]
_PerSecond = Annotated[float, BeforeValidator(rate_rps), PlainSerializer(show_rate)]
Rate = Annotated[
    _PerSecond,
    AfterValidator(_positive),
    AfterValidator(_sendable),
    WithJsonSchema({"anyOf": [_RATE, {"type": "number", "exclusiveMinimum": 0}]}),
]
RateOrZero = Annotated[
    _PerSecond,
    AfterValidator(_not_negative),
    AfterValidator(_sendable),
    WithJsonSchema({"anyOf": [_RATE, {"type": "number", "minimum": 0}]}),
]
Count = Annotated[int, Field(ge=1, le=MAX_COUNT)]
Money = Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]
Repeats = Annotated[int, Field(ge=1, le=1000)]
CountOrZero = Annotated[int, Field(ge=0, le=MAX_COUNT)]
Priority = Annotated[int, Field(ge=-MAX_COUNT, le=MAX_COUNT)]
Name = Annotated[str, _spelt(NAME, "1 to 64 letters, digits, dots, _ or -, the first a letter or digit")]


def _auto_or_count(value: Any) -> Any:
    if value == "auto" or (type(value) is int and 1 <= value <= MAX_COUNT):
        return value
    raise ValueError("must be auto, or a number from 1")


Processes = Annotated[
    int | Literal["auto"],
    BeforeValidator(_auto_or_count),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1}, {"const": "auto"}]}),
]


def _auto_or_seconds(value: Any) -> Any:
    return value if value == "auto" else _not_negative(_at_most_a_year(duration_s(value)))


def _auto_or_shown(value: float | str) -> str:
    return value if isinstance(value, str) else show_duration(value)


Warmup = Annotated[
    float | Literal["auto"],
    BeforeValidator(_auto_or_seconds),
    PlainSerializer(_auto_or_shown),
    WithJsonSchema({"anyOf": [_DURATION, {"const": 0}, {"const": "auto"}]}),
]


def _beside_the_scenario(value: Any, info: ValidationInfo) -> Any:
    """A relative path counts from the scenario's own folder, where it was read from one."""
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError("must be the path of a file")
    folder = (info.context or {}).get("folder")
    return str(Path(folder, value)) if folder is not None else value


def _of_the_scenario(value: Any, info: ValidationInfo) -> Any:
    """As `_beside_the_scenario`, and not outside of its folder: a stranger's scenario could name any file of
    this machine, and what it holds would be sent. `readable`: what the user allows besides.
    """
    path = _beside_the_scenario(value, info)
    context = info.context or {}
    if (folder := context.get("folder")) is None:
        return path
    file = Path(os.path.realpath(path))
    allowed = map(os.path.realpath, (folder, *context.get("readable", ())))
    if not any(file.is_relative_to(one) for one in allowed):
        raise ValueError(
            "lies outside of the scenario's folder, and what it holds would be sent: if that is meant, set "
            f"LOADGEN_FILES={argument(file.parent)}"
        )
    return path


def varied_files(key: str, value: Any, info: ValidationInfo) -> Any:
    """`value`, in which whatever is called `file` is held to be one of the scenario."""
    if isinstance(value, dict):
        return {name: varied_files(name, inner, info) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [varied_files(key, inner, info) for inner in value]
    return _of_the_scenario(value, info) if key.split(".")[-1] == "file" else value


def _no_number(row_id: str) -> str:
    if row_id.isdecimal():
        raise ValueError("must not be digits alone: it would be taken for another row's number")
    return row_id


RowId = Annotated[
    str,
    _spelt(r"[\x21-\x7e]{1,128}", "1 to 128 printable ASCII characters without spaces"),
    AfterValidator(_no_number),  # it takes the place of the row's number in X-Request-ID
]
Variable = Annotated[
    str, _spelt(r"[A-Za-z_][A-Za-z0-9_]*", "the name of an environment variable, not the key")
]
DataFile = Annotated[str, BeforeValidator(_beside_the_scenario)]
SentFile = Annotated[str, BeforeValidator(_of_the_scenario)]
Symbol = Annotated[
    str, _spelt(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", "module:function, such as my_laws:gaps")
]
Endpoint = Annotated[
    str, _spelt(r"/[\x21-\x7e]*", "the path of an API, such as /v1/chat/completions, without spaces")
]
ComputedModel = Annotated[str, _spelt("torch:.+", "torch:NAME or torch:FOLDER, such as torch:llama-144m")]
NO_PROXY = "none"
ProxyUrl = Annotated[str, AfterValidator(proxy_url)]
BaseUrl = Annotated[str, AfterValidator(base_url)]
_URL = {"type": "string"}
ONE_OR_SEVERAL = {"anyOf": [_URL, {"type": "array", "items": _URL, "minItems": 1}]}


def _metrics_urls(value: Any) -> Any:
    """Checked before pydantic tries each kind, which would say of each what is wrong."""
    if value in ("auto", "none"):
        return value
    urls = [value] if isinstance(value, str) else value
    if not isinstance(urls, list | tuple) or not urls or not all(isinstance(url, str) for url in urls):
        raise ValueError("must be auto, none, or a base URL or several")
    try:
        return [base_url(url) for url in urls]
    except ValueError as problem:
        raise ValueError(f"neither auto nor none: {problem}") from None


MetricsUrls = Annotated[
    Literal["auto", "none"] | Annotated[tuple[BaseUrl, ...], Field(strict=False)],
    BeforeValidator(_metrics_urls),
]
Headers = Annotated[dict[str, str], AfterValidator(headers)]
JsonObject = Annotated[dict[str, Any], AfterValidator(_json)]


def is_secret(name: str) -> bool:
    """Whether a value of this name may be a credential."""
    return bool(re.search(r"auth|key|token|secret|cookie|credential|passw|session", name, re.IGNORECASE))


class Strict(BaseModel):
    """Unknown keys and values of another type are errors; values do not change after they were read."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, validate_by_name=True, validate_by_alias=True
    )
