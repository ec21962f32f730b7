"""A second opinion: one real vLLM server measured by vLLM's own benchmark and by loadgen, in turns.

python -m tests.bench.second_opinion --work FOLDER: starts the server by its recipe (tests/real), fires the
same instants and lengths by both tools, round after round, and writes reports/second-opinion. `--quick` is
for trying: few requests, two rounds.

vLLM's benchmark replays loadgen's plan as a `timed_trace`: prompts of token ids, of the same lengths, on
/v1/completions. Where the two differ by definition, the definition is computed from loadgen's own records
(`vllm.json`); what is left after that is the tools and the noise between rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from loadgen.imports.vllm import bring_in
from loadgen.plan import Plan
from loadgen.run_folder import load as run_in
from loadgen.scenario import build
from loadgen.stats import Summary, from_json, summarize
from loadgen.workload import draw
from tests.bench.machine import load_average
from tests.real.installed import missing, python_of
from tests.real.server import QUIET, Server
from tests.real.vllm import vllm

RATE_RPS, REQUESTS, PROMPT_TOKENS, OUTPUT_TOKENS, ROUNDS, SEED = 1.5, 60, 64, 32, 4, 1
SIZE = "mid"  # 144 million weights
REPORT = Path(__file__).parents[2] / "reports" / "second-opinion"
TRACE = "trace.jsonl"
CHUNK_TOKENS = 16  # of which a timed_trace makes prompts
_ENTRY = (  # its own command does not start in the wheel for CPUs
    "import argparse; from vllm.benchmarks.serve import add_cli_args, main; "
    "p = argparse.ArgumentParser(); add_cli_args(p); main(p.parse_args())"
)
STATS = {"mean": "mean", "median": "p50", "p99": "p99"}
METRICS = {"ttft": "ttft_s", "tpot": "tpot_s", "itl": "itl_s", "e2el": "e2e_s"}
RATES = {"request_throughput": "completed_rps", "output_throughput": "output_tokens_per_s"}
WHY = {
    "ttft": "ours counts from due, theirs from the start: the send lag lies between",
    "e2el": "ours counts from due, theirs from the start",
    "tpot": "one definition",
    "itl": "one definition, where each event is one token",
    "throughput": "theirs is over all the time, the drain included; ours is what came in the window",
}


@dataclass
class Rounds:
    """A figure of every round: by vLLM's benchmark, by loadgen in vLLM's definition, and in its own."""

    theirs: list[float] = field(default_factory=list)
    ours_as_theirs: list[float] = field(default_factory=list)
    ours: list[float | None] = field(default_factory=list)

    @property
    def left(self) -> float:
        """What is left between the tools once the definition is the same: the median of the rounds."""
        return median(b - a for a, b in zip(self.theirs, self.ours_as_theirs, strict=True))

    @property
    def noise(self) -> float:
        """How far rounds of one tool are apart, at most."""
        return max(max(side) - min(side) for side in (self.theirs, self.ours_as_theirs))


def scenario(url: str, requests: int) -> dict[str, Any]:
    return {
        "name": "second-opinion",
        "seed": SEED,
        "target": {"base_url": url, "model": SIZE, "backend": "openai"},
        "load": {
            "arrivals": {"kind": "poisson", "rate": RATE_RPS},
            "num_requests": requests,
            "prompt_tokens": PROMPT_TOKENS,
            "output_tokens": OUTPUT_TOKENS,
            "prompts": {"kind": "token_ids", "vocabulary": 2000},
            "tail": False,
        },
    }


def write_trace(plan: Plan, path: Path) -> None:
    """The plan as a timed_trace of vLLM's; no two prompts have a block in common.

    It begins with the first request: vLLM's time runs from its own start on, loadgen's from the first due.
    """
    first_ns = int(plan.due_ns[0])
    with path.open("w") as lines:
        for row in plan.rows():
            blocks = -(-row.prompt_tokens // CHUNK_TOKENS)
            said = {
                "timestamp": (row.due_ns - first_ns) / 1e9,
                "input_length": row.prompt_tokens,
                "output_length": row.output_tokens,
                "hash_ids": [row.index * blocks + i for i in range(blocks)],
            }
            lines.write(json.dumps(said) + "\n")


def by_theirs(server: Server, work: Path, requests: int, result: Path) -> None:
    words = [
        *("--backend", "openai", "--base-url", server.url, "--model", SIZE, "--tokenizer", work / SIZE),
        *("--dataset-name", "timed_trace", "--num-prompts", requests),
        *("--dataset-path", work / TRACE),
        *("--percentile-metrics", "ttft,tpot,itl,e2el", "--temperature", 0, "--disable-tqdm"),
        *("--save-result", "--save-detailed", "--result-filename", result),
    ]
    _done([python_of("vllm"), "-c", _ENTRY, *words], result.with_suffix(".log"))


def by_ours(asked: Path, out: Path) -> None:
    words = ["run", asked, "--extra-body", '{"temperature": 0}', "--out", out, "--quiet"]
    _done([sys.executable, "-m", "loadgen", *words], out.with_suffix(".log"), good=(0, 4))


def _done(command: list[object], log: Path, good: tuple[int, ...] = (0,)) -> None:
    with log.open("wb") as said:
        code = subprocess.run(
            [*map(str, command)], stdout=said, stderr=said, env=os.environ | QUIET, timeout=600, check=False
        ).returncode
    assert code in good, f"exit {code}:\n{log.read_text()[-2000:]}"


def measured(work: Path, requests: int, rounds: int) -> list[str]:
    """Every round of both tools in `work`; the load average before each round."""
    loads = []
    with vllm(work, "--max-num-seqs", "16", "--no-enable-prefix-caching", size=SIZE) as server:
        asked = work / "scenario.yaml"
        asked.write_text(json.dumps(scenario(server.url, requests)))
        write_trace(draw(build(json.loads(asked.read_text()), str(asked))), work / TRACE)
        by_ours(asked, work / "warm-up")
        for i in range(rounds):
            loads.append(load_average())
            turns = [
                partial(by_theirs, server, work, requests, work / f"theirs-{i}.json"),
                partial(by_ours, asked, work / f"ours-{i}"),
            ]
            for turn in turns[:: 1 if i % 2 == 0 else -1]:
                turn()
    return loads


def figures(work: Path, rounds: int) -> dict[str, Rounds]:
    """By vLLM's key."""
    found: dict[str, Rounds] = {}
    for i in range(rounds):
        theirs = json.loads((work / f"theirs-{i}.json").read_text())
        as_theirs = json.loads((work / f"ours-{i}" / "vllm.json").read_text())
        ours = from_json((work / f"ours-{i}" / "summary.json").read_bytes())
        for key, own in _own(ours):
            row = found.setdefault(key, Rounds())
            row.theirs.append(theirs[key])
            row.ours_as_theirs.append(as_theirs[key])
            row.ours.append(own)
    return found


