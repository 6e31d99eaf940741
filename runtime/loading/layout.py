"""The layout of a target's weights: the fast one, or the exact one, in which passes of any width round alike.

The exact one lets replies with a seed draft more. It is chosen by default where there are such replies and it costs
almost nothing. A trial compares both in separate processes that take turns, as kernels are fixed per process:
`python -m runtime.loading.layout FILE fast|exact` is one of them. It prints the largest width at which its passes are
exact, then for each number of rows read from its input the seconds of such a pass.
"""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from runtime.backends import library
from runtime.backends.contexts import open_backend
from runtime.backends.model import LlamaModel
from runtime.core.children import Child, end_with_parent
from runtime.core.errors import ModelError
from runtime.loading.exactness import sample
from runtime.loading.neighbours import Neighbours, family
from runtime.loading.options import Options
from runtime.loading.pass_timing import usual_threads
from runtime.loading.profile import measured
from runtime.loading.profile_cache import ProfileCache, fingerprint

WORTH = 0.95  # share of the fast layout's speed from which the exact one is chosen by default
READING = 1 / 3  # share of a usual turn's time for reading its prompt
LEAST, ROUNDS, BUDGET = 3, 15, 20.0  # turns: minimum, and maximum unless the time budget in seconds ends first
READ = 128  # rows of a prefill pass
N_CTX = 512
WIDTH = Options().max_k + 1


@dataclass(frozen=True, slots=True)
class LayoutTrial:
    """Comparison of the two layouts: rows up to which each is exact, of `tried`, and the exact one's relative speed.

    `plain` and `prefill` are its share of the fast one's speed in plain decode and in reading a prompt.
    """

    fast_width: int
    exact_width: int
    tried: int
    plain: float
    prefill: float
    is_calm: bool = True  # whether other programs left the cores alone meanwhile

    @property
    def prefers_exact(self) -> bool:
        """Whether the exact layout has an advantage and costs almost nothing."""
        longer = (1 - READING) / self.plain + READING / self.prefill  # a usual turn's time, as a ratio to the fast one
        return self.exact_width > self.fast_width and 1 / longer >= WORTH

    @property
    def promise(self) -> str:
        """Effect of `--exact`, as a clause to follow a sentence."""
        if self.exact_width <= self.fast_width:
            return "`--exact` would change nothing: its kernels are no more exact here"
        return (
            f"with `--exact` it could draft {self.exact_width - 1} tokens at a time, at {self.plain:.2f} times the "
            f"speed of plain decode, and read prompts at {self.prefill:.2f} times"
        )


def remembered(target: Path) -> LayoutTrial | None:
    """Return the cached trial of that file with this library, if it can be read."""
    try:
        trial = _memo(target).read_as(LayoutTrial)
    except OSError:  # the target is gone
        return None
    return trial if trial and trial.plain > 0 and trial.prefill > 0 else None


def remember(target: Path, trial: LayoutTrial) -> None:
    """Cache a trial for the next start."""
    _memo(target).write(asdict(trial))


def note_seed(target: Path) -> None:
    """Record that replies of this target have seeds: others gain nothing from the exact layout.

    Does nothing for a file that is gone.
    """
    with suppress(OSError):
        _seeds(target).write({"seen": True})


def has_seeds(target: Path) -> bool:
    """Return whether a reply of this target had a seed."""
    with suppress(OSError):  # the target is gone
        return bool(_seeds(target).read())
    return False


def prefers_exact(target: Path) -> bool:
    """Return whether the exact layout is chosen by default."""
    trial = None if library.has_gpu() else remembered(target)
    return trial is not None and trial.prefers_exact and has_seeds(target)


def _seeds(target: Path) -> ProfileCache:
    return ProfileCache(fingerprint(target, "seeds"))


def _memo(target: Path) -> ProfileCache:
    return ProfileCache(fingerprint(target, "layout", library.version()))


class LayoutProcess:
    """One layout, in a process that runs passes on request. Raises ModelError if it is not available."""

    def __init__(self, target: Path, layout: str) -> None:
        pipe = subprocess.PIPE
        self._process = Child(
            "runtime.loading.layout", target.absolute(), layout, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL
        )
        family.add(self._process.pid)
        self.width = int(self._read())

    def seconds(self, rows: int) -> float:
        """Return the seconds of one pass over `rows` rows."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"%d\n" % rows)
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
        """End the process."""
        family.discard(self._process.pid)
        with self._process:  # closes its pipes
            self._process.kill()


def compare(target: Path) -> LayoutTrial:
    """Return the result of the trial; the exact layout is not run if the fast one is exact at all widths. Raises
    ModelError.
    """
    with ExitStack() as stack:
        fast = LayoutProcess(target, "fast")
        stack.callback(fast.close)
        if fast.width >= WIDTH:
            return LayoutTrial(fast.width, fast.width, WIDTH, 1.0, 1.0)
        exact = LayoutProcess(target, "exact")
        stack.callback(exact.close)
        (plain, is_calm), (prefill, stays_calm) = (share(fast, exact, rows) for rows in (1, READ))
    return LayoutTrial(fast.width, exact.width, WIDTH, plain, prefill, is_calm and stays_calm)


def share(fast: LayoutProcess, exact: LayoutProcess, rows: int) -> tuple[float, bool]:
    """Return the exact layout's speed relative to the fast one's, by the fastest pass of each, and whether other
    programs left the cores alone.

    They take turns, and the fastest counts because other load on the machine only makes passes longer.
    """
    began, others, taken, is_calm = time.perf_counter(), Neighbours(), list[tuple[float, float]](), True
    while len(taken) < LEAST or (len(taken) < ROUNDS and time.perf_counter() - began < BUDGET):
        taken.append((fast.seconds(rows), exact.seconds(rows)))
        is_calm = others.are_calm() and is_calm
    of_fast, of_exact = map(min, zip(*taken, strict=True))
    return float(round(of_fast / of_exact, 3)), is_calm


def contend(target: Path, layout: str) -> None:
    """Run the process of one layout until its input ends."""
    model = LlamaModel(target, exact=layout == "exact")
    backend = open_backend(model, min(N_CTX, model.n_ctx_train), WIDTH, READ)
    backend.set_threads(threads := usual_threads(), threads)
    print(measured(backend, WIDTH).width, flush=True)
    text, held = np.resize(sample(model.vocab, N_CTX), backend.n_ctx), backend.n_ctx
    for rows in map(int, sys.stdin):
        if held + rows > backend.n_ctx:
            backend.forward(text[: (held := 1)])
        began = time.perf_counter()
        backend.forward(text[: (held := held + rows)])
        print(time.perf_counter() - began, flush=True)


if __name__ == "__main__":
    end_with_parent()
    contend(Path(sys.argv[1]), sys.argv[2])
