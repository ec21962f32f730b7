"""Did every address of a name have its share of the load?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import sqrt

from loadgen.health import Health
from loadgen.run import Run
from loadgen.stats.summary import Finding

_BY_CHANCE = 4.0  # standard deviations of a count: one in 16,000


def findings(run: Run) -> Iterator[Finding]:
    """Of what kept requests from the server that they were meant for."""
    faults = (run.header.health or Health()).address_faults
    if faults:
        yield Finding(
            name="addresses",
            effect="warning",
            text="; ".join(f"{address}: {fault}" for address, fault in faults.items()),
            remedy="what is measured are the other addresses of the name: see to it, and run again",
        )
    yield from _uneven(run)


def _uneven(run: Run) -> Iterator[Finding]:
    """Requests go to the addresses of a name by turns: where one has fewer, another stood in for it.

    Not judged where whole sessions do, which have turns as it happens, or where that is left to chance.
    """
    r = run.records
    if run.asked("target", "balance") != "round_robin" or run.asked("target", "more_urls") or any(r.session):
        return
    shares = Counter(name for name, counts in zip(r.target, r.offered, strict=True) if counts and name)
    total = shares.total()
    even = total / max(1, len(shares))
    if shares and max(abs(n - even) for n in shares.values()) > _BY_CHANCE * sqrt(even):
        words = ", ".join(f"{name} {n / total:.0%}" for name, n in shares.most_common())
        yield Finding(
            name="uneven",
            effect="warning",
            text=f"requests were not spread evenly over the addresses of the name: {words}",
            remedy="the figures are those of an uneven load: see which addresses failed, and run again",
        )