def _own(s: Summary) -> Iterator[tuple[str, float | None]]:
    for metric, ours in METRICS.items():
        d = s.metrics[ours]
        for stat, name in STATS.items():
            value = d.mean if name == "mean" else d.quantiles[name]
            yield f"{stat}_{metric}_ms", None if value is None else 1e3 * value
    for key, ours in RATES.items():
        yield key, getattr(s, ours)


def checks(work: Path, rounds: int) -> Iterator[str]:
    """What was to be the same, and whether it was."""
    for i in range(rounds):
        mine, (theirs, _) = run_in(work / f"ours-{i}"), _imported(work, i)
        a, b = mine.records, theirs.records
        off_ms = 1e3 * abs((a.started_s - a.due_s.min())[a.index.argsort()] - b.started_s).max()
        same = (a.prompt_tokens.sum(), a.output_tokens.sum()) == (
            b.prompt_tokens.sum(),
            b.output_tokens.sum(),
        )
        yield (
            f"round {i + 1}: {int(a.answered.sum())} and {int(b.answered.sum())} ok; tokens "
            f"{'equal' if same else 'NOT equal'}; starts at most {off_ms:.1f} ms apart; loadgen measured "
            f"a run that is {summarize(mine).validity}"
        )


def _imported(work: Path, i: int) -> Any:
    folder = work / f"imported-{i}"
    if (folder / "run.json").exists():
        return run_in(folder), folder
    return bring_in(work / f"theirs-{i}.json", folder)


