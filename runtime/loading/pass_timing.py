"""Times passes of a backend: by width, and by number of threads. Knows backends and the clock; stores nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from itertools import cycle
from statistics import median

import numpy as np
import psutil

from runtime.core.backend import Backend
from runtime.core.cores import Clock, n_cores, n_fast, wall
from runtime.core.draft import NO_DRAFT, Draft
from runtime.speculative.control.costs import PassCosts

MAX_SECONDS = 1.0  # seconds
SHORTEST, LONGEST = 8, 64  # tokens of context: few at first, because every start waits for them
ROUNDS = 5  # of measurements, where there is time
# Plain passes that are timed even without time: all others are compared with them, and one may have been delayed
MIN_PASSES = 3
# Seconds of a short pass, as of a tiny draft model, and the factor by which more threads must be faster for it: one
# thread that is delayed for a moment costs as much as many of its tokens
SHORT, CLEAR = 1e-3, 1.4
Pass = Callable[[int], float]  # decodes that many rows and returns the seconds


def thread_counts(n_taken: int = 0) -> list[int]:
    """Return the numbers of threads worth trying: one, half of the fast cores, all of those, and all physical cores.

    Of the cores that this process may use, `n_taken` are in use by others.
    """
    free = max(1, n_cores() - n_taken)
    physical = min(free, psutil.cpu_count(logical=False) or free)
    fast = min(physical, n_fast())
    return sorted({1, max(1, fast // 2), fast, physical})


def usual_threads(n_taken: int = 0) -> int:
    """Return the number of threads to use where it is not measured: passes wait for the slowest, so no slow cores."""
    return min(n_fast(), max(thread_counts(n_taken)))


def pass_runner(backend: Backend, clock: Clock = wall) -> Pass:
    """Return a function that decodes n rows at the end of a short context and returns the seconds by `clock`.

    The context grows by a token each time, because not every architecture can rewind to repeat the same pass.
    """
    n = min(SHORTEST, backend.n_ctx // 2)
    context = np.arange(backend.n_ctx, dtype=np.int32) % backend.n_vocab
    backend.forward(context[:n])
    ends = cycle(range(n + 1, min(LONGEST, backend.n_ctx) + 1))

    def run(rows: int) -> float:
        end = min(next(ends), backend.n_ctx - rows + 1)
        began = clock()
        backend.forward(context[:end], Draft((0,) * (rows - 1)) if rows > 1 and backend.n_rewindable else NO_DRAFT)
        return clock() - began

    return run


def timed(run: Pass, width: int, times: int, deadline: float) -> float:
    """Return the median seconds of up to `times` runs; only one run when the deadline has passed."""
    taken: list[float] = []
    while len(taken) < times and (not taken or time.perf_counter() < deadline):
        taken.append(run(width))
    return median(taken)


def fastest_threads(
    options: Iterable[int], set_threads: Callable[[int], None], run: Pass, width: int, deadline: float
) -> int:
    """Return the number of threads with which a pass of that width is fastest.

    A smaller number is preferred if it is slower by at most 3%, or by the factor CLEAR for a short pass. Begins with
    the largest number, so that a model too slow to try them all keeps that one. Continues for MAX_SECONDS beyond the
    deadline, because on a busy machine the largest number is by far the slowest.
    """
    counts = sorted(options, reverse=True)
    if len(counts) == 1:
        set_threads(counts[0])
        return counts[0]
    best, best_seconds = 1, float("inf")
    for n in counts:
        if best_seconds < float("inf") and time.perf_counter() > deadline + MAX_SECONDS:
            break
        set_threads(n)
        run(width)
        seconds = timed(run, width, 5, deadline)
        if seconds < (CLEAR if seconds < SHORT else 1.03) * best_seconds:
            best, best_seconds = n, min(seconds, best_seconds)
    return best


def measure(costs: PassCosts, run: Pass, max_width: int, deadline: float, warms: bool = False) -> None:
    """Time passes until the deadline: a few widths always, then those of kernels' tiles, then the rest.

    Times need not rise with the width: sixteen rows of a Q4_K_M model take less than thirteen. With `warms`, the first
    pass of each width does not count, because workers request much only once.

    Widths are timed in rounds, so that a busy moment of the machine does not make one width more expensive than the
    next. Widths between measured ones are estimated best. A plain pass is timed after another plain pass, as in use,
    whereas a draft seldom has the width of the one before.
    """
    run(1)
    taken, after = {1: [timed(run, 1, 1, deadline) for _ in range(MIN_PASSES)]}, list[float]()
    # For wide passes, estimates from narrow ones are wrong by half, so some of each are timed even after the deadline
    needed, usual = (1, 2, 4, 16), (8, 32, 3, 12, 24)
    first = [width for width in needed + usual if width <= max_width]
    for widths in (first, sorted(set(range(1, max_width + 1)).difference(first))):
        for width in ROUNDS * widths:
            if time.perf_counter() >= deadline and (width in taken or width not in needed):
                continue
            if width == 1:
                after.append(run(width))
            elif warms and width not in taken:
                run(width)
            taken.setdefault(width, []).append(timed(run, width, 1, deadline))
    for width, seconds in taken.items():
        costs.set(width, median(seconds))
    if len(after) > 1:  # the first one did not follow a wider pass
        costs.set_after(median(after[1:]) - median(taken[1]))
