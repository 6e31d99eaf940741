"""Runs all checks and benchmarks that matter on a machine with a GPU, and writes one report.

Usage: `python -m bench.gpu`. The libraries are the installed ones, those of `--libraries FOLDER`, or built for `--build
BACKEND`. Each part runs in a process of its own with a time limit, and all together in eight minutes after the build. A
part that fails or times out is a line of the report, which is rewritten after each part. A pass is timed first. Where
it takes longer than on a GPU, on a processor or on Vulkan in software, every part gets proportionally less work.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.build import BACKENDS, BuildError, built
from bench.instruments.shapes import SHAPES
from bench.instruments.timing import machine

MINUTES = 8.0
REPORT = Path("gpu-report.md")
KEPT = 60  # last lines of a part's output in the report
DEVICES = (
    "from runtime.backends.library import backends, devices\n"
    "print('compiled for', ', '.join(backends()))\n"
    "for kind, name, free, total in devices(): print(f'{kind}: {name}, {free / 1e9:.1f} of {total / 1e9:.1f} GB free')"
)
QUICK = 4e-3  # seconds of a pass of 135 M weights, up to which all parts end in time
SPEED_LIMIT = 30.0  # seconds for timing that pass
SLOW = 1e-2  # share of a GPU's speed, below which even the least work of some parts takes minutes
TOO_SLOW = "left out, because passes are so slow here that the least of it would not end in {limit:.0f} seconds"
HAS_PEER = "import sys, xllamacpp; sys.exit('CUDA' not in xllamacpp.get_system_info())"


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the report, with its time limit in seconds. It is left out if the program `needs` fails or if it
    `is_too_much`.
    """

    title: str
    command: tuple[str, ...]  # arguments of Python
    limit: float
    needs: str = ""
    is_too_much: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a part, its seconds and its output."""

    part: Part
    how: str  # "" for success
    seconds: float
    output: str

    def lines(self) -> list[str]:
        """Return the part's chapter of the report."""
        output = self.output.rstrip().splitlines()
        cut = [f"... {len(output) - KEPT} lines before ..."] if len(output) > KEPT else []
        state = f"**{self.how}**, " if self.how else ""
        command = "..." if self.part.command[0] == "-c" else " ".join(self.part.command)
        head = f"## {self.part.title}", "", f"{state}{self.seconds:.0f} s: `python {command}`"
        return [*head, "", "```", *cut, *output[-KEPT:], "```", ""]


def bench(name: str, *args: str) -> tuple[str, ...]:
    """Return the Python arguments that run a benchmark."""
    return ("-m", f"bench.{name}", *args)


SPEED = Part("How long a pass takes", bench("widths", "135m", "--seconds", "1", "--widest", "1"), SPEED_LIMIT)


def size_of(speed: Outcome) -> float:
    """Return the amount of work relative to a GPU's, 1 at most."""
    last = speed.output.rstrip().rpartition("\n")[2]
    seconds = SPEED_LIMIT if speed.how else json.loads(last)["ms"]["1"] / 1e3
    return min(1.0, QUICK / seconds)


def parts(size: float) -> list[Part]:
    """Return the parts with that amount of work, the most important first as time may run out."""
    is_slow = size < SLOW

    def scaled(most: int, least: int = 1) -> str:
        return str(max(least, round(most * size)))

    def fits(shape: str) -> bool:
        return SHAPES[shape].n_weights <= size * SHAPES["8b"].n_weights

    target, draft = ("tiny", "tiny") if is_slow else ("1b" if size == 1 else "135m", "10m")
    shapes = [("tiny", "Q8_0")] if is_slow else [(s, q) for s in ("135m", "1b", "8b") for q in ("Q8_0", "Q4_K_M")]
    width = ("--seconds", scaled(8), "--widest", scaled(16, 4))
    few = ("--runs", scaled(2), "--questions", scaled(2), "--tokens", scaled(64, 16), "--threads", "1")
    planted = ("--acceptance", *("0.9", "0.5")[: int(scaled(2))], "--shape", target, "--draft", draft)
    planted += ("--planted",) if is_slow else ()
    share = ("--runs", scaled(9), "--tokens", scaled(128, 4), "--shape", "tiny" if is_slow else "135m")
    device = ("-m", "pytest", "-m", "device", "tests/device", *(("-k", "hidden_states") if is_slow else ()))
    clients = ("--alone", "--temperatures", "0", "--rounds", "1", "--tokens", scaled(80, 8))
    proof = ("--draws", scaled(500, 100), "--prompts", scaled(2), "--ways", scaled(26, 6), "--jobs", "4")
    return [
        Part("Devices", ("-c", DEVICES), 60),
        Part("slipstream doctor", ("-m", "app.cli", "doctor"), 90, is_too_much=is_slow),
        *(
            Part(
                f"T(n) and exactness: {s}, {q}", bench("widths", s, q, *width), 90,
                is_too_much=s != "tiny" and not fits(s),
            )
            for s, q in shapes
        ),
        Part("Drafters, early exit, planted pairs", bench("drafters", *few, *planted), 180),
        Part("Hidden states, and what only a device shows", device, 180),
        Part("The loop's share of a step", bench("plain", *share), 90),
        Part("Clients at once", bench("clients", *clients), 120, is_too_much=is_slow),
        Part("Quick proof", bench("prove", *proof), 120, is_too_much=is_slow),
        Part("Against llama.cpp's own server", bench("peers", "--questions", scaled(4)), 120, HAS_PEER),
    ]  # fmt: skip