INTRO = f"""\
# A second opinion: vLLM's own benchmark and loadgen on one server

**MEASURED.** One server, by two clients in turn, over HTTP.

**Question.** Does vLLM's own benchmark see of one server what loadgen sees?

One vLLM server on this CPU (a Llama of 144 M random weights, bfloat16, at most 16 in a step, no prefix
cache), Poisson {RATE_RPS}/s, {PROMPT_TOKENS} tokens in, {OUTPUT_TOKENS} out, /v1/completions. vLLM's
benchmark replays loadgen's plan, so that both fire the same instants and lengths; they took turns. On chat,
which is not measured here, its TTFT would end with the first event, which only names a role.
"""
HEAD = (
    "figure",
    "vLLM's tool",
    "loadgen, vLLM's definition",
    "left",
    "noise",
    "loadgen's own",
    "by definition",
)
LEGEND = """\
Each cell: the median of the rounds (least to most). left: loadgen by vLLM's definition less vLLM's tool, the
median of the rounds. noise: how far the rounds of one tool are apart, at most.
"""


def report(found: dict[str, Rounds], said: list[str], made: str) -> str:
    beyond = [key for key, row in found.items() if abs(row.left) > row.noise]
    verdict = f"Left beyond the noise between rounds: {', '.join(beyond) or 'nothing'}."
    table = [
        f"| {' | '.join(HEAD)} |",
        "|---|---:|---:|---:|---:|---:|---|",
        *map(_line, found, found.values()),
    ]
    checked = [f"- {line}" for line in said]
    return "\n".join([INTRO, made, "", *table, "", LEGEND, verdict, "", *checked, ""])


def _line(key: str, row: Rounds) -> str:
    own = [value for value in row.ours if value is not None]
    cells = [key, _spread(row.theirs), _spread(row.ours_as_theirs), f"{row.left:+.2f}", f"{row.noise:.2f}"]
    cells += [_spread(own) if own else "none", next(text for name, text in WHY.items() if name in key)]
    return f"| {' | '.join(cells)} |"


def _spread(values: list[float]) -> str:
    return f"{median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def _versions() -> str:
    theirs = subprocess.run(
        [python_of("vllm"), "-c", "import vllm; print(vllm.__version__)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()[-1:]
    return f"vLLM {' '.join(theirs)}, loadgen {version('loadgen')}, Python {platform.python_version()}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.second_opinion", description=__doc__)
    parser.add_argument("--work", type=Path, required=True, help="a new folder for what was measured")
    parser.add_argument("--out", type=Path, default=REPORT)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args()
    if why := missing("vllm"):
        sys.exit(why)
    work: Path = asked.work.resolve()
    work.mkdir(parents=True)
    requests, rounds = (12, 2) if asked.quick else (REQUESTS, asked.rounds)
    loads = measured(work, requests, rounds)
    found = figures(work, rounds)
    how = "python -m tests.bench.second_opinion --work FOLDER" + (" --quick" if asked.quick else "")
    made = f"Made by\n\n```sh\n{how}\n```\n\nwith {_versions()}. Load before each round: {', '.join(loads)}."
    asked.out.mkdir(parents=True, exist_ok=True)
    (asked.out / "report.md").write_text(report(found, [*checks(work, rounds)], made))
    rows = {key: vars(row) | {"left": row.left, "noise": row.noise} for key, row in found.items()}
    (asked.out / "figures.json").write_text(json.dumps({"load": loads, "figures": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
