"""Does the gate go red when it should, and only then? On simulated engines that differ from run to run.

python -m tests.bench.gate [TRIALS]: so many (500) sets of five baselines and a candidate of the same engine;
the first 100 also get candidates whose steps are 2 % and 10 % slower, of which one is judged, and three
together. Each run has its own noise: 5 % on each step, 2 % that wanders, and a factor for the whole run of
2 %. What a change of the step time does to each figure is taken from runs thirty times as long, without that
factor.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path

from loadgen.engine import simulate
from loadgen.order import Order
from loadgen.plan import Plan
from loadgen.records import Records
from loadgen.run import Run
from loadgen.scenario import Scenario, build
from loadgen.stats import summarize
from loadgen.stats.change import Change, changes
from loadgen.stats.figures import METRICS, Tolerance
from loadgen.stats.sample import Sample, sample
from loadgen.workload import draw
from tests.bench.machine import load_average

BASELINES, CHANGED = 5, 100
Case = tuple[float, int]  # how much slower the candidate's steps are, and how often it is run
SAME: Case = (0.0, 1)
CASES: tuple[Case, ...] = (SAME, (0.02, 1), (0.02, 3), (0.1, 1), (0.1, 3))
REQUESTS, LONG = 2000, 60_000
TOLERANCE = 0.05
_TOLERANCES = {name: Tolerance(relative=TOLERANCE) for name, m in METRICS.items() if m.unit != "share"}


def scenario(
    seed: int, noise_seed: int, slower: float = 0.0, requests: int = REQUESTS, run: float = 0.02
) -> Scenario:
    """15 requests/s where the engine can do 25: a load of 0.6. `seed` is the plan's."""
    cost = {"kind": "fixed", "step": f"{20 * (1 + slower):g}ms", "per_token": f"{30 * (1 + slower):g}us"}
    jitter = {"step": 0.05, "drift": 0.02, "run": run}
    return build(
        {
            "seed": seed,
            "engine": {"cost": cost, "max_sequences": 64, "jitter": jitter, "seed": noise_seed},
            "load": {
                "arrivals": {"kind": "poisson", "rate": 15},
                "num_requests": requests,
                "warmup": "20s",
                "output_tokens": {"kind": "truncated_exponential", "mean": 100, "cap": 400},
            },
        }
    )


def taken(asked: Scenario, plan: Plan) -> Sample:
    """What a gate is given of the scenario's run in virtual time."""
    records = Records.from_records(simulate(plan, asked.engine, run_id="run"))
    header = Order(asked, plan, Path(), "run").header("virtual", "bundled engine", None)
    header.complete, header.rows_due, header.rows_not_sent = True, len(records), 0
    run = Run(header, records)
    return sample(run, summarize(run))


def trial(number: int, cases: Iterable[Case]) -> dict[Case, list[Change]]:
    """What the gate says of the candidates of each case, by the same five baselines."""
    plan = draw(scenario(number, 0))
    seeds = iter(range(1000 * (number + 1), 1000 * (number + 2)))
    before = [taken(scenario(number, next(seeds)), plan) for _ in range(BASELINES)]
    found = {}
    for slower, runs in cases:
        after = [taken(scenario(number, next(seeds), slower), plan) for _ in range(runs)]
        found[slower, runs] = changes(before, after, tolerances=_TOLERANCES)
    return found


@cache
def truth(slower: float) -> dict[str, float | None]:
    """What so much slower steps do to each figure, in two very long runs of one plan."""
    plan = draw(scenario(0, 0, requests=LONG))
    same, other = (taken(scenario(0, 1, share, LONG, run=0.0), plan) for share in (0.0, slower))
    return {change.metric: change.change for change in changes([same], [other], noise=0.0)}


def counted(found: list[list[Change]]) -> dict[str, Counter[str]]:
    """The verdicts on each metric, and on all together."""
    verdicts: dict[str, Counter[str]] = {"overall": Counter(overall(one) for one in found)}
    for one in found:
        for change in one:
            verdicts.setdefault(change.metric, Counter())[change.verdict] += 1
    return verdicts


def overall(found: list[Change]) -> str:
    said = {change.verdict for change in found}
    return next(verdict for verdict in ("INVALID", "FAIL", "UNRESOLVED", "PASS") if verdict in said)


def table(case: Case, found: list[list[Change]]) -> Iterator[str]:
    slower, runs = case
    true = truth(slower) if slower else {}
    yield f"steps {slower:.0%} slower, {runs} of them, {len(found)} trials, tolerance {TOLERANCE:.0%}"
    yield f"  {'metric':<22}{'true change':>12}{'FAIL':>6}{'UNRESOLVED':>12}{'PASS':>6}  wrong"
    for name, verdicts in counted(found).items():
        change = true.get(name, 0.0)
        told = "" if name == "overall" else f"{change:.1%}"
        yield (
            f"  {name:<22}{told:>12}{verdicts['FAIL']:>6}{verdicts['UNRESOLVED']:>12}{verdicts['PASS']:>6}"
            f"  {_wrong(name, change, verdicts)}"
        )


def _wrong(name: str, change: float | None, verdicts: Counter[str]) -> str:
    if name == "overall" or change is None:
        return ""
    if change <= TOLERANCE:
        return f"{verdicts['FAIL']} false" if verdicts["FAIL"] else ""
    return f"{verdicts['PASS']} missed" if change > 1.5 * TOLERANCE and verdicts["PASS"] else ""


def _one(number: int) -> dict[Case, list[Change]]:
    return trial(number, CASES if number < CHANGED else [SAME])


def main(trials: int) -> None:
    with ProcessPoolExecutor() as pool:
        found = list(pool.map(_one, range(trials), chunksize=5))
    for case in CASES:
        print("\n".join(table(case, [one[case] for one in found if case in one])))
    print(f"load {load_average()}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 500)
