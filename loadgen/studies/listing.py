"""Which studies there are. Their modules are heavy, and are imported when one is made."""

from __future__ import annotations

from importlib import import_module
from typing import NamedTuple

from loadgen.report.tables import Column, Table
from loadgen.scenario import ScenarioError
from loadgen.studies.study import Study


class Listed(NamedTuple):
    """`seconds`: what it takes on one core, about."""

    name: str
    question: str
    seconds: int

    def make(self) -> Study:
        made: Study = import_module(f"loadgen.studies.{self.name.replace('-', '_')}").study()
        return made


STUDIES = (
    Listed("static-vs-continuous", "What does continuous batching gain over static batching, and when?", 20),
    Listed("anyscale-2023", "What is in the 23x of Anyscale's benchmark, policy and handicaps apart?", 16),
    Listed("orca-2022", "What is in Orca's 36.9x over FasterTransformer?", 19),
    Listed("vllm-2023", "How much more runs at once when KV memory is paged, and what does it bear?", 39),
    Listed("sarathi-2024", "What do chunked prompts buy under a limit on the time between tokens?", 7),
    Listed("distserve", "What is the goodput under DistServe's limits, in both senses of the word?", 29),
    Listed("preemption-tail", "What does preemption do to the tail: recompute, swap, ideal?", 23),
    Listed("admission", "What do bounded queues and cautious admission buy, and what do they refuse?", 25),
    Listed("chunk-size", "Which chunk size trades TTFT against the time between tokens, and how?", 14),
    Listed("prefill-vs-decode-priority", "Who pays when prompts go first, and who when decodes do?", 9),
    Listed("overload", "What does each policy do past capacity?", 17),
)


def of_name(name: str) -> Listed:
    """The study of that name. Raises ScenarioError where there is none."""
    for each in STUDIES:
        if each.name == name:
            return each
    known = ", ".join(each.name for each in STUDIES)
    raise ScenarioError(f"reproduce: no study is named {name[:60]!r}; there are {known}")


def listed() -> Table:
    """All of them."""
    columns = [Column("name", "label"), Column("question", "words"), Column("takes, s", drop=1)]
    rows = [[each.name, each.question, str(each.seconds)] for each in STUDIES]
    return Table("Studies: loadgen reproduce NAME", columns, rows, ["Every figure of ours is SIMULATED."])
