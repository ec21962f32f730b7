"""`loadgen slos`: the named sets of SLOs."""

from __future__ import annotations

from functools import partial

from loadgen.cli import options


def slos(as_json: options.AsJson = False) -> None:
    """List the SLOs that others published, by name.

    --slo takes such a name, and so does a scenario among its slos: loadgen run FILE --slo NAME
    """
    from loadgen.cli.words import Words
    from loadgen.report.slo_view import sets
    from loadgen.report.terminal import print_tables
    from loadgen.slo_sets import SETS

    named = {name: one._asdict() for name, one in SETS.items()}
    Words(as_json).show(partial(print_tables, [sets()]), named)
