"""Where and when the process with the models was lost, and what follows from that. Knows places and times."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Hashable
from dataclasses import replace

from runtime.core.errors import ModelError
from runtime.loading.options import Options
from runtime.process.model_process import ProcessLostError

WORKER_LOST = "RPC server crashed"  # of what llama.cpp says last where a worker breaks off
MEMORY = 60.0  # seconds for which a loss counts
SUSPICIOUS = 2  # losses at a place, after which drafters are left out, as they may be the cause


class Losses:
    """Of an engine that was asked for with these options."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._seen: list[tuple[float, Hashable]] = []  # when and where

    def note(self, lost: ProcessLostError, place: Hashable, name: str) -> None:
        """Takes one in. Raises ModelError when it is likely to happen again."""
        self._seen.append((time.monotonic(), place))
        n = self._recent()[place]
        if n > SUSPICIOUS or (n == SUSPICIOUS and not self.may_draft):
            raise ModelError(
                f"{name} cannot be run: its process was lost {n} times at the same place ({lost}). {self._remedy(lost)}"
            ) from lost

    def _remedy(self, lost: ProcessLostError) -> str:
        """What can be done about it."""
        if self._options.rpc and WORKER_LOST in str(lost):
            workers = ", ".join(self._options.rpc)
            return f"A worker broke off, as one does whose memory is too small: see what it says there ({workers})."
        return "Close other programs, if memory is short, or try another file of this model."

    def forgive(self, place: Hashable) -> None:
        """It has been passed with what was asked for, so nothing there is the cause."""
        if not self._are_drafts_suspicious:
            self._seen = [each for each in self._seen if each[1] != place]

    def _recent(self) -> Counter[Hashable]:
        """How often each place was met lately."""
        now = time.monotonic()
        self._seen = [each for each in self._seen if now - each[0] < MEMORY]
        return Counter(place for _, place in self._seen)

    @property
    def may_draft(self) -> bool:
        """Were drafts asked for at all?"""
        return self._options.drafters != ()

    @property
    def _are_drafts_suspicious(self) -> bool:
        return self.may_draft and any(n >= SUSPICIOUS for n in self._recent().values())

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
