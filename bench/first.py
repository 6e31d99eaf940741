"""First replies as they are lived, against plain decode: `python -m bench.first`.

Every reply is made by a process of its own, in turns with plain decode of the same question, and counted to its 20th,
60th and 200th token, as far as it goes: the seconds include the prompt, not loading. A cell is a pair, a cache folder
(warm, or empty for every reply) and so many other processes that keep a core busy. Questions are greedy and sampled
with a seed in turns, so both ways say the same. Plain decode is made twice and compared with itself too: how far these
ratios stray is what the machine does by itself. "Own time" leaves out what other processes and a virtual machine's host
took. `--cases`, `--caches` and `--busy` choose cells; the case `files` is the pair of `--target` and `--draft`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from bench.instruments.hopeless import hopeless
from bench.instruments.processes import busy_core
from bench.instruments.questions import PROSE, questions
from bench.instruments.real_texts import KINDS
from bench.instruments.reply_once import MARKS, WHOLE, Job
from bench.instruments.timing import report
from bench.instruments.weights import MODELS, fetched
from runtime.models.registry import load_registry

ROOT = Path(__file__).parents[1]
CASES = "demo;hopeless;smollm2;gemma3;copying;layerskip;lookahead;suffix"
WARMING = 6  # replies that make a cache folder warm
SLOW, VERY_SLOW = 0.95, 0.8
COUNTED = *(f"{mark} tokens" for mark in MARKS), "whole", "whole, own time", "command"
BEGINNINGS = tuple(f"{question}\n\nThe short answer:" for question in PROSE)


@dataclass(frozen=True, slots=True)
class Case:
    """A pair, the drafters that are tried, and what is asked."""

    target: Path
    draft: Path | None
    drafters: tuple[str, ...] | None
    questions: Sequence[str]
    is_raw: bool = False

    def job(self, number: int) -> Job:
        """The reply of that number: every question is asked greedily first, then with a seed."""
        temperature = 0.8 * (number // len(self.questions) % 2)
        asked = self.questions[number % len(self.questions)]
        draft = str(self.draft) if self.draft else None
        return Job(str(self.target), draft, self.drafters, asked, self.is_raw, temperature, number)


@dataclass
class Ratios:
    """Of one way to reply over plain decode, by what was counted: marks of tokens, the whole, own time, the command."""

    of: dict[str, list[float]] = field(default_factory=dict)

    def take(self, plain: Reply, other: Reply) -> None:
        """Takes in a reply, made both ways."""
        for what in plain.seconds.keys() & other.seconds.keys():
            self.of.setdefault(what, []).append(plain.seconds[what] / other.seconds[what])

    def told(self, what: str) -> list[str]:
        """Median, least and the shares that are slow and very slow."""
        values = self.of[what]
        shares = [f"{sum(value < limit for value in values) / len(values):.0%}" for limit in (SLOW, VERY_SLOW)]
        return [f"{statistics.median(values):.3f}", f"{min(values):.3f}", *shares]


@dataclass
class Cell:
    """What was measured of one case in one state of the machine."""

    name: str
    ours: Ratios = field(default_factory=Ratios)
    again: Ratios = field(default_factory=Ratios)  # plain decode once more
    n_different: int = 0

    def take(self, plain: Reply, ours: Reply, again: Reply) -> None:
        """Takes in a reply, made all three ways."""
        self.ours.take(plain, ours)
        self.again.take(plain, again)
        self.n_different += plain.text != ours.text

    def rows(self) -> Iterator[list[str]]:
        """A row for each thing that was counted."""
        for what in filter(self.ours.of.get, COUNTED):
            yield [self.name, what, str(len(self.ours.of[what])), *self.ours.told(what), *self.again.told(what)]


@dataclass(frozen=True, slots=True)
class Reply:
    """What one process said of its reply, and its seconds by what is counted."""

    seconds: dict[str, float]
    text: str
    detail: str


def reply(job: Job, cache: Path) -> Reply:
    """One reply in a process of its own. Raises CalledProcessError."""
    env = os.environ | {"XDG_CACHE_HOME": str(cache), "XDG_DATA_HOME": str(cache), "XDG_CONFIG_HOME": str(cache)}
    command = [sys.executable, "-m", "bench.instruments.reply_once", json.dumps(asdict(job))]
    began = time.perf_counter()
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    took, found = time.perf_counter() - began, json.loads(done.stdout.splitlines()[-1])
    seconds = {f"{mark} tokens": each for mark, each in found["seconds"].items() if int(mark) != WHOLE}
    whole = {"whole": found["seconds"][str(WHOLE)], "whole, own time": found["own"][str(WHOLE)], "command": took}
    return Reply(seconds | whole, found["text"], f"{found['accepted']}/{found['drafted']} {found['worst']}")


def measure(name: str, case: Case, warm: Path | None, n: int, is_told: bool) -> Cell:
    """`n` replies all three ways, in turns; in `warm`, or in a cache folder of each one's own."""
    cell = Cell(name)
    for number in range(n):
        ours = case.job(number)
        jobs = [replace(ours, drafters=()), ours, replace(ours, drafters=())]
        found = dict[int, Reply]()
        for turn in range(3):
            which = (number + turn) % 3
            with tempfile.TemporaryDirectory() as empty:
                found[which] = reply(jobs[which], warm or Path(empty))
        cell.take(found[0], found[1], found[2])
        if is_told:
            ratios = {what: round(found[0].seconds[what] / each, 2) for what, each in found[1].seconds.items()}
            print(f"  {name} {number}: {ratios} {found[1].detail}", flush=True)
    return cell


