"""What benchmarks and tests share: made-up models, worlds and inputs, processes, clocks and rates.

Knows nothing of the tests, and none of the programs beside it.
"""
