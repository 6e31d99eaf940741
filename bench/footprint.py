"""What models take in memory against what is estimated from their headers: `python -m bench.footprint --shapes 135m
360m`.

Each shape is written with random weights, quantized, and loaded in a process of its own, which decodes one full batch
and says by how much its resident memory grew. Wanted: every estimate within 10%.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.timing import report
from runtime.backends import library
from runtime.memory.footprint import ContextSpec
from runtime.memory.pressure import MIB
from tests.support.elsewhere import elsewhere
from tests.support.footprint import CACHES, N_CTX, Case, measured
from tests.support.shapes import FILE_TYPES, LLAMA_1B, LLAMA_3B, SMOL_135M, TINY, Shape, requantize, write_random

SHAPES = {
    "135m": SMOL_135M,
    "360m": Shape(width=960, layers=32, heads=15, kv_heads=5, ffn=2560, vocab=49_152),
    "500m": Shape(width=896, layers=24, heads=14, kv_heads=2, ffn=4864, vocab=151_936),
    "1b": LLAMA_1B,
    "1.7b": Shape(width=2048, layers=24, heads=32, kv_heads=32, ffn=8192, vocab=49_152),
    "3b": LLAMA_3B,
}
QUANTS = "Q8_0", "Q4_0", "Q4_K_M"


def cases(folder: Path, shapes: list[str], quants: list[str], n_batch: int) -> Iterator[Case]:
    """One after another, so that only one shape's files are there at a time."""
    for shape in shapes:
        source = write_random(folder / f"{shape}.gguf", SHAPES[shape])
        for quant in quants:
            path = (
                source if quant == "Q8_0" else requantize(source, FILE_TYPES[quant], folder / f"{shape}-{quant}.gguf")
            )
            for cache in CACHES:
                yield Case(
                    f"{shape} {quant}, cache {'/'.join(cache)}",
                    path,
                    ContextSpec(N_CTX, cache, n_rows=9, n_batch=n_batch, repacks=True),
                )
            if path != source:
                path.unlink()
        source.unlink()


def main() -> None:
    """Every shape, quantization and cache type asked for."""
    parser = argparse.ArgumentParser(description="Memory that models take, against what their headers promise.")
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--quants", nargs="+", choices=QUANTS, default=list(QUANTS))
    parser.add_argument(
        "--batch", type=int, default=512, help="rows of a batch: fewer for large models on a slow machine"
    )
    args = parser.parse_args()
    library.start()  # quantizing is not talked about
    rows, errors = [], {}
    with tempfile.TemporaryDirectory() as folder:
        tiny = write_random(Path(folder) / "tiny.gguf", TINY)
        for case in cases(Path(folder), args.shapes, args.quants, args.batch):
            expected, found = case.footprint(), elsewhere(measured, tiny, case)
            errors[case.name] = round(case.estimated() / found - 1, 4)
            parts = (
                expected.weights,
                expected.repacked,
                expected.cache,
                expected.compute,
                expected.words,
                case.estimated(),
                found,
            )
            rows.append([case.name, *(f"{part / MIB:,.1f}" for part in parts), f"{errors[case.name]:+.1%}"])
            print(" | ".join(rows[-1]), flush=True)
    columns = ["model", "weights", "repacked", "cache", "compute", "words", "estimated", "measured", "error"]
    report(
        f"footprint in MiB, {N_CTX} tokens of context",
        columns,
        rows,
        {"errors": errors, "worst": max(map(abs, errors.values()))},
    )


if __name__ == "__main__":
    main()
