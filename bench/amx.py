"""Whether llama.cpp's AMX kernels work and pay here: `python -m bench.amx FOLDER`, on a processor with AMX.

Libraries are built there with Clang, whose AMX code is right where older GCCs leave out the setup of tiles (llama.cpp's
issue 20824). The same random weights are then computed with AMX's buffers and as Slipstream places them today, each in
a process of its own, which AMX's may end. Wanted: the same choices, and passes of eight rows that cost hardly more than
one. Not run yet: no machine with AMX was at hand.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import numpy as np

from bench.build import BuildError, built
from bench.timing import report
from bench.widths import seconds_by_width, weights
from runtime.backends import library
from runtime.backends.llama import LlamaBackend
from runtime.backends.model import LlamaModel
from runtime.core.draft import Draft
from runtime.loading.pass_timing import n_cores
from tests.support.shapes import SHAPES

FLAGS = Path("/proc/cpuinfo")
WIDTHS = 1, 2, 4, 8, 16
ROWS = 8  # whose logits are compared
NONE_HERE = "There is no AMX here (amx_int8 is not among the flags of /proc/cpuinfo), so there is nothing to measure."
LIMIT = 300.0  # seconds for a process


@dataclass(frozen=True, slots=True)
class Found:
    """Milliseconds by width; by row the likeliest token and the largest logit. `how` says what went wrong."""

    how: str = ""
    ms: tuple[float, ...] = ()
    choices: tuple[int, ...] = ()
    largest: tuple[float, ...] = ()


def has_amx() -> bool:
    """Can this processor multiply tiles of bytes?"""
    return FLAGS.exists() and "amx_int8" in FLAGS.read_text().split()


def compute(model_path: Path, uses_amx: bool) -> Found:
    """With AMX's buffers, which Slipstream leaves off, or as it places weights today."""
    library.start()
    with patch.object(library, "has_amx", lambda: not uses_amx and "AMX_INT8 = 1" in library.version()):
        model = LlamaModel(model_path)
    backend = LlamaBackend(model, 512, max(WIDTHS))
    backend.set_threads(n_cores(), n_cores())
    logits = backend.forward(np.arange(64, dtype=np.int32), Draft(tuple(range(ROWS - 1)))).copy()
    seconds = seconds_by_width(backend, WIDTHS, 20)
    backend.close()
    model.close()
    return Found(
        ms=tuple(1e3 * each for each in seconds.values()),
        choices=tuple(map(int, logits.argmax(axis=1))),
        largest=tuple(map(float, logits.max(axis=1))),
    )


def in_process(*command: str, environment: dict[str, str]) -> Found:
    """What a process of its own found, or how it ended: AMX's kernels may be built wrongly."""
    try:
        done = subprocess.run(
            [sys.executable, *command], env=environment, capture_output=True, text=True, timeout=LIMIT, check=False
        )
    except subprocess.TimeoutExpired:
        return Found(f"did not end within {LIMIT:.0f} seconds")
    if done.returncode:
        return Found(f"ended with code {done.returncode}: {done.stderr[-200:].strip()}")
    return Found(**json.loads(done.stdout.splitlines()[-1]))


def verdict(amx: Found, today: Found) -> str:
    """Does it hold? In a sentence."""
    if wrong := amx.how or today.how:
        return f"No: the process {'with AMX' if amx.how else 'without AMX'} {wrong}"
    if tuple(amx.choices) != tuple(today.choices) or not np.allclose(amx.largest, today.largest, rtol=0.05):
        return "No: the logits are others than without AMX."
    gains = [before / now for before, now in zip(today.ms, amx.ms, strict=True)]
    return f"Yes, logits agree; passes of {WIDTHS} rows are {', '.join(f'{gain:.2f}' for gain in gains)} times as fast."


def main() -> None:
    """Prints a table and the verdict, or that there is no AMX."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the libraries are built, or those that are there")
    parser.add_argument("--shape", choices=SHAPES, default="1b")
    parser.add_argument("--quant", choices=("Q8_0", "Q4_K_M"), default="Q4_K_M")
    parser.add_argument("--clang", default="clang", help="such as clang-19")
    parser.add_argument("--compute", choices=("amx", "today"), help="in this process, of the model that is at FOLDER")
    args = parser.parse_args()
    if args.compute:
        found = compute(args.folder, args.compute == "amx")
        print(json.dumps({"ms": found.ms, "choices": found.choices, "largest": found.largest}))
        return
    if not has_amx():
        print(NONE_HERE)
        return
    os.environ |= {"CC": args.clang, "CXX": args.clang.replace("clang", "clang++", 1)}
    try:
        libraries = built("cpu", args.folder.resolve(), n_cores())
    except BuildError as error:
        sys.exit(str(error))
    environment = {**os.environ, "LLAMA_CPP_LIB_PATH": str(libraries)}
    with tempfile.TemporaryDirectory() as folder:
        path = weights(Path(folder), args.shape, args.quant)
        found_by_way = {
            way: in_process("-m", "bench.amx", str(path), "--compute", way, environment=environment)
            for way in ("amx", "today")
        }
    rows = [[way, *(f"{each:.2f}" for each in found.ms)] for way, found in found_by_way.items()]
    said = verdict(found_by_way["amx"], found_by_way["today"])
    report(f"AMX, {args.shape} {args.quant}, ms", ["weights", *map(str, WIDTHS)], rows, {"verdict": said})


if __name__ == "__main__":
    main()
