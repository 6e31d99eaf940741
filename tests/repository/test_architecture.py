"""The map is true: the picture of the rooms is what the imports say, and every file that the pages name is there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    "docs/architecture.md",
    "docs/architectures.md",
    "docs/usage.md",
    "docs/how-it-works.md",
    "docs/drafters.md",
    "docs/real-models.md",
    "docs/machines.md",
)
NAMED = re.compile(r"`((?:[\w-]+/)+[\w.-]*|[\w-]+\.(?:py|toml|md|svg))`|\]\(([\w./-]+\.(?:md|svg|py))\)")


def test_the_picture_shows_the_imports_of_today() -> None:
    checked = subprocess.run([sys.executable, "docs/architecture.py", "--check"], cwd=ROOT, check=False)
    assert checked.returncode == 0, "draw it again: python docs/architecture.py"


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_names_is_there(page: str) -> None:
    """In full, or from the folder that the page speaks of."""
    names = [name or link for name, link in NAMED.findall((ROOT / page).read_text(encoding="utf8"))]
    everything = {str(path.relative_to(ROOT)) for path in ROOT.rglob("*") if ".venv" not in path.parts}
    missing = [name for name in names if not any(path.endswith(name.strip("./")) for path in everything)]
    assert names
    assert missing == []


def test_every_room_says_what_it_knows_and_what_not() -> None:
    for room in (ROOT / "runtime").rglob("__init__.py"):
        text = room.read_text(encoding="utf8").split('"""')[1]
        assert re.search(r"\b[Kk]nows\b", text) or room.parent.name == "runtime", room


def test_the_readme_can_be_read_in_five_minutes() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf8").split()) <= 1000