@contextmanager
def busy(n: int) -> Iterator[None]:
    """So many cores are busy inside."""
    with ExitStack() as stack:
        for _ in range(n):
            stack.enter_context(busy_core())
        yield


def all_cases(folder: Path) -> dict[str, Case]:
    """By name; those with public weights only where they can be had."""
    pair, asked = load_registry()["demo"], questions()
    assert pair.draft is not None
    found = {"demo": Case(pair.target, pair.draft, None, asked)}
    found["hopeless"] = Case(pair.target, hopeless(pair.draft, folder / "hopeless.gguf"), None, asked)
    found |= {name: Case(pair.target, None, (name,), asked) for name in ("layerskip", "lookahead", "suffix")}
    smollm2, copying = fetched(MODELS["smollm2"]), [KINDS[kind].text(False) for kind in ("edit", "summary")]
    found |= {"smollm2": Case(smollm2, None, None, PROSE), "copying": Case(smollm2, None, None, copying)}
    found["gemma3"] = Case(fetched(MODELS["gemma3"]), None, None, BEGINNINGS, is_raw=True)
    return found


def main() -> None:
    """Wanted: quiet, median 0.99 and 2% of replies of 60 tokens under 0.95; busy, median 1.0 and none under 0.8."""
    parser = argparse.ArgumentParser(description="First replies in processes of their own, against plain decode.")
    parser.add_argument("--cases", default=CASES, help="separated by semicolons")
    parser.add_argument("--caches", default="warm,empty")
    parser.add_argument("--busy", default="0,1,2", help="numbers of other busy processes")
    parser.add_argument("--replies", type=int, default=20, help="of a cell")
    parser.add_argument("--tell", action="store_true", help="print every reply")
    parser.add_argument("--target", type=Path, help="a model file")
    parser.add_argument("--draft", type=Path, help="its draft model")
    args = parser.parse_args()
    rows, summary, n_different = list[list[str]](), dict[str, object](), 0
    with tempfile.TemporaryDirectory() as folder:
        cases = all_cases(Path(folder)) if args.cases != "files" else {}
        if args.target:
            cases["files"] = Case(args.target, args.draft, None, PROSE)
        for case in args.cases.split(";"):
            warm = Path(folder) / "warm" / case
            warm.mkdir(parents=True)
            if "warm" in args.caches:
                for number in range(WARMING):
                    reply(cases[case].job(number + 100), warm)
                reply(replace(cases[case].job(0), drafters=()), warm)
            for cache in args.caches.split(","):
                for n in map(int, args.busy.split(",")):
                    name = f"{case}, {cache}, {n} busy"
                    with busy(n):
                        cell = measure(name, cases[case], warm if cache == "warm" else None, args.replies, args.tell)
                    rows += cell.rows()
                    n_different += cell.n_different
                    summary[name] = {what: float(cell.ours.told(what)[0]) for what in cell.ours.of}
                    for row in cell.rows():
                        print(" | ".join(row), flush=True)
    told = ["median", "least", f"under {SLOW}", f"under {VERY_SLOW}"]
    columns = ["cell", "up to", "replies", *told, *(f"again: {each}" for each in told)]
    report(
        "first replies, ours / plain; again: plain / plain", columns, rows, summary | {"different texts": n_different}
    )


if __name__ == "__main__":
    main()
