"""Benchmarks: each prints a table and then one JSON line. Speed is measured here, never in the tests."""
