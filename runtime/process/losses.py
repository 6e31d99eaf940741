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
SUSPICIOUS = 2  # losses at a place, after which something is left out that may be the cause
GPU, DRAFTS = "GPU", "drafts"


class Losses:
    """Of an engine that was asked for with these options."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._seen: list[tuple[float, Hashable]] = []  # when and where
        self._has_gpu = False  # was one used when it was lost?

    def note(self, lost: ProcessLostError, place: Hashable, name: str) -> None:
        """Takes one in. Raises ModelError when it is likely to happen again."""
        self._seen.append((time.monotonic(), place))
        self._has_gpu |= lost.has_gpu
        n = self._recent()[place]
        if n >= SUSPICIOUS + len(self._possible_causes):
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
        if not self._causes:
            self._seen = [each for each in self._seen if each[1] != place]

    def _recent(self) -> Counter[Hashable]:
        """How often each place was met lately."""
        now = time.monotonic()
        self._seen = [each for each in self._seen if now - each[0] < MEMORY]
        return Counter(place for _, place in self._seen)

    @property
    def _possible_causes(self) -> list[str]:
        """What can be left out, in this order."""
        return [GPU] * self._has_gpu + [DRAFTS] * (self._options.drafters != ())

    @property
    def _causes(self) -> list[str]:
        """What may be why, and is left out: one thing more for every loss at the same place."""
        return self._possible_causes[: max(0, max(self._recent().values(), default=0) + 1 - SUSPICIOUS)]

    @property
    def is_reduced(self) -> bool:
        """Is something left out of what was asked for?"""
        return bool(self._causes)

    @property
    def options(self) -> Options:
        """What to start with now."""
        asked, causes = self._options, self._causes
        return replace(
            asked,
            without_gpu=asked.without_gpu or GPU in causes,
            drafters=() if DRAFTS in causes else asked.drafters,
        )

    @property
    def consequence(self) -> str:
        """What a person notices of a new start."""
        return {
            (): "; nothing of the text is lost",
            (DRAFTS,): ", without drafts, as they may be why",
            (GPU,): " on the processor, as the GPU or its driver may be why",
            (GPU, DRAFTS): " on the processor and without drafts, as the GPU, its driver or drafts may be why",
        }[tuple(self._causes)]
