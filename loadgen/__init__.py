"""Open-loop load tester for streaming LLM servers."""

__version__ = "0.1.0"
