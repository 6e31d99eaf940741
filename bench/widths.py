"""Cost and exactness of passes by width, for random weights of a shape or for a file.

Usage: `python -m bench.widths 1b Q4_K_M`. On a GPU both determine the benefit of speculation: where wider passes cost
no more than plain ones, verification is free, and passes padded to one width may be exact where widths round
differently.

`--caches Q8_0/F16,Q4_0/Q4_0 --at 2048,8192` times single rows at these lengths of context with these types of keys and
values instead, in turns: a draft by the model itself with a smaller cache (QuantSpec, arXiv 2502.10424) pays only where
they cost less.
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
from runtime.backends.filled import FilledContext
from runtime.backends.library import devices
from runtime.backends.llama import LlamaBackend
from runtime.backends.model import LlamaModel
from runtime.core.cores import n_cores
from runtime.loading.exactness import sample, self_test
from runtime.loading.pass_timing import pass_runner, timed
from runtime.loading.profile import PADDED
from runtime.models.cache_layout import CacheTypes

WIDTHS = 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16
WIDEST = max(WIDTHS)
N_CTX, N_COPIED, ROUNDS = 1024, 64, 12


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


def seconds_by_types(model: LlamaModel, caches: Sequence[CacheTypes], length: int, threads: int) -> list[float]:
    """Return the least seconds of a row after `length` tokens with each pair of types, measured in turns."""
    text = sample(model.vocab, N_COPIED)
    contexts = [FilledContext(model, types, length + 2 * N_COPIED, N_COPIED, threads) for types in caches]
    for each in contexts:
        each.fill(text, length)
    rounds = [[each.seconds(text[:1]) for each in contexts] for _ in range(ROUNDS)]
    for each in contexts:
        each.close()
    return [min(taken) for taken in zip(*rounds, strict=True)]


def report_types(model: LlamaModel, title: str, caches: str, lengths: str) -> None:
    """Print the times of a row by types of the cache and tokens of context, and relative to the first pair of types."""
    names = caches.split(",")
    pairs = [(keys, values) for keys, _, values in (name.partition("/") for name in names)]
    at = [*map(int, lengths.split(","))]
    found = {length: seconds_by_types(model, pairs, length, n_cores()) for length in at}
    rows = [
        [name, *(f"{1e3 * found[n][i]:.1f} ({found[n][i] / found[n][0]:.2f})" for n in at)]
        for i, name in enumerate(names)
    ]
    summary = {"ms": {name: [round(1e3 * found[n][i], 2) for n in at] for i, name in enumerate(names)}, "at": at}
    report(f"a row by types of the cache, {title}", ["keys/values", *map(str, at)], rows, summary)


def report_widths(model: LlamaModel, title: str, widest: int, seconds: float) -> None:
    """Print times of passes in milliseconds and relative to a plain pass, and up to which width they are exact."""
    backend = LlamaBackend(model, N_CTX, max(widest, PADDED[0]))
    threads = 1 if library.has_gpu() else n_cores()
    backend.set_threads(threads, threads)
    found = seconds_by_width(backend, [width for width in WIDTHS if width <= widest], seconds)
    exact = exactness(backend, widest)
    backend.close()
    rows = [[str(width), f"{1e3 * taken:.3f}", f"{taken / found[1]:.2f}"] for width, taken in found.items()]
    rows += [[name, text, ""] for name, text in exact.items()]
    names = [f"{kind}: {name}" for kind, name, *_ in devices()]
    summary = {"devices": names, "ms": {width: round(1e3 * taken, 3) for width, taken in found.items()}, "exact": exact}
    report(f"passes by width, {title}", ["rows", "ms", "times plain"], rows, summary)


def main() -> None:
    """Measure a shape or a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", help=f"{', '.join(SHAPES)}, or a GGUF file")
    parser.add_argument("quant", nargs="?", default="Q8_0", choices=FILE_TYPES, metavar="TYPE")
    parser.add_argument("--seconds", type=float, default=15.0, help="for all widths")
    parser.add_argument("--widest", type=int, default=WIDEST, help="rows of a pass")
    parser.add_argument("--exact", action="store_true", help="weights in the file's layout, not the repacked one")
    parser.add_argument("--caches", default="", help="types of keys and values, such as Q8_0/F16,Q4_0/Q4_0")
    parser.add_argument("--at", default="2048,8192", help="tokens of context for these")
    args = parser.parse_args()
    if args.shape not in SHAPES and not Path(args.shape).is_file():
        parser.error(f"{args.shape} is neither a shape nor a file")
    library.start()  # keeps llama.cpp's log quiet
    with tempfile.TemporaryDirectory() as folder:
        is_shape = args.shape in SHAPES
        file = weights(Path(folder), args.shape, args.quant) if is_shape else Path(args.shape)
        title = f"{args.shape} {args.quant}" if is_shape else file.name
        model = LlamaModel(file, exact=args.exact)
        if args.caches:
            report_types(model, title, args.caches, args.at)
        else:
            report_widths(model, title, args.widest, args.seconds)
        model.close()


if __name__ == "__main__":
    main()
