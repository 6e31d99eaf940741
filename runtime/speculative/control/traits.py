"""Static properties of a drafter. Plain data."""

from __future__ import annotations

from typing import NamedTuple

from runtime.core.drafter import Drafter


class Traits(NamedTuple):
    """Static properties of a drafter, known before its first proposal."""

    seconds: float  # measured seconds per draft token
    is_model_free: bool = False  # a lookup: its tokens cost nothing after the lookup
    spares_work: bool = False  # its computation makes the target's pass over the draft tokens cheaper
    n_window_rows: int = 0  # rows that it adds to each pass for which it proposes


def traits_of(drafter: Drafter, seconds: float) -> Traits:
    """Return the traits of a drafter with these measured seconds per draft token."""
    return Traits(seconds, drafter.is_model_free, drafter.spares_work, drafter.n_window_rows)
