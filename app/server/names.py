"""Names of models as clients write them. Knows texts only."""

from __future__ import annotations

from collections.abc import Sequence

TAG = ":latest"  # which Ollama's clients add to a name
MOST_NAMES = 8  # in an error


def usual(name: str) -> str:
    """Return a name as it is compared: without case and Ollama's tag."""
    return name.lower().removesuffix(TAG)


def listed(names: Sequence[str]) -> str:
    """Return the names, or the first of many."""
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more


def split_name(name: str) -> tuple[str, str]:
    """Return the parts of `MODEL:ADAPTER` as they are compared; the second is "" where there is none."""
    base, colon, title = usual(name).rpartition(":")
    return (base, title) if colon else (title, "")
