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
    Listed(
        "static-vs-continuous",
        "How much does continuous batching gain over static batching on the same engine, and why?",
        20,
    ),
    Listed(
        "anyscale-2023",
        "How much of Anyscale's 23x (vLLM over Hugging Face in static batches of 4, padded to the longest of "
        "the run; OPT-13B, A100-40GB, cap 1536, prompt and output tokens/s) comes of the batching policy?",
        16,
    ),
    Listed(
        "orca-2022",
        "What does Orca's 36.9x over FasterTransformer (requests/s at a median of 190 ms/token, GPT-3 of "
        "175B, 16 A100-40GB) hang on?",
        24,
    ),
    Listed("vllm-2023", "How much more runs at once, and is borne, when KV memory is paged?", 52),
    Listed("sarathi-2024", "What do chunks of prompts beside decodes buy, and which chunk?", 25),
    Listed("distserve", "What rate is borne under DistServe's limits, and what does goodput hide?", 47),
    Listed(
        "preemption-tail",
        "What does running out of KV memory do to the tail, and does it matter how one comes back?",
        36,
    ),
    Listed("admission", "What does it buy to turn requests away, and to admit only what is sure to fit?", 48),
    Listed("chunk-size", "How many tokens should a step have, if prompts are cut to fit in it?", 14),
    Listed(
        "prefill-vs-decode-priority", "Who pays when prompts go first in a step, and who when decodes do?", 9
    ),
    Listed("overload", "More arrives than can be served: who waits, who leaves, what is wasted?", 18),
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
