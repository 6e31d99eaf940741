"""Counts the reasons of passes without a draft, and why drafters were not asked."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from runtime.speculative.control.explain import Why

NUMBERS = re.compile(r"\d+(\.\d+)?")


def reasons(whys: Sequence[Why]) -> list[tuple[str, int]]:
    """Return why passes were plain and how often, most frequent first."""
    return merged((each.reason, 1) for each in whys if each.reason)


def skipped(whys: Sequence[Why]) -> list[tuple[str, int]]:
    """Return which drafters were not asked, why and how often, most frequent first."""
    return merged((f"did not ask {name}: {reason}", 1) for each in whys for name, reason in each.unasked.items())


def merged(counts: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return the sum of the counts of each text, largest first. Texts that differ only in numbers count as the last of
    them.
    """
    found, last = Counter[str](), dict[str, str]()
    for text, n in counts:
        form = NUMBERS.sub("#", text)
        found[form] += n
        last[form] = text
    return [(last[form], n) for form, n in found.most_common()]
