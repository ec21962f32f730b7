"""Benchmarks: run by hand, on a machine that is left alone, never as a test.

python -m tests.bench.virtual [REQUESTS]
python -m tests.bench.served
"""
