"""Where and when the process with the models was lost, and what follows from that. Knows places and times."""

from __future__ import annotations

import time
from collections.abc import Hashable
from dataclasses import replace

from runtime.core.errors import ModelError
from runtime.loading.options import Options
from runtime.process.model_process import ProcessLostError

MEMORY = 60.0  # seconds for which a loss counts
SUSPICIOUS = 2  # losses at a place, after which drafters are left out, as they may be the cause


class Losses:
    """Of an engine that was asked for with these options."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._times: dict[Hashable, list[float]] = {}

    def note(self, lost: ProcessLostError, place: Hashable, name: str) -> None:
        """Takes one in. Raises ModelError when it is likely to happen again."""
        times = self._recent(place)
        times.append(time.monotonic())
        if len(times) > SUSPICIOUS or (len(times) == SUSPICIOUS and not self.may_draft):
            raise ModelError(
                f"{name} cannot be run: its process was lost {len(times)} times at the same place ({lost}). "
                "Close other programs, if memory is short, or try another file of this model."
            ) from lost

    def _recent(self, place: Hashable) -> list[float]:
        now = time.monotonic()
        recent = self._times[place] = [then for then in self._times.get(place, []) if now - then < MEMORY]
        return recent

    @property
    def may_draft(self) -> bool:
        """Were drafts asked for at all?"""
        return self._options.drafters != ()

    @property
    def _are_drafts_suspicious(self) -> bool:
        return self.may_draft and any(len(self._recent(place)) >= SUSPICIOUS for place in list(self._times))

    @property
    def options(self) -> Options:
        """What to start with now."""
        return replace(self._options, drafters=()) if self._are_drafts_suspicious else self._options

    @property
    def consequence(self) -> str:
        """What a person notices of a new start."""
        return (
            ", without drafts, as they may be why" if self._are_drafts_suspicious else "; nothing of the text is lost"
        )
