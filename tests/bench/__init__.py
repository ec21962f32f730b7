"""Benchmarks: run by hand, on a machine that is left alone, never pass or fail. See README.md beside this."""
