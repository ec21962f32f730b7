"""What the environment says of a target, by the variables that OpenAI's own clients read; and what files a
scenario may send.

Whatever is taken from it is said on stderr, unless `quiet`; a key itself never.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

from loadgen import fields
from loadgen.scenario import MASKED, Scenario, ScenarioError
from loadgen.target import PAYERS, Target

KEY, URL, FILES = "OPENAI_API_KEY", "OPENAI_BASE_URL", "LOADGEN_FILES"
_PAYERS = {"OPENAI_ORG_ID": PAYERS["organization"], "OPENAI_PROJECT_ID": PAYERS["project"]}


def base_url(*, quiet: bool) -> str | None:
    """The server that it names. Raises ScenarioError for one that is none."""
    if not (url := os.environ.get(URL)):
        return None
    try:
        url = fields.base_url(url)
    except ValueError as problem:
        raise ScenarioError(f"the variable {URL}: {problem}") from None
    _say([f"server from {URL}: {url}"], quiet=quiet)
    return url


def readable() -> list[Path]:
    """What scenarios may send besides what lies in their own folders."""
    return [Path(name) for name in os.environ.get(FILES, "").split(os.pathsep) if name]


def unused() -> list[str]:
    """What to say where no server is asked for: the bundled engine answers, whatever server is named here."""
    return [f"{URL} is set and not used: add --base-url ${URL}"] if os.environ.get(URL) else []


def completed(scenario: Scenario, *, quiet: bool) -> Scenario:
    """The scenario, whose targets have the key, organization and project of the environment where they name
    none. Raises ScenarioError.
    """
    said: dict[str, None] = {}
    variants = {
        name: one.model_copy(update={"target": one.target and _completed(one.target, said)})
        for name, one in scenario.variants.items()
    }
    target = scenario.target and _completed(scenario.target, said)
    _say(said, quiet=quiet)
    return scenario.model_copy(update={"target": target, "variants": variants})


def _say(lines: Iterable[str], *, quiet: bool) -> None:
    for line in () if quiet else lines:
        print(line, file=sys.stderr)


def _completed(target: Target, said: dict[str, None]) -> Target:
    update: dict[str, object] = {}
    own = {name.lower(): value for name, value in target.headers.items()}
    if target.api_key_env is None and "authorization" not in own and os.environ.get(KEY):
        update["api_key_env"] = KEY
        said[f"key from {KEY} (--api-key-env none: no key)"] = None
    payers = {}
    for variable, header in _PAYERS.items():
        if own.get(header.lower(), MASKED) == MASKED and (value := os.environ.get(variable)):
            payers[header] = value
            said[f"{header} from {variable}"] = None
    if payers:
        try:
            update["headers"] = fields.headers(target.headers | payers)
        except ValueError as problem:
            raise ScenarioError(f"the environment: {problem}") from None
    return target.model_copy(update=update)
