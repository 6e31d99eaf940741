"""Light to import: the engine's package loads nothing heavy, the command's help no model library."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("textual", "torch", "llama_cpp", "numpy")


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
