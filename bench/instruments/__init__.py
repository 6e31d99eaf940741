"""Shared code of benchmarks and tests: synthetic models, worlds and inputs, processes, clocks and rates.

Knows nothing of the tests, and none of the benchmark programs.
"""
