"""The two layouts of a target's weights against each other, in processes of their own that take turns: which kernels
are used is settled once for a process.

`python -m runtime.tools.layouts FILE fast|exact` is one of them: it says how wide its passes are exact, and for each
number of rows that it reads how many seconds such a pass took.
"""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from runtime.backends.contexts import open_backend
from runtime.backends.model import LlamaModel
from runtime.core.errors import ModelError
from runtime.loading.exactness import sample
from runtime.loading.layout import LayoutTrial
from runtime.loading.options import Options
from runtime.loading.pass_timing import thread_counts
from runtime.loading.profile import tested

LEAST, ROUNDS, BUDGET = 3, 15, 20.0  # turns at least, and at most unless they take so many seconds
READ = 128  # rows of a pass that reads a prompt
N_CTX = 512
WIDTH = Options().max_k + 1


class LayoutProcess:
    """One layout, in a process that passes when it is told to. Raises ModelError where it cannot be had."""

    def __init__(self, target: Path, layout: str) -> None:
        command = [sys.executable, "-P", "-m", "runtime.tools.layouts", str(target.absolute()), layout]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, cwd=Path(__file__).parents[2]
        )
        self.width = int(self._read())

    def seconds(self, rows: int) -> float:
        """Of one pass over so many rows."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{rows}\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> float:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self.close()
            raise ModelError("The layouts of the weights could not be compared: a trial ended early. Free some memory.")
        return float(line)

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.communicate()


def compare(target: Path) -> LayoutTrial:
    """The trial; the second layout is not asked where the first is exact at all widths. Raises ModelError."""
    with ExitStack() as stack:
        fast = LayoutProcess(target, "fast")
        stack.callback(fast.close)
        if fast.width >= WIDTH:
            return LayoutTrial(fast.width, fast.width, WIDTH, 1.0, 1.0)
        exact = LayoutProcess(target, "exact")
        stack.callback(exact.close)
        plain, prefill = (share(fast, exact, rows) for rows in (1, READ))
    return LayoutTrial(fast.width, exact.width, WIDTH, plain, prefill)


def share(fast: LayoutProcess, exact: LayoutProcess, rows: int) -> float:
    """The exact layout's share of the fast one's speed: by the quickest pass of each, in turns, because whatever else
    the machine does only makes passes longer.
    """
    began, taken = time.perf_counter(), list[tuple[float, float]]()
    while len(taken) < LEAST or (len(taken) < ROUNDS and time.perf_counter() - began < BUDGET):
        taken.append((fast.seconds(rows), exact.seconds(rows)))
    of_fast, of_exact = map(min, zip(*taken, strict=True))
    return float(round(of_fast / of_exact, 3))


def contend(target: Path, layout: str) -> None:
    """What the process of one layout does until its input ends."""
    model = LlamaModel(target, exact=layout == "exact")
    backend = open_backend(model, min(N_CTX, model.n_ctx_train), WIDTH, READ)
    backend.set_threads(threads := max(thread_counts()), threads)
    print(tested(backend, WIDTH).width, flush=True)
    text, held = np.resize(sample(model.vocab, N_CTX), backend.n_ctx), backend.n_ctx
    for rows in map(int, sys.stdin):
        if held + rows > backend.n_ctx:
            backend.forward(text[: (held := 1)])
        began = time.perf_counter()
        backend.forward(text[: (held := held + rows)])
        print(time.perf_counter() - began, flush=True)


if __name__ == "__main__":
    contend(Path(sys.argv[1]), sys.argv[2])
