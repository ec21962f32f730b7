"""The servers that want an environment of their own: where it is, and how it is made.

`python -m tests.real.installed vllm` (or transformers) makes it; the pins are in vllm.txt beside this.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Literal, get_args

Kind = Literal["vllm", "transformers"]
HOME = Path.home() / ".cache" / "loadgen" / "real"
HERE = Path(__file__).parent


def python_of(kind: Kind) -> Path:
    """The Python that has it: of LOADGEN_REAL_VLLM or LOADGEN_REAL_TRANSFORMERS, or the one made here."""
    return Path(os.environ.get(f"LOADGEN_REAL_{kind.upper()}", HOME / kind / "bin" / "python"))


def missing(kind: Kind) -> str | None:
    """Why the server cannot be started here; None where it can."""
    python = python_of(kind)
    return None if python.is_file() else f"no {python}: python -m tests.real.installed {kind}"


def _install(kind: Kind, folder: Path) -> None:
    venv.create(folder, with_pip=True, clear=True)
    command = [folder / "bin" / "python", "-m", "pip", "install", "--no-deps", "-r", HERE / f"{kind}.txt"]
    subprocess.run([*map(str, command)], check=True)


if __name__ == "__main__":
    asked = argparse.ArgumentParser(prog="python -m tests.real.installed", description="Installs a server.")
    asked.add_argument("kind", choices=get_args(Kind))
    asked.add_argument("folder", nargs="?", type=Path, help="to make it in, emptied first (%(default)s)")
    words = asked.parse_args()
    _install(words.kind, words.folder or HOME / words.kind)
    sys.exit(missing(words.kind) if words.folder is None else None)
