"""Damaged files through the command line: exit code 2, and one line on stderr."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from loadgen.cli import _command
from tests.fuzz.doors import doors, through
from tests.fuzz.edits import by_chance, damaged

COMMANDS = {
    "scenario": ("plan", "{file}"),
    "header": ("report", "{folder}"),
    "records": ("report", "{folder}"),
    "capacity": ("report", "{folder}"),
    "vllm": ("import", "vllm", "{file}", "--out", "{folder}/run"),
    "baseline": ("gate", "{file}", "--baseline", "{file}"),
    "steps": ("engines", "fit", "{file}"),
    "plan.jsonl": ("plan", "{file}"),
}


def refused(name: str, chance: random.Random) -> bytes:
    """Damaged content that the reader itself refuses."""
    door = doors()[name]
    while True:
        content = damaged(chance.choice(door.seeds), by_chance(chance, door.words))
        if through(door, content) is not None:
            return content


@pytest.mark.parametrize("name", COMMANDS)
def test_a_damaged_file_is_one_line_and_exit_code_2(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And never a traceback. Of a scenario there is a line for each mistake, up to ten and how many more."""
    door, chance = doors()[name], random.Random(name)
    for i in range(2):
        folder = tmp_path / str(i)
        folder.mkdir()
        for other, rest in door.rest:
            (folder / other).write_bytes(rest)
        (folder / door.name).write_bytes(refused(name, chance))
        asked = [word.format(file=folder / door.name, folder=folder) for word in COMMANDS[name]]
        monkeypatch.setattr("sys.argv", ["loadgen", *asked])
        try:
            code = _command()
        except SystemExit as ended:
            code = ended.code  # type: ignore[assignment]
        printed = capsys.readouterr()
        lines = printed.err.splitlines()
        assert (code, printed.out) == (2, ""), printed.err
        assert 1 <= len(lines) <= (11 if name == "scenario" else 1)
        assert all(line.startswith("loadgen: ") and line.isprintable() for line in lines)
