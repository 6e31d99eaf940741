"""Light to import: the engine's package loads nothing heavy, the command's help no model library.

Also which way benchmarks and tests import: both share `bench.instruments`, and a test knows no program but its own.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

HEAVY = ("textual", "torch", "llama_cpp", "numpy")
ROOT = Path(__file__).parents[2]
PROGRAMS = {f"bench.{path.stem}" for path in (ROOT / "bench").glob("*.py")} - {"bench.__init__"}


def modules_in(path: Path) -> Iterator[str]:
    """Modules that a file imports, and those that it names in a text of their own, as commands do."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf8"))):
        match node:
            case ast.Import(names):
                yield from (each.name for each in names)
            case ast.ImportFrom(str(module), names):
                yield from (module, *(f"{module}.{each.name}" for each in names))
            case ast.Constant(str(text)):
                yield text


def files_that_name(folder: str, modules: set[str]) -> dict[str, set[str]]:
    """By file of that folder, relative to the root: which of the modules it names, if any."""
    found = {path: modules.intersection(modules_in(path)) for path in (ROOT / folder).rglob("*.py")}
    return {path.relative_to(ROOT).as_posix(): named for path, named in found.items() if named}


def loaded_by(code: str) -> set[str]:
    """Which of HEAVY a fresh interpreter has loaded after `code`."""
    script = f"{code}\nimport sys\nprint('LOADED', *[name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.rpartition("LOADED")[2].split())


def test_the_runtime_package_is_light() -> None:
    assert loaded_by("import runtime") == set()


def test_help_loads_no_model_library() -> None:
    assert (
        loaded_by(
            "import sys; sys.argv = ['slipstream', '--help']\nfrom app.cli.__main__ import main\ntry: main()\nexcept "
            "SystemExit: pass"
        )
        == set()
    )


def test_the_models_process_is_spawned_before_slow_imports() -> None:
    """Its own imports take as long as the command's, which begin half a second later where this loads the engine."""
    code = "import sys, runtime.core.spawning; print(*{name.rpartition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {name for name in done.stdout.split() if name.startswith("runtime")} == {"runtime", "runtime.core"}


def test_benchmarks_import_nothing_of_the_tests() -> None:
    tests = {".".join(path.relative_to(ROOT).with_suffix("").parts) for path in (ROOT / "tests").rglob("*.py")}
    packages = {name.rpartition(".")[0] for name in tests}
    assert files_that_name("bench", tests | packages) == {}


def test_instruments_know_no_program() -> None:
    assert files_that_name("bench/instruments", PROGRAMS) == {}


def test_only_the_test_of_a_program_knows_it() -> None:
    found = files_that_name("tests", PROGRAMS)
    assert found
    wrong = {path for path in found if not path.startswith("tests/bench/")}
    assert wrong == set()
