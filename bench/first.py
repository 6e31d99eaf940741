"""First replies as they are lived, against plain decode: `python -m bench.first`.

Every reply is made by a process of its own, in turns with plain decode of the same question, and counted to its 20th,
60th and 200th token, as far as it goes: the seconds include the prompt, not loading. A cell is a pair, a cache folder
(warm, or empty for every reply) and so many other processes that keep a core busy. Questions are greedy and sampled
with a seed in turns, so both ways say the same. Where "nothing" drafts, plain decode is compared with itself, which
says how far a machine's ratios stray; "own time" leaves out what other processes and a virtual machine's host took.
`--cases`, `--caches` and `--busy` choose cells.
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

from bench.demo import questions
from bench.hopeless import hopeless
from bench.processes import busy_core
from bench.real_texts import KINDS
from bench.reply_once import MARKS, WHOLE, Job
from bench.timing import report
from runtime.models.registry import load_registry
from tests.support.weights import MODELS, fetched

ROOT = Path(__file__).parents[1]
CASES = "nothing;demo;hopeless;smollm2, nothing;smollm2;gemma3;copying;layerskip;lookahead;suffix"
WARMING = 6  # replies that make a cache folder warm
SLOW, VERY_SLOW = 0.95, 0.8
PROSE = (
    "Why is the sky blue?",
    "Give me three tips for sleeping better.",
    "Write a short letter to a landlord about a broken heater.",
    "What is the difference between a virus and a bacterium?",
    "Tell me about the history of the bicycle.",
    "How do I make a simple tomato soup?",
    "Explain what inflation means to a teenager.",
    "Describe a walk through a forest in autumn.",
)
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
class Cell:
    """What was measured of one case in one state of the machine."""

    name: str
    ratios: dict[int, list[float]] = field(default_factory=lambda: {mark: [] for mark in (*MARKS, WHOLE)})
    own: list[float] = field(default_factory=list)  # of whole replies, by the time for which they had a core
    commands: list[float] = field(default_factory=list)  # ratios of whole commands, loading included
    n_different: int = 0

    def take(self, plain: Reply, ours: Reply) -> None:
        """Takes in a reply, made both ways."""
        for mark in plain.seconds.keys() & ours.seconds.keys():
            self.ratios[mark].append(plain.seconds[mark] / ours.seconds[mark])
        self.own.append(plain.own / ours.own)
        self.commands.append(plain.command / ours.command)
        self.n_different += plain.text != ours.text

    def rows(self) -> Iterator[list[str]]:
        """A row for each mark that replies reached, and one for whole commands."""
        found = {f"{mark} tokens": self.ratios[mark] for mark in MARKS}
        found |= {"whole": self.ratios[WHOLE], "whole, own time": self.own, "command": self.commands}
        for what, values in found.items():
            if values:
                slow, very = (sum(value < limit for value in values) / len(values) for limit in (SLOW, VERY_SLOW))
                middle, least = statistics.median(values), min(values)
                yield [self.name, what, str(len(values)), f"{middle:.3f}", f"{least:.3f}", f"{slow:.0%}", f"{very:.0%}"]


@dataclass(frozen=True, slots=True)
class Reply:
    """What one process said of its reply."""

    seconds: dict[int, float]
    own: float
    text: str
    command: float
    detail: str


def reply(job: Job, cache: Path) -> Reply:
    """One reply in a process of its own. Raises CalledProcessError."""
    env = os.environ | {"XDG_CACHE_HOME": str(cache), "XDG_DATA_HOME": str(cache), "XDG_CONFIG_HOME": str(cache)}
    command = [sys.executable, "-m", "bench.reply_once", json.dumps(asdict(job))]
    began = time.perf_counter()
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    took, found = time.perf_counter() - began, json.loads(done.stdout.splitlines()[-1])
    seconds = {int(mark): each for mark, each in found["seconds"].items()}
    return Reply(
        seconds,
        found["own"][str(WHOLE)],
        found["text"],
        took,
        f"{found['accepted']}/{found['drafted']} {found['worst']}",
    )


def measure(name: str, case: Case, warm: Path | None, n: int, is_told: bool) -> Cell:
    """`n` replies both ways, in turns; in `warm`, or in a cache folder of each one's own."""
    cell = Cell(name)
    for number in range(n):
        jobs = [replace(case.job(number), drafters=()), case.job(number)]
        found = dict[int, Reply]()
        for which in (number % 2, 1 - number % 2):
            with tempfile.TemporaryDirectory() as empty:
                found[which] = reply(jobs[which], warm or Path(empty))
        cell.take(found[0], found[1])
        if is_told:
            ratios = {mark: round(found[0].seconds[mark] / each, 2) for mark, each in found[1].seconds.items()}
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
    found["nothing"] = Case(pair.target, None, (), asked)
    found |= {name: Case(pair.target, None, (name,), asked) for name in ("layerskip", "lookahead", "suffix")}
    smollm2, copying = fetched(MODELS["smollm2"]), [KINDS[kind].text(False) for kind in ("edit", "summary")]
    found |= {"smollm2, nothing": Case(smollm2, None, (), PROSE)}
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
    args = parser.parse_args()
    rows, summary, n_different = list[list[str]](), dict[str, object](), 0
    with tempfile.TemporaryDirectory() as folder:
        cases = all_cases(Path(folder))
        for case in args.cases.split(";"):
            warm = Path(folder) / "warm" / case.replace(", ", "-")
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
                    summary[name] = [round(statistics.median(values), 3) for values in cell.ratios.values() if values]
                    for row in cell.rows():
                        print(" | ".join(row), flush=True)
    columns = ["cell", "up to", "replies", "median", "least", f"under {SLOW}", f"under {VERY_SLOW}"]
    report("first replies, ours / plain", columns, rows, summary | {"different texts": n_different})


if __name__ == "__main__":
    main()
