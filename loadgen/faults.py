"""What is wrong with plain data, for a reader of YAML: pydantic's errors as key paths and sentences."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from loadgen.strict_yaml import KeyPath
from loadgen.units import quoted

_RULES = {
    "model_type": "must hold keys and values",
    "model_attributes_type": "must hold keys and values",
    "dict_type": "must hold keys and values",
    "tuple_type": "must be a list",
    "string_type": "must be text",
    "bool_type": "must be true or false",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "greater_than": "must be above {gt:.12g}",
    "less_than": "must be below {lt:.12g}",
    "greater_than_equal": "must be at least {ge:.12g}",
    "less_than_equal": "must be at most {le:.12g}",
    "too_short": "must hold at least {min_length}",
    "too_long": "must hold at most {max_length}",
}
# Keys whose values may be credentials, or be one by mistake: never quoted.
_PRIVATE = {"headers", "api_key_env", "base_url", "more_urls"}


class ScenarioError(Exception):
    """A user's mistake: where and which rule, a line for each. The CLI prints it and exits 2."""


class Fault(NamedTuple):
    """`path`: the key path as in the YAML; `rule`: what is wrong there."""

    path: KeyPath
    rule: str


class InsideError(ValueError):
    """A rule broken by several values together, at `path` below the one that is checked."""

    def __init__(self, path: KeyPath, rule: str) -> None:
        super().__init__(rule)
        self.path = path


def explain(error: ValidationError, model: type[BaseModel]) -> list[Fault]:
    """The faults in what was given to `model`, in its fields' order.

    A misspelt key is both unknown and missing: beside an unknown key no missing one is named.
    """
    details = error.errors(include_url=False)
    misspelt = {detail["loc"][:-1] for detail in details if detail["type"] == "extra_forbidden"}
    return [_fault(d, model) for d in details if d["type"] != "missing" or d["loc"][:-1] not in misspelt]


def _fault(detail: ErrorDetails, model: type[BaseModel]) -> Fault:
    path, types = _follow(detail["loc"], model)
    kind, value, ctx = detail["type"], detail["input"], detail.get("ctx", {})
    if kind == "missing":
        return Fault(path, "required key missing")
    if kind == "extra_forbidden":
        key = str(detail["loc"][-1])
        known = _keys(types)
        home = None if nearest(key, known) else _home(key, model)
        return Fault((*path, key), f"unknown key{f': it belongs under {home}' if home else hint(key, known)}")
    if kind == "union_tag_not_found":
        return Fault((*path, "kind"), f"required key missing: one of {', '.join(_kinds(types))}")
    if kind == "union_tag_invalid":
        return Fault((*path, "kind"), f"unknown kind {quoted(ctx['tag'])}{hint(ctx['tag'], _kinds(types))}")
    if kind == "literal_error":
        choices = _choices(types) or [ctx["expected"]]
        return Fault(path, f"unknown value {quoted(value)}{hint(value, choices)}")
    if kind == "value_error" and isinstance(ctx["error"], InsideError):
        path = (*path, *ctx["error"].path)
    return Fault(path, _rule(kind, detail, "" if set(path) & _PRIVATE else f", not {quoted(value)}"))


def _rule(kind: str, detail: ErrorDetails, but: str) -> str:
    if kind == "value_error":
        return str(detail["ctx"]["error"])
    if kind in _RULES:
        return _RULES[kind].format_map(detail.get("ctx", {})) + but
    return detail["msg"]


def _follow(loc: KeyPath, model: type[BaseModel]) -> tuple[KeyPath, list[Any]]:
    """`loc` without the union members that pydantic puts into it, and the types that may stand there."""
    path: list[str | int] = []
    types: list[Any] = [model]
    for step in loc:
        if tagged := [t for t in types if len(types) > 1 and step in _kinds([t])]:
            types = tagged
        elif (inner := _inside(types, step)) is not None:
            path.append(step)
            types = list(_alternatives(inner))
    return tuple(path), types


def _inside(types: list[Any], step: str | int) -> Any:
    """The type under key or index `step`; None where there is no such thing."""
    for here in types:
        if get_origin(here) is dict:
            return get_args(here)[1]
        if get_origin(here) is tuple and isinstance(step, int):
            return get_args(here)[0]
        for field_name, field in _fields(here).items():
            if step == (field.alias or field_name):
                return field.annotation
    return None


def _alternatives(annotation: Any) -> Iterable[Any]:
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) in (Union, UnionType):
        for member in get_args(annotation):
            yield from _alternatives(member)
    elif annotation is not type(None):
        yield annotation


def _fields(here: Any) -> dict[str, Any]:
    return here.model_fields if isinstance(here, type) and issubclass(here, BaseModel) else {}


def _keys(types: list[Any]) -> list[str]:
    return [field.alias or name for here in types for name, field in _fields(here).items()]


def _home(key: str, model: type[BaseModel]) -> str | None:
    """The part of the whole that has such a key."""
    parts = ((part, list(_alternatives(field.annotation))) for part, field in _fields(model).items())
    return next((part for part, types in parts if key in _keys(types)), None)


def _kinds(types: list[Any]) -> list[str]:
    """The values of `kind` that tell these types apart."""
    return [
        tag for here in types if "kind" in _fields(here) for tag in get_args(_fields(here)["kind"].annotation)
    ]


def _choices(types: list[Any]) -> list[str]:
    return [str(choice) for here in types if get_origin(here) is Literal for choice in get_args(here)]


def nearest(word: str, known: Iterable[str]) -> str | None:
    """What was likely meant by `word`: the first that it begins, else one spelled much like it, else the only
    one that shares a part with it, as client_cert and cert_file do.
    """
    words = list(known)
    longer = [other for other in words if word and other.startswith(word)]
    near = longer or difflib.get_close_matches(word[:60], words, n=1)
    related = [other for other in words if "_" in word and set(word.split("_")) & set(other.split("_"))]
    return near[0] if near else related[0] if len(related) == 1 else None


def hint(word: Any, known: Iterable[str]) -> str:
    """The end of a sentence that says what `word` is not: what was likely meant, else what there is."""
    words = list(known)
    near = nearest(str(word), words)
    there_are = f": choose from {', '.join(words)}" if words else ""
    return f", did you mean {near}?" if near else there_are
