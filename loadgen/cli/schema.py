"""`loadgen schema`: what a scenario's YAML may hold, for an editor."""

from __future__ import annotations


def schema() -> None:
    """Print the JSON Schema of a scenario, for editors.

    Keep it in a file, loadgen schema > loadgen.schema.json, and name that in a scenario's first line:

    # yaml-language-server: $schema=loadgen.schema.json
    """
    import json

    from loadgen.cli.words import Words
    from loadgen.schema import schema as made

    Words().document(json.dumps(made(), indent=1, ensure_ascii=False))
