"""What is known of a drafter before it was asked. Plain data."""

from __future__ import annotations

from typing import NamedTuple

from runtime.core.drafter import Drafter


class Traits(NamedTuple):
    """What is known of a drafter before it was asked."""

    seconds: float  # of a draft token, as measured
    is_model_free: bool = False  # costs nothing to use once it has answered
    spares_work: bool = False  # what it leaves behind makes the target's pass over its tokens cheaper
    must_earn: bool = False  # expects repetition: that must be seen before it is believed
    n_window_rows: int = 0  # that it has in every pass before which it is asked


def traits_of(drafter: Drafter, seconds: float) -> Traits:
    """Return the traits of a drafter, a token of which takes so many seconds."""
    return Traits(seconds, drafter.is_model_free, drafter.spares_work, drafter.must_earn, drafter.n_window_rows)
