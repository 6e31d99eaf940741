"""A pair that answers while another process takes memory, and gives it back: `python -m bench.ballast`.

Nothing is driven to its end: thresholds are set just below what is free when the run begins, so that a ballast of a
tenth of it makes memory TIGHT, then CRITICAL. Every reply is compared with what plain decode says. Prints what happened
over time, and draws it with `--plot FILE`. With `--cgroup BYTES` all of it runs under that hard limit, at the usual
thresholds, and the ballast does take nearly everything.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import psutil
import pygal

from bench.cgroup import INSIDE, confine, confined
from bench.processes import SPAWN
from bench.timing import report
from runtime.engine import Message, Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.memory.pressure import MIB, Level, Thresholds
from runtime.memory.system import MemoryReader
from runtime.models.registry import load_registry

TIGHT_AT, CRITICAL_AT = 0.03, 0.08  # shares of what was free that are taken when each level begins
LOADS = 0, 0.055, 0.11, 0.055, 0, 0  # of ballast, phase by phase
HARD_LOADS = 0, 0.93, 0.975, 0.93, 0, 0  # of what a cgroup has left: little enough for the usual thresholds
QUESTIONS = (
    "What does os.path.join do?",
    "What does re.compile do?",
    "What is collections.deque?",
    "What does json.dumps do?",
)
BUCKET = 0.5  # seconds
N_TOKENS = 150  # of a reply, at most


def carry(pipe: Connection) -> None:
    """The ballast's process: holds as many MiB as it was last told, until the other end is closed."""
    held: list[np.ndarray[tuple[int], np.dtype[np.uint8]]] = []
    try:
        while True:
            n = pipe.recv()
            held = [*held[:n], *(np.ones(MIB, dtype=np.uint8) for _ in range(n - len(held)))]
    except EOFError:
        pass


