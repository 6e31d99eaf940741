"""Benchmarks: each prints a table and ends in one JSON line. Timed here, never in the tests."""
