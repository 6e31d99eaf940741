"""Drafting for edited copies of files, with scripted replies and pass times.

Usage: `python -m bench.edits [MODEL]`. Twelve edits of real files are generated token by token by a scripted target, so
no model runs. Drafters, controller and verification are the real ones, and passes cost as much as with Qwen2.5-Coder
1.5B in Q4_K_M on two cores. Prints for each edit the acceptance rate, tokens per pass, and speed relative to plain
decode: with the file as a prediction (`prediction`), and with the file in the prompt alone (`ngram`). The vocabulary is
that of the bundled pair, or of MODEL.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

from bench.instruments.known_text import Copied, Machine, copied
from bench.instruments.texts import Edit, edits
from bench.instruments.timing import report
from runtime.backends.model import LlamaModel
from runtime.drafters.ngram import NgramDrafter
from runtime.drafters.prediction import PredictionDrafter
from runtime.models.registry import load_registry

TIMES = {1: 1.0, 2: 1.9, 3: 2.57, 4: 2.78, 6: 3.9, 8: 5.9, 12: 7.0, 16: 6.74, 20: 8.9, 32: 12.1}  # relative, by rows
MACHINE = Machine({rows: 0.0309 * times for rows, times in TIMES.items()})
COLUMNS = [
    "edit",
    "tokens",
    *(f"{way}{what}" for way in ("given: ", "in the prompt: ") for what in ("right", "per pass", "times plain")),
]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", type=Path, help="a file whose vocabulary is used")
    path = parser.parse_args().model or load_registry()["demo"].target
    vocab = LlamaModel(path).vocab
    given, prompted = MACHINE.decoder(PredictionDrafter()), MACHINE.decoder(NgramDrafter())

    def both(edit: Edit) -> tuple[Copied, Copied]:
        before, after = (vocab.encode(text, special=False) for text in (edit.before, edit.after))
        prompt = [*vocab.encode(f"{edit.instruction}\n\n```python\n", special=False), *before]
        return copied(given, MACHINE, prompt, after, before), copied(prompted, MACHINE, prompt, after)

    found = {name: both(edit) for name, edit in edits().items()}
    rows = [[name, str(ways[0].n), *ways[0].cells, *ways[1].cells] for name, ways in found.items()]
    medians: dict[str, object] = {
        name: round(statistics.median(ways[i].times for ways in found.values()), 3)
        for i, name in enumerate(("given", "in the prompt"))
    }
    report(f"edits in words of {path.stem}", COLUMNS, rows, medians)


if __name__ == "__main__":
    main()
