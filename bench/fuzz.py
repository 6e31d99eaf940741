"""Fuzzes all readers of external input with random and mutated data, or loads files that contradict themselves.

Usage: `python -m bench.fuzz [N] [READER ...]`, by default with a million inputs for each reader, which takes hours.

`python -m bench.fuzz layers [FAMILY ...]` prints the files that end the process. Tiny models of every family get one
change: a kind of tensor is missing in the layers, or an integer of the metadata is 0, one more, or huge. Each file is
loaded and generates a token in a process of its own. It may run, or be refused with a SlipstreamError. Anything else is
a row.
"""

from __future__ import annotations

import os
import re
import resource
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.progress import track

from bench.instruments.architectures.families import FAMILIES
from bench.instruments.architectures.tensors import QUIET
from bench.instruments.architectures.writer import mutated, mutations, random_tensors
from bench.instruments.fuzz import fuzz, mutate, read_header, read_registry, sample
from bench.instruments.fuzzed import READERS
from bench.instruments.servers import ask_once
from bench.instruments.timing import report
from runtime.conversation import chat_template
from runtime.core.errors import SlipstreamError
from runtime.engine import Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.models.hub import fetch
from runtime.models.registry import Pair

TIMEOUT = 30.0  # maximal seconds; a tenth is usual
MAX_MEMORY = 8 << 30  # bytes of address space
OPTIONS = Options(drafters=(), threads=1, n_ctx=256)
RUNS, REFUSED, RAISED = 0, 10, 11  # exit codes
NAMES = {RUNS: "runs", REFUSED: "refused", RAISED: "raised"}
FOLDERS = re.compile(r"\S*/")  # before a file's name

FORKS = get_context("forkserver")  # the library is imported once, and initialized in each process


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome for a file, and the last line of the library's log."""

    family: str
    mutation: str
    end: str
    last: str


def try_file(path: Path, log: Path) -> None:
    """Load the file and generate a token, in a process of its own whose exit code is the outcome."""
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        engine = LoadedEngine(Pair("x", path), OPTIONS)
        list(engine.reply("hello", Sampling(0.0), 1))
    except SlipstreamError:
        sys.exit(REFUSED)
    except Exception as error:  # any of them would be a traceback for a user
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(RAISED)
    os._exit(RUNS)


def end_of(path: Path, log: Path) -> tuple[str, str]:
    """Return the outcome for the file, and the log's last line."""
    process = FORKS.Process(target=try_file, args=(path, log))
    process.start()
    process.join(TIMEOUT)
    if process.exitcode is None:
        process.kill()
        process.join()
        return "stuck", ""
    code = process.exitcode
    lines = log.read_text(errors="replace").split("\n") if log.exists() else []
    last = next((FOLDERS.sub("", line) for line in reversed(lines) if line.strip()), "")
    return NAMES.get(code, signal.Signals(-code).name if code < 0 else f"code {code}"), last


def outcomes(name: str, folder: Path) -> Iterator[Outcome]:
    """Yield the outcome of every mutation of a family."""
    family, path, tensors = FAMILIES[name], folder / f"{name}.gguf", random_tensors(name, folder)
    for mutation in mutations(family, tensors):
        mutated(path, name, family, tensors, mutation)
        yield Outcome(name, str(mutation), *end_of(path, folder / "log"))


def try_layers(names: list[str]) -> None:
    """Print each file that neither ran nor was refused, and the counts by outcome."""
    with TemporaryDirectory() as folder:
        begin(Path(folder))
        progress = track(names, "families", console=Console(stderr=True))
        found = [outcome for name in progress for outcome in outcomes(name, Path(folder))]
    wrong = [each for each in found if each.end not in {NAMES[RUNS], NAMES[REFUSED]}]
    rows = [[each.family, each.mutation, each.end, each.last] for each in wrong]
    summary: dict[str, object] = dict(Counter(each.end for each in found))
    report("hostile headers", ["family", "changed", "end", "last line"], rows, summary)


def begin(folder: Path) -> None:
    """Redirect the user's folders, and preload the imports of the processes."""
    for kind in ("CACHE", "DATA", "CONFIG", "STATE"):
        os.environ[f"XDG_{kind}_HOME"] = str(folder / kind)
    os.environ |= QUIET
    FORKS.set_forkserver_preload(
        ["bench.instruments.timing", "runtime.engine", "bench.instruments.architectures.writer"]
    )


def main() -> None:
    """Print the outcomes by reader, or of files that contradict themselves."""
    if sys.argv[1:2] == ["layers"]:
        try_layers(sys.argv[2:] or list(FAMILIES))
        return
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
