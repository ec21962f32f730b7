"""What an earlier call of a command of several runs left in its folder: whole runs are not made again."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from secrets import token_hex

from loadgen.order import Order
from loadgen.run_folder import goes_on, refuse_used
from loadgen.run_folder import lines as read
from loadgen.scenario import ScenarioError

_OURS = re.compile(r"unused-.*|\.\d+\.half")  # set aside; and a file that was being written at a kill


def refuse_strange(folder: Path, names: Collection[str]) -> None:
    """Raises ScenarioError where `folder` holds what is none of `names`, is none or cannot be looked into."""
    if not folder.is_dir():
        refuse_used(folder)
        return
    for path in sorted(folder.iterdir()):
        if path.name not in names and not _OURS.fullmatch(path.name):
            raise ScenarioError(
                f"{folder} is not empty, and {path.name} is no run of this scenario: "
                "choose another folder with --out, or remove it"
            )


def is_whole(order: Order, *, virtual: bool) -> bool:
    """Whether the order's folder has its run, from start to end. Raises ScenarioError for another's."""
    if not (order.folder / "run.json").is_file():
        return False
    header, _ = read(order.folder)
    if (
        header.plan_digest != order.plan.digest()
        or header.scenario != order.scenario.as_asked()
        or order.salt not in (None, header.salt)
        or (header.source == "virtual") != virtual
    ):
        raise ScenarioError(
            f"{order.folder} is a run of another scenario, or of other flags: "
            "choose another folder with --out, or remove it"
        )
    return header.is_whole


def set_aside(folder: Path) -> Path:
    """Where the run that is cut short is kept, so that it can be made again. Raises ScenarioError."""
    if goes_on(folder):
        raise ScenarioError(f"{folder}: that run still goes on: wait, or choose another folder with --out")
    return folder.rename(folder.with_name(f"unused-{token_hex(3)}-{folder.name}"))
