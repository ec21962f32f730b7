"""Static against continuous batching on real engines: makes reports/real-engines from runs on this CPU.

python -m tests.bench.real_engines --work FOLDER: starts each server by its recipe (tests/real), climbs a
ladder on it, fires the same plans at each of its variants, simulates them with the profile fitted to that
ladder, and writes the report. Every run stays in FOLDER, and a later call measures only what is not there;
`--only-report` measures nothing. `--quick` is for trying: one seed and few requests.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from loadgen import api, drive, ladder
from loadgen.client.control import Counters, Stop
from loadgen.client.loop import on_loop
from loadgen.client.preflight import preflighted
from loadgen.engine.fit import Fit, fit, read
from loadgen.run import Run
from loadgen.run_folder import load as run_in
from loadgen.scenario import Scenario, build
from loadgen.stats import summarize
from loadgen.target import Target
from loadgen.workload import draw
from tests.bench.machine import load_average
from tests.real import llama_cpp, transformers_serve, vllm
from tests.real.installed import missing
from tests.real.server import Server, free_port, started

SEEDS = (1, 2, 3)
MEAN_TOKENS, CAP_TOKENS, PROMPT_TOKENS = 48, 192, 32
SIZE = "mid"  # 144 million weights
EXPONENTIAL = {"kind": "truncated_exponential", "mean": MEAN_TOKENS, "cap": CAP_TOKENS}

Start = Callable[[Path], AbstractContextManager[Server]]


@dataclass(frozen=True)
class Cell:
    """A load. `per_s`: requests a second, Poisson; None: all at once."""

    name: str
    says: str
    requests: int
    per_s: float | None = None
    output: Mapping[str, Any] | int = field(default_factory=lambda: EXPONENTIAL)

    def load(self, *, quick: bool) -> dict[str, Any]:
        arrivals = {"kind": "poisson", "rate": self.per_s} if self.per_s else {"kind": "burst"}
        n = max(4, self.requests // 4) if quick else self.requests
        lengths = {"prompt_tokens": PROMPT_TOKENS, "output_tokens": self.output}
        return {"arrivals": arrivals, "num_requests": n, "tail": False, **lengths}


QUEUE = Cell("queue-exponential", "a full queue, exponential answers", 40)
QUEUE_FIXED = Cell("queue-fixed", "a full queue, answers of one length", 40, output=MEAN_TOKENS)
LOW = Cell("low-exponential", "low load, exponential answers", 8, 0.5)
LOW_FIXED = Cell("low-fixed", "low load, answers of one length", 8, 0.5, MEAN_TOKENS)
FEW = Cell(
    "queue-exponential",
    "a full queue, exponential answers (mean 16)",
    8,
    output=EXPONENTIAL | {"mean": 16, "cap": 48},
)
OVER = Cell("over-exponential", "more than can be served, exponential answers", 180, 20.0)


@dataclass(frozen=True)
class Variant:
    """One way to run a server. `knobs`: of the bundled engine that is to foretell it. `s`: about what a cell
    takes, by its name; only those cells are run. `levels`: of a ladder of its own.
    """

    name: str
    start: Start
    knobs: Mapping[str, Any]
    s: Mapping[str, float]
    levels: tuple[int, ...] = ()


@dataclass(frozen=True)
class Engine:
    """A server and its variants. The first is the baseline of ratios; `profile`: whose ladder tells of all
    that have none. `start_s`: until it answers. `prompts`, `ladder_tokens`: the ladder's prompts
    and answers.
    """

    name: str
    title: str
    variants: tuple[Variant, ...]
    cells: tuple[Cell, ...]
    profile: str
    start_s: float
    missing: Callable[[], str | None]
    prompts: tuple[int, ...] = (16, 64, 256)
    ladder_tokens: int = 96

    def variant(self, name: str) -> Variant:
        return next(each for each in self.variants if each.name == name)


# --- the servers --------------------------------------------------------------------------------------------

_BATCHED: dict[str, Any] = {"batching": "continuous", "prefill_chunk": None, "token_budget": 2048}
_IN_TURN = _BATCHED | {"max_sequences": 1}


def _llama(continuous: bool) -> Start:
    return lambda folder: llama_cpp.llama_cpp(folder, slots=8, continuous=continuous, size=SIZE)


def _vllm(*flags: str) -> Start:
    return lambda folder: vllm.vllm(folder, "--max-model-len", "2048", *flags, size=SIZE)


def _transformers(*flags: str) -> Start:
    return lambda folder: transformers_serve.transformers_serve(folder, *flags, size=SIZE)


def _torch(knobs: Mapping[str, Any]) -> Start:
    @contextmanager
    def serving(folder: Path) -> Iterator[Server]:
        """Our own schedulers before a real model. LOADGEN_REAL_TORCH: a Python that has torch and loadgen."""
        port, python = free_port(), _python_with_torch()
        engine = json.dumps({"model": "torch:llama-144m", **knobs})
        command = [python, "-m", "loadgen", "serve", "--port", port, "--attached", "--engine", engine]
        env = {"OMP_NUM_THREADS": "1"}
        with started(command, port, "torch", folder=folder, limit_s=120, env=env) as server:
            yield server

    return serving


def _no_torch() -> str | None:
    python = _python_with_torch()
    found = subprocess.run([python, "-c", "import torch, loadgen"], capture_output=True, check=False)
    return None if found.returncode == 0 else f"no torch beside loadgen in {python}: see LOADGEN_REAL_TORCH"


def _python_with_torch() -> str:
    return os.environ.get("LOADGEN_REAL_TORCH", sys.executable)


_STATIC = {"batching": "static", "max_sequences": 8}
_LLAMA_STATIC = _STATIC | {"max_wait": "0s", "pad": "none"}
_TORCH: dict[str, dict[str, Any]] = {
    "static": _STATIC,
    "dynamic": _STATIC | {"batching": "dynamic"},
    "continuous": _BATCHED | {"max_sequences": 8},
    "chunked": _BATCHED | {"max_sequences": 8, "prefill_chunk": 16, "token_budget": 24},
}
_TORCH_S = {
    "static": {QUEUE.name: 20.0, QUEUE_FIXED.name: 13.0, LOW.name: 18.0, LOW_FIXED.name: 18.0},
    "dynamic": {QUEUE.name: 20.0, LOW.name: 18.0},
    "continuous": {QUEUE.name: 13.0, QUEUE_FIXED.name: 13.0, LOW.name: 18.0, LOW_FIXED.name: 18.0},
    "chunked": {QUEUE.name: 13.0},
}
_LLAMA_S = {QUEUE.name: 25.0, QUEUE_FIXED.name: 23.0, LOW.name: 18.0, LOW_FIXED.name: 18.0}
_LEVELS = (1, 2, 4, 8)

ENGINES = (
    Engine(
        "llama.cpp",
        "llama.cpp's server, 8 slots, f16, one thread",
        (
            Variant("static", _llama(continuous=False), _LLAMA_STATIC, _LLAMA_S),
            Variant(
                "continuous", _llama(continuous=True), _BATCHED | {"max_sequences": 8}, _LLAMA_S, _LEVELS
            ),
        ),
        (QUEUE, QUEUE_FIXED, LOW, LOW_FIXED),
        "continuous",
        3.0,
        llama_cpp.missing,
    ),
    Engine(
        "torch",
        "our own schedulers before a real model, 8 slots, bf16, one thread",
        tuple(
            Variant(name, _torch(knobs), knobs, _TORCH_S[name], _LEVELS if name == "continuous" else ())
            for name, knobs in _TORCH.items()
        ),
        (QUEUE, QUEUE_FIXED, LOW, LOW_FIXED),
        "continuous",
        8.0,
        _no_torch,
    ),
    Engine(
        "vllm",
        "vLLM, bf16, one core of its own",
        (
            Variant("one at a time", _vllm("--max-num-seqs", "1"), _IN_TURN, {QUEUE.name: 35.0}),
            Variant(
                "16 at once",
                _vllm("--max-num-seqs", "16"),
                _BATCHED | {"max_sequences": 16},
                {QUEUE.name: 8.0, OVER.name: 16.0},
                (*_LEVELS, 16),
            ),
            Variant(
                "16 at once, queue of 8",
                _vllm("--max-num-seqs", "16", "--max-num-queued-reqs", "24"),
                _BATCHED | {"max_sequences": 16, "max_queue": 8},
                {OVER.name: 16.0},
            ),
        ),
        (QUEUE, OVER),
        "16 at once",
        40.0,
        lambda: missing("vllm"),
    ),
    Engine(
        "transformers",
        "transformers serve, one thread",
        (
            Variant("one at a time", _transformers(), _IN_TURN, {FEW.name: 25.0}, (1,)),
            Variant(
                "continuous",
                _transformers("--continuous-batching"),
                _BATCHED | {"max_sequences": 16},
                {FEW.name: 6.0},
                _LEVELS,
            ),
        ),
        (FEW,),
        "continuous",
        20.0,
        lambda: missing("transformers"),
        prompts=(16, 64),
        ladder_tokens=32,
    ),
)


# --- measuring ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bench:
    """Where runs are kept, and how many there are to be."""

    work: Path
    quick: bool

    @property
    def seeds(self) -> tuple[int, ...]:
        return SEEDS[:1] if self.quick else SEEDS

    def scenario(self, cell: Cell, seed: int, **side: Any) -> Scenario:
        return build({"name": cell.name, "seed": seed, "load": cell.load(quick=self.quick), **side})

    def folder(self, engine: Engine, variant: Variant, cell: Cell, seed: int) -> Path:
        return self.work / engine.name / variant.name.replace(" ", "-") / f"{cell.name}-{seed}"

    def has(self, engine: Engine, variant: Variant, cell: Cell, seed: int) -> bool:
        """Whether the run is kept. Raises SystemExit where what is kept is of another plan."""
        folder = self.folder(engine, variant, cell, seed)
        if not folder.is_dir():
            return False
        if run_in(folder).header.plan_digest != draw(self.scenario(cell, seed)).digest():
            raise SystemExit(f"{folder} holds a run of another plan: name another folder with --work")
        return True

    def profile(self, engine: Engine, variant: Variant) -> Path:
        """The steps that tell of the variant."""
        whose = variant if variant.levels else engine.variant(engine.profile)
        return self.work / engine.name / whose.name.replace(" ", "-") / "steps.csv"

    def cells(self, engine: Engine, variant: Variant) -> Iterator[Cell]:
        return (cell for cell in engine.cells if cell.name in variant.s)

    def estimate_s(self, engine: Engine) -> float:
        share, starts = (0.3 if self.quick else 1.0), len(self.order(engine))
        cells = sum(sum(variant.s.values()) for variant in engine.variants) * len(self.seeds)
        ladders = sum(10.0 * len(variant.levels) for variant in engine.variants)
        return engine.start_s * starts + share * (cells + ladders)

    def order(self, engine: Engine) -> list[tuple[Variant, tuple[int, ...]]]:
        """Who runs when: there and back again, so that what drifts meets all of them. Who is last in one
        round and first in the next goes on without a new start.
        """
        turns: list[tuple[Variant, tuple[int, ...]]] = []
        for place, seed in enumerate(self.seeds):
            for variant in engine.variants if place % 2 == 0 else engine.variants[::-1]:
                if turns and turns[-1][0] is variant:
                    turns[-1] = (variant, (*turns[-1][1], seed))
                else:
                    turns.append((variant, (seed,)))
        return turns


def measure(bench: Bench, engine: Engine) -> None:
    for variant, seeds in bench.order(engine):
        todo = [
            (cell, seed)
            for seed in seeds
            for cell in bench.cells(engine, variant)
            if not bench.has(engine, variant, cell, seed)
        ]
        climbs = bool(variant.levels) and not bench.profile(engine, variant).is_file()
        if not (todo or climbs):
            continue
        with variant.start(bench.work / engine.name / "server") as server:
            client = reach(server)
            client(warm_up(), None)  # some servers' first answers take seconds: they are no part of any run
            if climbs:
                climb(bench, engine, variant, client)
            for cell, seed in todo:
                load = load_average()
                done = client(bench.scenario(cell, seed), bench.folder(engine, variant, cell, seed))
                say(f"{engine.name}, {variant.name}, {cell.name}, {seed}: {told(done)}, load {load}")


Client = Callable[[Scenario, Path | None], Run]
"""Fires a scenario, and keeps its run in a folder, if told."""


def warm_up() -> Scenario:
    load = {
        "arrivals": {"kind": "burst"},
        "num_requests": 2,
        "prompt_tokens": PROMPT_TOKENS,
        "output_tokens": 8,
    }
    return build({"name": "warm-up", "load": load})


def reach(server: Server) -> Client:
    """A client of `server`, which is looked at once."""
    target = Target(base_url=server.url)
    first = warm_up()
    found = on_loop(preflighted(first, draw(first), target, None))
    assert found is not None

    def fire(scenario: Scenario, folder: Path | None) -> Run:
        with TemporaryDirectory(dir=folder and _made(folder.parent)) as scratch:
            half = Path(scratch) / "run"  # one that breaks is not taken for whole
            asked = scenario.model_copy(update={"target": target})
            order = drive.Order(asked, draw(asked), half, drive.new_run_id(asked.name))
            fired = drive.fire(order, target, preflight=found, api_key=None, counters=Counters(), stop=Stop())
            done = on_loop(fired)
            drive.conclude(done, half)
            if folder is not None:
                half.rename(folder)
        return done

    return fire


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def told(done: Run) -> str:
    s = summarize(done)
    outcomes = ", ".join(f"{n} {outcome}" for outcome, n in s.outcomes.items())
    rate, makespan_s = s.makespan_output_tokens_per_s or 0.0, s.makespan_s or 0.0
    return f"{s.validity}, {outcomes}, {rate:.0f} tokens/s in {makespan_s:.0f} s"


def climb(bench: Bench, engine: Engine, variant: Variant, client: Client) -> None:
    file = bench.profile(engine, variant)
    half = file.parent / f"ladder-{time.time_ns()}"
    rungs = ladder.climb(
        build({"name": "ladder", "load": LOW.load(quick=True)}),
        lambda scenario, name: client(scenario, half / name),
        levels=variant.levels,
        prompt_tokens=PROMPT_TOKENS,
        output_tokens=engine.ladder_tokens,
        prompts=engine.prompts,
    )
    rows = []
    for rung in rungs:
        of = f"{engine.name}, {variant.name}: {rung.of}"
        say(f"{of}: {1e3 * rung.mean_s:.1f} ms a step" if rung.rows else f"{of}: {rung.why_not}")
        rows += rung.rows
    file.write_text(ladder.as_csv(rows))


def foretold(bench: Bench, engine: Engine, variant: Variant, cell: Cell, seed: int) -> Run:
    """The same plan on the bundled engine in virtual time, with the profile of that very server."""
    cost = fitted(bench, engine, variant).cost.model_dump(mode="json", by_alias=True)
    return api.simulate(bench.scenario(cell, seed, engine={**variant.knobs, "cost": cost}))


def fitted(bench: Bench, engine: Engine, variant: Variant) -> Fit:
    return fit(read(bench.profile(engine, variant)))


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    from tests.bench.real_report import write

    words = argparse.ArgumentParser(prog="python -m tests.bench.real_engines", description=__doc__)
    names = [engine.name for engine in ENGINES]
    words.add_argument("--work", type=Path, required=True, help="the folder that keeps every run")
    words.add_argument("--only-report", action="store_true", help="measure nothing")
    words.add_argument("--quick", action="store_true", help="one seed and few requests, for trying")
    words.add_argument("--engines", nargs="+", choices=names, default=names, help="only these are measured")
    words.add_argument("--report", type=Path, default=Path("reports/real-engines"), help="(%(default)s)")
    asked = words.parse_args()
    bench = Bench(asked.work.resolve(), asked.quick)
    there = [engine for engine in ENGINES if engine.name in asked.engines]
    if not asked.only_report:
        for engine in there:
            say(f"{engine.name}: " + (engine.missing() or f"about {bench.estimate_s(engine) / 60:.0f} min"))
        for engine in there:
            if engine.missing() is None:
                measure(bench, engine)
    write(bench, asked.report)


if __name__ == "__main__":
    main()
