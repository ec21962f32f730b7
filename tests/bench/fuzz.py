"""Fuzzing led by coverage, with atheris: `python -m tests.bench.fuzz NAME --seconds 60`.

NAME is one of tests/fuzz/doors.py, or `answer`: an HTTP answer to the client, by its own bytes. Without a
name they are listed. A find ends it, with the input in `--work`; `--input FILE` shows it again.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.client.streams import DONE, HEAD, LAST_CHUNK, bill, chunk, plain, say
from tests.fuzz.doors import doors, through
from tests.fuzz.edits import by_chance, damaged

ANSWER = "answer"
MOST_BYTES = 20_000
_PROGRESS = re.compile(r"#(\d+)\s+\w+\s+cov: (\d+) ft: (\d+) corp: (\d+)")


def answered(content: bytes) -> None:
    """One record of it, that can be written and read back; in virtual time."""
    from tests.client.test_hostile import read_back

    assert len(read_back(content)) == 1


def target(name: str) -> tuple[tuple[bytes, ...], Callable[[bytes], object]]:
    """Its seeds, and what is to be called with each input."""
    if name == ANSWER:
        body = say("a") + say("b", "stop") + bill(2) + DONE
        return (HEAD + chunk(body) + LAST_CHUNK, plain(429, b"full", retry_after="1")), answered
    door = doors()[name]
    return door.seeds, lambda content: through(door, content)


def fire(name: str, arguments: list[str]) -> None:
    """In this process, until libFuzzer ends it."""
    import atheris

    with atheris.instrument_imports(include=["loadgen"]):
        for module in [module for module in sys.modules if module.startswith(("loadgen", "tests.fuzz"))]:
            del sys.modules[module]
        again = __import__("tests.bench.fuzz", fromlist=["target"])
        seeds, call = again.target(name)

    def mutated(content: bytes, most: int, seed: int) -> bytes:
        """Half of them by words and lines: bits alone seldom get past a parser."""
        chance = random.Random(seed)
        if chance.random() < 0.5:
            return bytes(atheris.Mutate(content, most))
        return damaged(content or chance.choice(seeds), by_chance(chance))[:most]

    atheris.Setup([sys.argv[0], *arguments], call, custom_mutator=mutated)
    atheris.Fuzz()


def measured(name: str, seconds: int, work: Path) -> dict[str, object]:
    """How many inputs, how far they reached, and whether one was found that raises."""
    corpus = work / name.replace(" ", "-").replace("/", "-")
    corpus.mkdir(parents=True, exist_ok=True)
    for i, seed in enumerate(target(name)[0]):
        (corpus / f"seed-{i}").write_bytes(seed[:MOST_BYTES])
    limits = [f"-max_total_time={seconds}", f"-max_len={MOST_BYTES}", "-timeout=20", "-rss_limit_mb=2048"]
    limits.append(f"-artifact_prefix={work}/")
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.fuzz", name, "--fire", str(corpus), *limits],
        capture_output=True, text=True, errors="replace", env=os.environ | {"PYTHONHASHSEED": "0"},
    )  # fmt: skip
    last = _PROGRESS.findall(done.stderr)[-1:] or [("0", "0", "0", "0")]
    inputs, edges, features, kept = map(int, last[0])
    found = "" if done.returncode == 0 else done.stderr[-4000:]
    took_s = round(time.monotonic() - begun, 1)
    return {
        "target": name, "inputs": inputs, "edges": edges, "features": features, "kept": kept,
        "seconds": took_s, "found": found,
    }  # fmt: skip


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("name", nargs="?")
    asked.add_argument("--seconds", type=int, default=60)
    asked.add_argument("--work", type=Path, help="kept: the corpus, and what was found")
    asked.add_argument("--input", type=Path, help="show again what was found")
    asked.add_argument("--fire", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    given = asked.parse_args()
    names = (ANSWER, *doors())
    if given.name not in names:
        sys.exit(f"give one of these, in quotes: {', '.join(names)}")
    if given.fire is not None:
        fire(given.name, given.fire)
    elif given.input:
        print(target(given.name)[1](given.input.read_bytes()))
    else:
        try:
            import atheris  # noqa: F401
        except ImportError:
            sys.exit("atheris is not installed: pip install atheris (Linux or macOS)")
        with tempfile.TemporaryDirectory() as at:
            print(json.dumps(measured(given.name, given.seconds, given.work or Path(at))))


if __name__ == "__main__":
    main()
