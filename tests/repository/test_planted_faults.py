"""The planted faults are ready to be planted, and the program that plants them sees which are caught."""

from __future__ import annotations

import ast
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.planted_faults.__main__ import ROOT, table, tried
from tests.planted_faults.fault import Fault, read_faults
from tests.planted_faults.tree import Tree, copied

FAULTS = read_faults()
needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="patches are applied by git, which is not here")


@cache
def functions(file: str) -> dict[str, str]:
    """Return the tests of a file by name, each with its marks and the file's as they are written."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf8"))
    marks = [ast.unparse(each) for each in tree.body if isinstance(each, ast.Assign) and "pytestmark" in ast.dump(each)]
    return {
        each.name: " ".join([*marks, *map(ast.unparse, each.decorator_list)])
        for each in tree.body
        if isinstance(each, ast.FunctionDef)
    }


def test_there_are_many_and_none_twice() -> None:
    assert len(FAULTS) >= 32
    for field in ("change", "breaks"):
        assert [text for text, n in Counter(getattr(fault, field) for fault in FAULTS).items() if n > 1] == []
    numbers = [fault.name.split("-")[0] for fault in FAULTS]
    assert numbers == [f"{number:02}" for number in range(1, len(FAULTS) + 1)]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_names_tests_that_run_by_default(fault: Fault) -> None:
    for test in fault.tests:
        file, _, name = test.partition("::")
        assert name.split("[")[0] in functions(file), f"{fault.name}: {test} is not there"
        assert "mark.slow" not in functions(file)[name.split("[")[0]], f"{fault.name}: {test} is slow: name a quick one"


@needs_git
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_can_be_planted(fault: Fault) -> None:
    """Where the code has changed, make the change anew and keep the head: `git diff -U1`."""
    found = subprocess.run(
        ["git", "apply", "--check"], input=fault.change, cwd=ROOT, text=True, capture_output=True, check=False
    )
    assert found.returncode == 0, f"{fault.name} does not apply any more: renew it. {found.stderr}"


@pytest.mark.parametrize(
    "text", ["It breaks.\n\ndiff --git a/x b/x\n", "Caught-by: tests/x.py::test_x\n\ndiff --git a/x b/x\n"]
)
def test_a_patch_without_a_whole_head_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "01-x.patch").write_text(text)
    with pytest.raises(ValueError, match=r"01-x\.patch needs"):
        read_faults(folder=tmp_path)


def test_faults_are_chosen_by_how_their_names_begin() -> None:
    assert [fault.name for fault in read_faults(["01"])] == [FAULTS[0].name]
    with pytest.raises(ValueError, match="no planted fault 'x'"):
        read_faults(["x"])


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tree]:
    """A copy of a small tree with a sum and a test of it."""
    folder = tmp_path_factory.mktemp("small")
    (folder / "sums.py").write_text("def plus(a, b):\n    return a + b\n")
    (folder / "test_sums.py").write_text("from sums import plus\n\n\ndef test_plus():\n    assert plus(1, 2) == 3\n")
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    with copied(folder) as tree:
        yield tree
    assert not tree.folder.exists()


@needs_git
@pytest.mark.parametrize(
    ("line", "becomes", "words"),
    [
        ("    return a + b", "    return a - b", "caught by test_sums.py::test_plus"),
        ("    return a + b", "    return b + a", "NOT CAUGHT"),
        ("    return a * b", "    return a / b", "does not apply any more: renew it"),
        ("    return a + b", "    return a +", "NOT CAUGHT: its tests do not run"),
    ],
    ids=["caught", "harmless", "old", "broken"],
)
def test_what_becomes_of_a_fault_is_told_and_the_tree_is_as_before(
    tree: Tree, line: str, becomes: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # they take seconds, and the small tree needs none
    head = "diff --git a/sums.py b/sums.py\n--- a/sums.py\n+++ b/sums.py\n"
    change = f"{head}@@ -1,2 +1,2 @@\n def plus(a, b):\n-{line}\n+{becomes}\n"
    verdict = tried(tree, Fault("01-sum", "Sums are wrong.", ("test_sums.py::test_plus",), change), is_whole=False)
    assert verdict.words.startswith(words)
    assert verdict.is_caught == words.startswith("caught")
    assert f"{int(verdict.is_caught)} of 1 planted faults are caught." in table({"01-sum": verdict})
    assert (tree.folder / "sums.py").read_text() == "def plus(a, b):\n    return a + b\n"
