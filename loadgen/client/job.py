"""All that a run over HTTP is to do, and one process's share of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from loadgen.client.control import Counters, Peers, Stop
from loadgen.client.running import run
from loadgen.health import Health
from loadgen.plan import Plan
from loadgen.records import RequestRecord
from loadgen.scenario import Scenario
from loadgen.target import Target
from loadgen.terms import AS_ASKED, Terms
from loadgen.workload.prompts import prompt_maker
from loadgen.workload.words import WordTokens


@dataclass(frozen=True, slots=True)
class Share:
    """The `k`-th of `of` shards."""

    k: int = 0
    of: int = 1

    def split(self, parts: int) -> list[Share]:
        """So many, which together are this one."""
        return [Share(self.k + self.of * part, self.of * parts) for part in range(parts)]


@dataclass(frozen=True, slots=True)
class Job:
    """A plan, to whom it goes and how, and the folder that its records go to.

    `last_planned`: the index of the plan's last row; its tail's are above.
    """

    plan: Plan
    scenario: Scenario
    target: Target
    model: str | None
    api_key: str | None = field(repr=False)
    run_id: str
    salt: str
    words: WordTokens | None
    folder: Path
    last_planned: int
    terms: Terms = AS_ASKED

    async def run(
        self,
        share: Share,
        *,
        on_start: Callable[[int], None],
        append: Callable[[RequestRecord], None],
        counters: Counters,
        stop: Stop,
        peers: Peers | None = None,
    ) -> Health:
        """One process's share, in this process."""

        def ended(record: RequestRecord) -> None:
            record.worker = None if share.of == 1 else share.k
            counters.planned += record.index <= self.last_planned and record.started_s is not None
            append(record)

        return await run(
            self.plan.shard(share.k, share.of),
            self._with_warm(len(range(share.k, self.scenario.client.warm, share.of))),
            self.target,
            model=self.model,
            api_key=self.api_key,
            terms=self.terms,
            run_id=self.run_id,
            prompt=prompt_maker(self.plan.prompts, self.salt, words=self.words),
            on_start=on_start,
            on_record=ended,
            counters=counters,
            stop=stop,
            peers=peers,
            processes=share.of,
        )

    def _with_warm(self, warm: int) -> Scenario:
        client = self.scenario.client.model_copy(update={"warm": warm})
        return self.scenario.model_copy(update={"client": client})
