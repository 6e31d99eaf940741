"""Fuzzes all readers of external input with random and mutated data.

Usage: `python -m bench.fuzz [N] [READER ...]`, by default with a million inputs for each reader, which takes hours.
"""

from __future__ import annotations

import sys

from bench.instruments.fuzz import fuzz, mutate, read_header, read_registry
from bench.instruments.fuzzed import READERS
from bench.instruments.header import sample
from bench.instruments.hub_client import ask_once
from bench.instruments.timing import report
from runtime.conversation import chat_template
from runtime.models.hub import fetch


def main() -> None:
    """Print the outcomes by reader."""
    n, whole = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000, sample()
    readers = {"GGUF header": lambda rng: read_header(mutate(whole, rng), rng), "registry": read_registry} | READERS
    chat_template.SECONDS, fetch.PAUSE = 0.5, 0.0
    ask_once()  # a retry would get the same answer
    results = {name: fuzz(readers[name], n) for name in sys.argv[2:] or readers}
    rows = [
        [name, f"{outcomes['read']:,}", f"{outcomes['refused']:,}", f"{1e3 * slowest:.1f}"]
        for name, (outcomes, slowest) in results.items()
    ]
    report(
        "fuzz",
        ["reader", "read", "refused", "slowest, ms"],
        rows,
        {name: dict(outcomes) for name, (outcomes, _) in results.items()},
    )


if __name__ == "__main__":
    main()