def run(part: Part, environment: dict[str, str], seconds: float) -> Outcome:
    """Run a part in a process group of its own, which is ended with it."""
    began = time.monotonic()
    if part.is_too_much:
        return Outcome(part, TOO_SLOW.format(limit=part.limit), 0.0, "")
    if part.needs and subprocess.run([sys.executable, "-c", part.needs], capture_output=True, check=False).returncode:
        return Outcome(part, "left out, because what it compares with was not built for a GPU", 0.0, "")
    limit = min(part.limit, seconds)
    if limit <= 0:
        return Outcome(part, "left out, because the time was spent", 0.0, "")
    process = subprocess.Popen(
        [sys.executable, *part.command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env=environment, cwd=Path(__file__).parents[1], start_new_session=True, encoding="utf8", errors="replace",
    )  # fmt: skip
    try:
        output, _ = process.communicate(timeout=limit)
        how = f"failed with code {process.returncode}" if process.returncode else ""
    except subprocess.TimeoutExpired:
        end(process)
        output, how = process.communicate()[0], f"ended after its {limit:.0f} seconds"
    return Outcome(part, how, time.monotonic() - began, output)


def end(process: subprocess.Popen[str]) -> None:
    """End a process with all its children."""
    if sys.platform == "win32":
        process.kill()
    else:
        os.killpg(process.pid, signal.SIGKILL)


def run_all(wanted: Iterable[Part], environment: dict[str, str], deadline: float) -> Iterator[Outcome]:
    """Run each part in turn, as long as there is time."""
    for part in wanted:
        print(f"{part.title} ...", flush=True)
        yield run(part, environment, deadline - time.monotonic())


def measured(args: argparse.Namespace, environment: dict[str, str]) -> Iterator[Outcome]:
    """Time the pass first, then run all selected parts."""
    deadline = time.monotonic() + 60 * args.minutes
    speed = next(run_all([SPEED], environment, deadline))
    yield speed
    size = size_of(speed)
    print(f"  so {100 * size:.2g}% of what a GPU is asked for", flush=True)
    wanted = [part for part in parts(size) if args.only.casefold() in part.title.casefold()]
    yield from run_all(wanted, environment, deadline)


def write(path: Path, outcomes: list[Outcome]) -> None:
    """Write the report as it is now."""
    failed = [f"- {outcome.part.title}: {outcome.how}" for outcome in outcomes if outcome.how]
    here = f"{machine()}, {platform.platform()}, Python {platform.python_version()}"
    head = ["# What this machine's GPU does", "", here, ""]
    head += [f"{len(outcomes) - len(failed)} of {len(outcomes)} parts ended well.", *failed, ""]
    path.write_text("\n".join([*head, *(line for outcome in outcomes for line in outcome.lines())]), encoding="utf8")


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--libraries", type=Path, help="the folder of libllama, instead of those that are installed")
    source.add_argument("--build", choices=BACKENDS, help="builds them first, in --folder, beyond the time limit")
    parser.add_argument("--folder", type=Path, default=Path("build") / "gpu", help="where they are built")
    parser.add_argument("--report", type=Path, default=REPORT)
    parser.add_argument("--minutes", type=float, default=MINUTES, help="for all parts together")
    parser.add_argument("--only", default="", help="parts whose title has this in it")
    return parser.parse_args()


def main() -> None:
    """Goal: every part succeeds."""
    args, outcomes = arguments(), list[Outcome]()
    try:
        folder = built(args.build, args.folder.resolve(), os.cpu_count() or 1) if args.build else args.libraries
    except BuildError as error:
        sys.exit(str(error))
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"} | (
        {"LLAMA_CPP_LIB_PATH": str(folder.resolve())} if folder else {}
    )
    for outcome in measured(args, environment):
        outcomes.append(outcome)
        write(args.report, outcomes)
        print(f"  {outcome.how or 'well'}, {outcome.seconds:.0f} s", flush=True)
    summary = {outcome.part.title: outcome.how or "well" for outcome in outcomes}
    print(json.dumps({"bench": "gpu", "machine": machine(), "report": str(args.report), "parts": summary}))


if __name__ == "__main__":
    main()
