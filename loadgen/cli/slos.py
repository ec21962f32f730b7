"""`loadgen slos`: the named sets of SLOs."""

from __future__ import annotations

from loadgen.cli import options


def slos(as_json: options.AsJson = False) -> None:
    """List the SLOs that others published, by name.

    --slo takes such a name, and so does a scenario among its slos: loadgen run FILE --slo NAME
    """
    import json

    from loadgen.cli.words import Words
    from loadgen.report.slo_view import sets
    from loadgen.report.terminal import print_tables
    from loadgen.slo_sets import SETS

    words = Words(as_json)
    print_tables([sets()], words.results)
    if as_json:
        words.document(json.dumps({name: one._asdict() for name, one in SETS.items()}, indent=1))
