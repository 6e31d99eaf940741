"""The list of slow tests names tests that there are, and leaves one case of each quick."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.planted_faults.fault import read_faults
from tests.support.quick import LIST, listed, mark_slow

ROOT = Path(__file__).parents[2]


def test_each_test_that_is_listed_is_there() -> None:
    found = listed(LIST.read_text(encoding="utf8"))
    assert len(found) > 100
    gone = [name for name in found if not is_there(name)]
    assert not gone, f"take these off {LIST.name}, or name what became of them: {gone}"


def test_each_test_that_an_emulated_machine_runs_is_there() -> None:
    text = (ROOT / "tests" / "arm" / "tests.txt").read_text(encoding="utf8")
    found = text.replace("--deselect=", "").splitlines()
    gone = [name for name in found if not ((ROOT / name).is_file() or is_there(name.partition("[")[0]))]
    assert len(found) > 10
    assert not gone


def is_there(name: str) -> bool:
    file, _, function = name.partition("::")
    path = ROOT / file
    return path.is_file() and bool(re.search(rf"^(async )?def {function}\(", path.read_text("utf8"), re.MULTILINE))


def test_what_catches_planted_faults_is_quick() -> None:
    slow = listed(LIST.read_text(encoding="utf8"))
    named = [test for fault in read_faults() for test in fault.tests]
    assert len(named) > 30
    assert not [test for test in named if (name := test.partition("[")[0]) in slow and test not in slow[name]]


class Case:
    """A collected test, as far as it is marked."""

    def __init__(self, name: str) -> None:
        self.name, self.nodeid, self.is_slow = name, f"t.py::{name}", name == "b[0]"

    def get_closest_marker(self, name: str) -> bool:
        return self.is_slow

    def add_marker(self, marker: pytest.MarkDecorator) -> None:
        self.is_slow = marker.name == "slow"


@pytest.mark.parametrize(
    ("text", "quick"),
    [
        ("", "a b[1] b[2] b[3]"),
        ("# why\n\nt.py::a\n", "b[1] b[2] b[3]"),
        ("t.py::b", "a b[1]"),
        ("t.py::b[3]\nt.py::b[2]", "a b[2] b[3]"),
    ],
)
def test_one_case_of_a_test_that_is_listed_stays_quick(text: str, quick: str) -> None:
    cases = [Case(name) for name in ("a", "b[0]", "b[1]", "b[2]", "b[3]")]
    mark_slow(cases, listed(text))  # type: ignore[arg-type]
    assert " ".join(case.name for case in cases if not case.is_slow) == quick
