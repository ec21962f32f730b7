"""`python -m loadgen` and the console script `loadgen`."""

from __future__ import annotations


def main() -> None:
    import signal

    from loadgen.cli import main as cli_main

    try:
        cli_main()
    finally:  # a signal that comes as we end changes no exit code
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)


if __name__ == "__main__":
    main()
