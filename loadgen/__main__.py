"""`python -m loadgen` and the console script `loadgen`."""

from __future__ import annotations


def main() -> None:
    from loadgen.cli import main as cli_main

    cli_main()


if __name__ == "__main__":
    main()
