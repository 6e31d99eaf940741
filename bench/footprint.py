"""What models take in memory against what is estimated from their headers: `python -m bench.footprint --shapes 135m
360m`.

Each shape is written with random weights, quantized, and loaded in a process of its own, which decodes one full batch
and says by how much its resident memory grew. Wanted: every estimate within 10%.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import llama_cpp.llama_cpp as lib
import numpy as np
import psutil

from bench.processes import elsewhere
from bench.timing import report
from runtime.backends import library
from runtime.backends.llama import LlamaBackend
from runtime.backends.model import LlamaModel
from runtime.memory.footprint import ContextSpec, Footprint, estimate
from runtime.memory.pressure import MIB
from runtime.models.facts import ModelFacts
from runtime.models.header import read_header
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
CACHES = {"Q8_0": lib.GGML_TYPE_Q8_0, "F16": lib.GGML_TYPE_F16}
N_CTX = 2048


class WithCache(LlamaBackend):
    """A context with a cache of a chosen type."""

    kind = lib.GGML_TYPE_Q8_0

    def _params(self, n_ctx: int) -> lib.llama_context_params:
        params = super()._params(n_ctx)
        params.type_k = params.type_v = self.kind
        return params


@dataclass(frozen=True, slots=True)
class Case:
    """A model file and how its context is made."""

    name: str
    path: Path
    context: ContextSpec

    def footprint(self) -> Footprint:
        """By its header."""
        return estimate(ModelFacts(read_header(self.path)), self.context)

    def estimated(self) -> int:
        """Bytes that the process holds as long as nobody wants memory: weights that were copied, twice."""
        found = self.footprint()
        return found.needed + found.repacked


def measured(tiny: Path, case: Case) -> int:
    """Bytes by which this process grows; what the library itself takes is paid for by a tiny model before."""
    loaded(tiny, ContextSpec(N_CTX))
    before = psutil.Process().memory_info().rss
    return loaded(case.path, case.context) - before


def loaded(path: Path, context: ContextSpec) -> int:
    """Resident bytes after a full batch."""
    model = LlamaModel(path)
    WithCache.kind = CACHES[context.cache]
    backend = WithCache(model, context.n_ctx, context.n_rows, context.n_batch)
    backend.forward(np.arange(context.n_batch, dtype=np.int32) % backend.n_vocab)
    resident = int(psutil.Process().memory_info().rss)
    backend.close()
    model.close()
    return resident


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
                    f"{shape} {quant}, cache {cache}",
                    path,
                    ContextSpec(N_CTX, cache, n_rows=9, n_batch=n_batch, repacks=library.repacks(False)),
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
