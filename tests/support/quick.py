"""What `make test` looks at of long lists; the rest is marked `slow`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

LIST = Path(__file__).parents[1] / "slow.txt"

# One family of each kind: dense, sliding window, latent attention, sinks and experts, recurrent, both at once
FAMILIES = ("llama", "gemma3", "deepseek2", "gptoss", "mamba2", "qwen35")


def others_slow(values: Iterable[Any], quick: Collection[Any]) -> list[Any]:
    """Return parameters for `parametrize`, of which all but the quick ones are marked `slow`."""
    return [pytest.param(value, marks=() if value in quick else pytest.mark.slow) for value in values]


def listed(text: str) -> dict[str, set[str]]:
    """Return the cases that stay quick of each test in a list of slow ones, by the test's name without a case."""
    found = defaultdict[str, set[str]](set)
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, _, case = line.partition("[")
            found[name] |= {line} if case else set()
    return found


def mark_slow(items: Sequence[pytest.Item], slow: dict[str, set[str]]) -> None:
    """Mark what is listed: all cases of a test but those that stay quick, or but the first where none is named.

    A case that is marked where it stands is not the first.
    """
    first = dict[str, str]()
    for item in [each for each in items if not each.get_closest_marker("slow")]:
        name, _, case = item.nodeid.partition("[")
        quick = slow.get(name, {item.nodeid}) or ({first.setdefault(name, item.nodeid)} if case else ())
        if item.nodeid not in quick:
            item.add_marker(pytest.mark.slow)
