"""Everything that is to be known of a machine with a GPU, in one report: `python -m bench.gpu`.

Libraries are those that are installed, those of `--libraries FOLDER`, or built for `--build BACKEND`. Each part runs
in a process of its own with a time limit, and all together in eight minutes after the build: a part that fails or takes
too long is a line of the report, which is written anew after each. `--rehearse` runs the same parts as short as can be,
on a processor or on Vulkan in software.
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
from bench.timing import machine

MINUTES = 8.0
REPORT = Path("gpu-report.md")
KEPT = 60  # lines of what a part says
DEVICES = (
    "from runtime.backends.devices import backends, devices\n"
    "print('compiled for', ', '.join(backends()))\n"
    "for kind, name, free, total in devices(): print(f'{kind}: {name}, {free / 1e9:.1f} of {total / 1e9:.1f} GB free')"
)
HAS_PEER = "import sys, xllamacpp; sys.exit('CUDA' not in xllamacpp.get_system_info())"


@dataclass(frozen=True, slots=True)
class Part:
    """What is run, and for how many seconds at most; `needs` is a program without which it makes no sense."""

    title: str
    command: tuple[str, ...]  # arguments of Python
    limit: float
    needs: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a part ended, after how many seconds, and what it said."""

    part: Part
    how: str  # "" where all is well
    seconds: float
    said: str

    def lines(self) -> list[str]:
        """Its chapter of the report."""
        said = self.said.rstrip().splitlines()
        cut = [f"... {len(said) - KEPT} lines before ..."] if len(said) > KEPT else []
        state = f"**{self.how}**, " if self.how else ""
        command = "..." if self.part.command[0] == "-c" else " ".join(self.part.command)
        head = f"## {self.part.title}", "", f"{state}{self.seconds:.0f} s: `python {command}`"
        return [*head, "", "```", *cut, *said[-KEPT:], "```", ""]


def bench(name: str, *args: str) -> tuple[str, ...]:
    """The arguments that run one of the benchmarks here."""
    return ("-m", f"bench.{name}", *args)


def parts(is_short: bool) -> list[Part]:
    """In order of worth, because time may run out."""
    shapes = [("tiny", "Q8_0")] if is_short else [(s, q) for s in ("135m", "1b", "8b") for q in ("Q8_0", "Q4_K_M")]
    width = ("--seconds", "2", "--widest", "4") if is_short else ()
    few = ("--runs", "1", "--questions", "1", "--tokens", "24", "--threads", "1")
    drafters = (*few, "--acceptance", "0.9", "--shape", "tiny", "--draft", "tiny") if is_short else (
        "--runs", "3", "--questions", "3", "--acceptance", "0.5", "0.9", "--shape", "1b", "--draft", "10m",
    )  # fmt: skip
    clients = ("--alone", "--clients", "1,2" if is_short else "1,2,4,8", "--temperatures", "0", "--rounds", "1")
    proof = ("--draws", "50" if is_short else "500", "--prompts", "1" if is_short else "4")
    return [
        Part("Devices", ("-c", DEVICES), 60),
        Part("slipstream doctor", ("-m", "app.cli", "doctor"), 90),
        *(Part(f"T(n) and exactness: {s}, {q}", bench("widths", s, q, *width), 90) for s, q in shapes),
        Part("Drafters, early exit, planted pairs", bench("drafters", *drafters), 180),
        Part("Hidden states, and what only a device shows", ("-m", "pytest", "-m", "device", "tests/device"), 150),
        Part("The loop's share of a step", bench("plain"), 90),
        Part("Clients at once", bench("clients", *clients, "--tokens", "24" if is_short else "80"), 120),
        Part("Quick proof", bench("prove", *proof), 120),
        Part("Against llama.cpp's own server", bench("peers", "--questions", "4"), 120, HAS_PEER),
    ]


def run(part: Part, environment: dict[str, str], seconds: float) -> Outcome:
    """Runs it in a process group of its own, which is ended with it."""
    began = time.monotonic()
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
        said, _ = process.communicate(timeout=limit)
        how = f"failed with code {process.returncode}" if process.returncode else ""
    except subprocess.TimeoutExpired:
        end(process)
        said, how = process.communicate()[0], f"ended after its {limit:.0f} seconds"
    return Outcome(part, how, time.monotonic() - began, said)


def end(process: subprocess.Popen[str]) -> None:
    """Ends a process with all that it started."""
    if sys.platform == "win32":
        process.kill()
    else:
        os.killpg(process.pid, signal.SIGKILL)


def run_all(wanted: Iterable[Part], environment: dict[str, str], minutes: float) -> Iterator[Outcome]:
    """Each in turn, as long as there is time."""
    deadline = time.monotonic() + 60 * minutes
    for part in wanted:
        print(f"{part.title} ...", flush=True)
        yield run(part, environment, deadline - time.monotonic())


def write(path: Path, outcomes: list[Outcome]) -> None:
    """The report as it is now."""
    failed = [f"- {outcome.part.title}: {outcome.how}" for outcome in outcomes if outcome.how]
    here = f"{machine()}, {platform.platform()}, Python {platform.python_version()}"
    head = ["# What this machine's GPU does", "", here, ""]
    head += [f"{len(outcomes) - len(failed)} of {len(outcomes)} parts ended well.", *failed, ""]
    path.write_text("\n".join([*head, *(line for outcome in outcomes for line in outcome.lines())]), encoding="utf8")


def arguments() -> argparse.Namespace:
    """What can be asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--libraries", type=Path, help="the folder of libllama, instead of those that are installed")
    source.add_argument("--build", choices=BACKENDS, help="builds them first, in --folder, beyond the time limit")
    parser.add_argument("--folder", type=Path, default=Path("build") / "gpu", help="where they are built")
    parser.add_argument("--report", type=Path, default=REPORT)
    parser.add_argument("--minutes", type=float, default=MINUTES, help="for all parts together")
    parser.add_argument("--only", default="", help="parts whose title has this in it")
    parser.add_argument("--rehearse", action="store_true", help="the same parts, as short as can be")
    return parser.parse_args()


def main() -> None:
    """Wanted: every part ends well."""
    args, outcomes = arguments(), list[Outcome]()
    try:
        folder = built(args.build, args.folder.resolve(), os.cpu_count() or 1) if args.build else args.libraries
    except BuildError as error:
        sys.exit(str(error))
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"} | (
        {"LLAMA_CPP_LIB_PATH": str(folder.resolve())} if folder else {}
    )
    wanted = [part for part in parts(args.rehearse) if args.only.casefold() in part.title.casefold()]
    for outcome in run_all(wanted, environment, args.minutes):
        outcomes.append(outcome)
        write(args.report, outcomes)
        print(f"  {outcome.how or 'well'}, {outcome.seconds:.0f} s", flush=True)
    summary = {outcome.part.title: outcome.how or "well" for outcome in outcomes}
    print(json.dumps({"bench": "gpu", "machine": machine(), "report": str(args.report), "parts": summary}))


if __name__ == "__main__":
    main()