@contextmanager
def ballast() -> Iterator[Callable[[int], None]]:
    """A way to say how many MiB are taken."""
    ours, theirs = SPAWN.Pipe()
    process = SPAWN.Process(target=carry, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    try:
        yield ours.send
    finally:
        ours.close()
        process.join()


@dataclass(frozen=True, slots=True)
class Moment:
    """One target pass."""

    at: float  # seconds since the run began
    load: int  # MiB of ballast
    level: str
    resident: int  # bytes of this process
    n_drafted: int
    n_tokens: int


def thresholds(free: int, calm: float) -> Thresholds:
    """That a ballast reaches where so much is free."""
    tight, critical = (int((1 - taken) * free) for taken in (TIGHT_AT, CRITICAL_AT))
    return Thresholds(
        tight_share=1, tight_bytes=tight, critical_share=1, critical_bytes=critical, recovery=1, calm_seconds=calm
    )


class Run:
    """Answers on and on while the ballast changes."""

    def __init__(
        self,
        engine: LoadedEngine,
        sampling: Sampling,
        expected: dict[str, str],
        phase: float,
        loads: Sequence[int],
        take: Callable[[int], None],
    ) -> None:
        self.engine, self.sampling, self.expected, self.phase, self._loads, self._take = (
            engine,
            sampling,
            expected,
            phase,
            loads,
            take,
        )
        self.moments, self.reasons = list[Moment](), list[str]()
        self.n_replies = self.n_different = 0
        self._process, self._began, self._load = psutil.Process(), time.perf_counter(), 0

    @property
    def at(self) -> float:
        """Seconds since the run began."""
        return time.perf_counter() - self._began

    def go(self) -> None:
        """Through all phases."""
        while self.at < self.phase * len(self._loads):
            question = QUESTIONS[self.n_replies % len(QUESTIONS)]
            text = self._answer(question)
            self.n_replies += 1
            self.n_different += text != self.expected[question]

    def _answer(self, question: str) -> str:
        """One reply, noting every pass."""
        text, n_before = "", 0
        for chunk in self.engine.reply([Message("user", question)], self.sampling, N_TOKENS):
            self._change_load()
            text += chunk.text
            for step in self.engine.passes(n_before):
                n_before += 1
                resident = self._process.memory_info().rss
                self.moments.append(
                    Moment(self.at, self._load, self.engine.memory_level, resident, step.n_drafted, len(chunk.tokens))
                )
            if (
                chunk.stats
                and (reason := chunk.stats.reason)
                and reason.code == "memory"
                and reason.text not in self.reasons
            ):
                self.reasons.append(reason.text)
        return text

    def _change_load(self) -> None:
        load = self._loads[min(int(self.at / self.phase), len(self._loads) - 1)]
        if load != self._load:
            self._load = load
            self._take(load)


def said(engine: LoadedEngine, sampling: Sampling) -> dict[str, str]:
    """What an engine says to each question."""
    return {
        question: "".join(chunk.text for chunk in engine.reply([Message("user", question)], sampling, N_TOKENS))
        for question in QUESTIONS
    }


def rows(moments: list[Moment]) -> list[list[str]]:
    """The run in words, a row for each stretch of one load and one level."""
    found = []
    for (load, level), group in groupby(moments, lambda moment: (moment.load, moment.level)):
        stretch = list(group)
        seconds = max(stretch[-1].at - stretch[0].at, 1e-9)
        tokens, drafted = sum(moment.n_tokens for moment in stretch), sum(moment.n_drafted for moment in stretch)
        resident = statistics.median(moment.resident for moment in stretch)
        numbers = f"{tokens / seconds:,.0f}", f"{drafted / len(stretch):.1f}", f"{resident / MIB:,.1f}"
        found.append([f"{stretch[0].at:.1f}", f"{seconds:.1f}", str(load), level, *numbers])
    return found


def plot(moments: list[Moment], file: Path) -> None:
    """Every number over time, as a share of its greatest."""
    chart = pygal.XY(
        title="Memory runs short and comes back",
        x_title="seconds",
        y_title="share of the greatest",
        show_dots=False,
        js=[],
    )
    ticks = [list(group) for _, group in groupby(moments, lambda moment: int(moment.at / BUCKET))]
    series: dict[str, Callable[[list[Moment]], float]] = {
        "MiB of ballast": lambda tick: tick[-1].load,
        "level (1 = TIGHT, 2 = CRITICAL)": lambda tick: Level[tick[-1].level],
        "MiB resident": lambda tick: tick[-1].resident / MIB,
        "K": lambda tick: sum(moment.n_drafted for moment in tick) / len(tick),
        "tok/s": lambda tick: sum(moment.n_tokens for moment in tick) / BUCKET,
    }
    for name, value in series.items():
        values = [value(tick) for tick in ticks]
        greatest = max(values) or 1.0
        chart.add(
            f"{name}, at most {greatest:,.4g}",
            [(tick[0].at, each / greatest) for tick, each in zip(ticks, values, strict=True)],
        )
    file.write_bytes(chart.render())


def main() -> None:
    """Wanted: no reply differs, the draft model's memory is given back under TIGHT, and drafting goes on when memory is
    free again.
    """
    parser = argparse.ArgumentParser(description="Decoding while memory runs short and comes back.")
    parser.add_argument("--phase", type=float, default=8.0, help="seconds of each load")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--plot", type=Path, help="an SVG file to draw the run into")
    parser.add_argument("--cgroup", type=int, metavar="BYTES", help="run inside a cgroup with this hard limit")
    parser.add_argument(INSIDE, action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.cgroup and not args.inside_cgroup:
        confine(args.cgroup, "bench.ballast", sys.argv[1:])
    if args.cgroup:
        confined(args.cgroup, MemoryReader())
    sampling, pair = Sampling(args.temperature, seed=1), load_registry()["demo"]
    plain = LoadedEngine(pair, Options(drafters=()))
    expected = said(plain, sampling)
    plain.close()
    calm = args.phase / 4
    free = confined(args.cgroup, MemoryReader()).free if args.cgroup else psutil.virtual_memory().available
    engine = LoadedEngine(
        pair, Options(memory=Thresholds(calm_seconds=calm) if args.cgroup else thresholds(free, calm))
    )
    loads = [int(share * free / MIB) for share in (HARD_LOADS if args.cgroup else LOADS)]
    with ballast() as take:
        run = Run(engine, sampling, expected, args.phase, loads, take)
        run.go()
    engine.close()
    if args.plot:
        plot(run.moments, args.plot)
    columns = ["from, s", "for, s", "ballast, MiB", "level", "tok/s", "K", "resident, MiB"]
    report(
        "ballast",
        columns,
        rows(run.moments),
        {"replies": run.n_replies, "different": run.n_different, "reasons": run.reasons},
    )


if __name__ == "__main__":
    main()
