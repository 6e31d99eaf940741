"""Faults that a developer could make, planted one by one: each must be caught by a test that runs by default.

`NN-name.patch` is a small change for `git apply`. Its head says in a sentence what it breaks, then which tests catch
it, each after `Caught-by: `. `python -m tests.planted_faults` plants them in a copy of the present tree.
"""
