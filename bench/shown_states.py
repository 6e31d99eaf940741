"""What it costs that a target shows a head its hidden states: `python -m bench.shown_states TARGET.gguf`.

Two contexts over the same weights take turns at the same passes: one shows nothing; of the other, an EAGLE-3 head with
weights of chance hears the inputs of three layers, and drafts nothing. Processor time of one thread, so other programs
disturb little.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import numpy as np

from bench.timing import report
from runtime.backends import library
from runtime.backends.eagle import EagleBackend
from runtime.backends.llama import LlamaBackend
from runtime.backends.model import LlamaModel
from runtime.core.draft import Draft, Tokens
from tests.support.heads import head_for, write_head

N_CTX, WIDEST, ROOM = 1024, 17, 8
HELD = 128  # tokens before the passes
WIDTHS = 1, 5, 13


def seconds(backend: LlamaBackend, context: Tokens, rows: int) -> float:
    """Of processor time, that a pass over the last token and a draft takes."""
    draft = Draft(tuple(range(1, rows)))
    began = time.process_time()
    backend.forward(context, draft)
    return time.process_time() - began


def in_turns(plain: LlamaBackend, shown: LlamaBackend, rows: int, n_passes: int) -> tuple[list[float], list[float]]:
    """Seconds of the passes of both, over texts that grow by a token."""
    text = np.random.default_rng(rows).integers(5, 4000, N_CTX).astype(np.int32)
    taken: dict[LlamaBackend, list[float]] = {plain: [], shown: []}
    for backend in taken:
        backend.forward(text[:HELD])
    for n in range(n_passes):
        end = HELD + 1 + n % (N_CTX - HELD - WIDEST)
        for backend in random.Random(n).sample([plain, shown], 2):
            taken[backend].append(seconds(backend, text[:end], rows))
    return taken[plain], taken[shown]


def row_of(rows: int, plain: list[float], shown: list[float]) -> list[str]:
    """Medians in milliseconds, and what is paid for showing as a share of a pass: by the medians, and pass by pass."""
    alone, heard = median(plain), median(shown)
    pairs = median(b / a for a, b in zip(plain, shown, strict=True))
    return [str(rows), f"{1e3 * alone:.3f}", f"{1e3 * heard:.3f}", f"{heard / alone - 1:+.2%}", f"{pairs - 1:+.2%}"]


def main() -> None:
    """A row for each width."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", type=Path)
    parser.add_argument("--passes", type=int, default=400, help="of each width and context")
    args = parser.parse_args()
    library.start()  # keeps llama.cpp's log quiet
    table = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        shape = head_for(args.target, words=1024)
        target, head = LlamaModel(args.target), LlamaModel(write_head(folder / "head.gguf", shape), is_head=True)
        plain, shown = (LlamaBackend(target, N_CTX, WIDEST) for _ in range(2))
        eagle = EagleBackend(head, shown, shape.layers, 1, ROOM)
        for each in (target, head, plain, shown, eagle):
            stack.callback(each.close)
        for each in (plain, shown):
            each.set_threads(1, 1)
        table = [row_of(rows, *in_turns(plain, shown, rows, args.passes)) for rows in WIDTHS]
    names = ["rows", "ms alone", "ms shown", "by medians", "by pairs"]
    report(f"what showing states costs, {args.target.name}", names, table, {"passes": args.passes, "rows": table})


if __name__ == "__main__":
    main()
