"""Single bits of a model's header, flipped: `python -m bench.flips [N]`, 300 by default.

Each file is opened as the app does, in a process of its own, and asked for a few tokens: it runs, is refused by a
sentence of ours, or its process is lost, which ends with a sentence as well. Anything else is raised.
"""

from __future__ import annotations

import random
import shutil
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from gguf import GGUFReader
from rich.progress import track

from bench.timing import report
from runtime.core.errors import SlipstreamError
from runtime.engine import Options, Sampling
from runtime.models.registry import Pair, load_registry
from runtime.process.client import EngineProcess

KEYS = 3000  # bytes at the start, where every second flip is; the rest of a header is names of words and tensors
SEED = 5


def flip(path: Path, at: int, bit: int) -> None:
    """That bit of the byte at `at`; once more, and the file is what it was."""
    with path.open("r+b") as file:
        file.seek(at)
        old = file.read(1)[0]
        file.seek(at)
        file.write(bytes([old ^ 1 << bit]))


def outcome(path: Path) -> str:
    """What becomes of the model."""
    try:
        engine = EngineProcess(Pair("flipped", path), Options(drafters=(), n_ctx=256))
        try:
            for _ in engine.reply("def f(", Sampling(temperature=0), 4):
                pass
        finally:
            engine.close()
    except SlipstreamError as error:
        if path.name not in str(error):
            raise
        return "process lost" if "its process was lost" in str(error) else "refused"
    return "runs"


def main() -> None:
    """Prints what became of all."""
    n, demo, rng = int(sys.argv[1]) if len(sys.argv) > 1 else 300, load_registry()["demo"].target, random.Random(SEED)
    n_bytes, outcomes = GGUFReader(demo).data_offset, Counter[str]()
    with TemporaryDirectory() as folder:
        path = Path(folder, "flipped.gguf")
        shutil.copy(demo, path)
        for number in track(range(n)):
            at, bit = rng.randrange(KEYS if number % 2 else n_bytes), rng.randrange(8)
            flip(path, at, bit)
            outcomes[outcome(path)] += 1
            flip(path, at, bit)
    report("flipped bits", ["outcome", "files"], [[k, str(v)] for k, v in outcomes.items()], dict(outcomes))


if __name__ == "__main__":
    main()
