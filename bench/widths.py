"""Cost and exactness of passes by width, for random weights of a shape.

Usage: `python -m bench.widths 1b Q4_K_M`. On a GPU both determine the benefit of speculation: where wider passes cost
no more than plain ones, verification is free, and passes padded to one width may be exact where widths round
differently.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.instruments.shapes import FILE_TYPES, Q4_K, SHAPES, requantize, write_random
from bench.instruments.timing import report
from runtime.backends import library
from runtime.backends.library import devices
from runtime.backends.llama import LlamaBackend
from runtime.backends.model import LlamaModel
from runtime.loading.exactness import self_test
from runtime.loading.pass_timing import n_cores, pass_runner, timed
from runtime.loading.profile import PADDED

WIDTHS = 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16
WIDEST = max(WIDTHS)
N_CTX = 1024


def weights(folder: Path, shape: str, quant: str) -> Path:
    """Write random weights, as Q8_0 first if they cannot be written directly, and return the file."""
    if quant == "Q4_K_M" and SHAPES[shape].width % Q4_K.weights == 0:
        return write_random(folder / "q4_k_m.gguf", SHAPES[shape], k_quants=True)
    path = write_random(folder / "q8_0.gguf", SHAPES[shape])
    return path if quant == "Q8_0" else requantize(path, FILE_TYPES[quant], folder / f"{quant}.gguf")


def seconds_by_width(backend: LlamaBackend, widths: Sequence[int], budget: float) -> dict[int, float]:
    """Return medians, measured until the budget of seconds is spent; each width at least once."""
    run, deadline = pass_runner(backend), time.perf_counter() + budget
    found = {}
    for width in widths:
        run(width)
        found[width] = timed(run, width, 15, deadline)
    return found


def exactness(backend: LlamaBackend, widest: int) -> dict[str, str]:
    """Return the results of the self-test for unpadded passes, and for passes padded to one width."""
    found = {"as they come": str(self_test(backend, widest))}
    for rows in (rows for rows in PADDED if rows <= widest):
        backend.pad(rows)
        padded = self_test(backend, rows)
        found[f"padded to {rows}"] = "exact" if padded.width == rows else str(padded)
    backend.pad(1)
    return found


def main() -> None:
    """Print times in milliseconds and relative to a plain pass."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("quant", nargs="?", default="Q8_0", choices=FILE_TYPES, metavar="TYPE")
    parser.add_argument("--seconds", type=float, default=15.0, help="for all widths")
    parser.add_argument("--widest", type=int, default=WIDEST, help="rows of a pass")
    args = parser.parse_args()
    library.start()  # keeps llama.cpp's log quiet
    with tempfile.TemporaryDirectory() as folder:
        model = LlamaModel(weights(Path(folder), args.shape, args.quant))
        backend = LlamaBackend(model, N_CTX, max(args.widest, PADDED[0]))
        threads = 1 if library.has_gpu() else n_cores()
        backend.set_threads(threads, threads)
        found = seconds_by_width(backend, [width for width in WIDTHS if width <= args.widest], args.seconds)
        exact = exactness(backend, args.widest)
        backend.close()
        model.close()
    rows = [[str(width), f"{1e3 * taken:.3f}", f"{taken / found[1]:.2f}"] for width, taken in found.items()]
    rows += [[name, text, ""] for name, text in exact.items()]
    names = [f"{kind}: {name}" for kind, name, *_ in devices()]
    summary = {"devices": names, "ms": {width: round(1e3 * taken, 3) for width, taken in found.items()}, "exact": exact}
    report(f"passes by width, {args.shape} {args.quant}", ["rows", "ms", "times plain"], rows, summary)


if __name__ == "__main__":
    main()
