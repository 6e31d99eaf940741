"""Plants each fault in a copy of the present tree and says which tests catch it.

    python -m tests.planted_faults               # the tests that each fault names: some minutes
    python -m tests.planted_faults 03 11         # faults whose names begin so
    python -m tests.planted_faults 03 --whole    # all that runs by default, up to the first test that fails

Exit status 0: all are caught; 1: one is not, or applies no more; 2: tests fail without any; 130: interrupted.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.planted_faults.fault import Fault, read_faults
from tests.planted_faults.tree import Ran, Tree, copied

SUMMARY = "Plants faults in a copy of the present tree and says which tests catch them."
ROOT = Path(__file__).parents[2]
OWN_TEST = "tests/repository/test_planted_faults.py"  # sees each planted fault as a patch that applies no more
SECONDS = 180.0  # for the tests that a fault names: then it holds them up


class Verdict(NamedTuple):
    """What became of a fault."""

    is_caught: bool
    words: str
    seconds: float = 0.0


def judged(ran: Ran) -> Verdict:
    """Return what a run of tests with the fault means."""
    if ran.status == 1 and ran.failed:
        return Verdict(True, f"caught by {', '.join(ran.failed)}")
    if ran.status == 0:
        return Verdict(False, "NOT CAUGHT")
    last = next(reversed(ran.output.strip().splitlines()), "")
    return Verdict(False, f"NOT CAUGHT: its tests do not run (pytest's status {ran.status}: {last})")


def tried(tree: Tree, fault: Fault, is_whole: bool) -> Verdict:
    """Return what becomes of a fault that is planted in the tree, which is as before then."""
    began = time.monotonic()
    with tree.planted(fault.change) as applies:
        if not applies:
            return Verdict(False, "does not apply any more: renew it")
        try:
            ran = tree.run((), "-x", f"--ignore={OWN_TEST}") if is_whole else tree.run(fault.tests, seconds=SECONDS)
        except subprocess.TimeoutExpired:
            return Verdict(False, f"NOT CAUGHT within {SECONDS:g} s")
    return judged(ran)._replace(seconds=time.monotonic() - began)


def fails_unplanted(tree: Tree, faults: Sequence[Fault]) -> str:
    """Return what pytest says where a named test fails without any fault; "" where all pass."""
    tests = dict.fromkeys(test for fault in faults for test in fault.tests)
    ran = tree.run([*tests], is_whole=True)
    return ran.output if ran.status else ""


def table(verdicts: dict[str, Verdict]) -> str:
    """Return one line for each fault, and how many were caught."""
    width = max(map(len, verdicts), default=0)
    lines = [f"{name:{width}}  {each.seconds:5.1f} s  {each.words}" for name, each in verdicts.items()]
    n_caught = sum(each.is_caught for each in verdicts.values())
    return "\n".join([*lines, f"{n_caught} of {len(verdicts)} planted faults are caught."])


def parsed(arguments: Sequence[str] | None) -> tuple[list[Fault], bool]:
    """Return the faults that are wanted, and whether all tests are; wrong usage ends the program."""
    parser = argparse.ArgumentParser(prog="python -m tests.planted_faults", description=SUMMARY)
    parser.add_argument("names", nargs="*", metavar="NAME", help="how a fault's name begins")
    parser.add_argument("--whole", action="store_true", help="run all tests instead of those that a fault names")
    given = parser.parse_args(arguments)
    if shutil.which("git") is None:
        parser.error("patches are applied by git, which is not here: install it")
    try:
        return read_faults(given.names), given.whole
    except ValueError as error:
        parser.error(str(error))


def plant_all(faults: Sequence[Fault], is_whole: bool, verdicts: dict[str, Verdict]) -> bool:
    """Adds what becomes of each fault; return False where a named test fails without any."""
    with copied(ROOT) as tree:
        say(f"The tests of {len(faults)} faults, none of them planted …")
        if output := fails_unplanted(tree, faults):
            say(f"{output}\nThese tests must pass before a fault is planted.")
            return False
        for fault in faults:
            say(f"{fault.name}: {fault.breaks}")
            verdicts[fault.name] = tried(tree, fault, is_whole)
            say(f"    {verdicts[fault.name].words}")
    return True


def say(text: str) -> None:
    """Tells how far it is."""
    print(text, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status."""
    faults, is_whole = parsed(arguments)
    verdicts = dict[str, Verdict]()
    try:
        if not plant_all(faults, is_whole, verdicts):
            return 2
    except KeyboardInterrupt:
        print(f"{table(verdicts)}\nInterrupted.")
        return 130
    print(table(verdicts))
    return 0 if all(each.is_caught for each in verdicts.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
