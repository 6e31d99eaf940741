"""Tracks losses of the model process and decides what to disable at a restart. Knows places and times."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Hashable
from dataclasses import replace

from runtime.core.errors import ModelError
from runtime.loading.options import Options
from runtime.process.model_process import ProcessLostError

WORKER_LOST = "RPC server crashed"  # part of llama.cpp's last message when a worker fails
MEMORY = 60.0  # seconds for which a loss counts
SUSPICIOUS = 2  # losses at the same place from which a possible cause is disabled
GPU, DRAFTS = "GPU", "drafts"


class Losses:
    """The losses of an engine with these requested options."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._seen: list[tuple[float, Hashable]] = []  # (time, place)
        self._has_gpu = False  # whether a lost process used a GPU
        self._lost_at = 0.0  # time of the last loss
        self._n_restored = 0  # number of times that everything was enabled again

    def note(self, lost: ProcessLostError, place: Hashable, name: str) -> None:
        """Record a loss. Raises ModelError if it is likely to happen again."""
        self._lost_at = time.monotonic()
        self._seen.append((self._lost_at, place))
        self._has_gpu |= lost.has_gpu
        n = self._recent()[place]
        if n >= SUSPICIOUS + len(self._possible_causes):
            raise ModelError(
                f"{name} cannot be run: its process was lost {n} times at the same place ({lost}). {self._remedy(lost)}"
            ) from lost

    def _remedy(self, lost: ProcessLostError) -> str:
        """Return a remedy for the user."""
        if self._options.rpc and WORKER_LOST in str(lost):
            workers = ", ".join(self._options.rpc)
            return f"A worker failed, perhaps because its memory is too small: see its messages there ({workers})."
        return "Close other programs, if memory is short, or try another file of this model."

    def forgive(self, place: Hashable) -> None:
        """Forget the losses at a place that was passed with the requested options, unless something is disabled."""
        if self._seen and not self._causes:
            self._seen = [each for each in self._seen if each[1] != place]

    def _recent(self) -> Counter[Hashable]:
        """Return the number of recent losses by place."""
        now = time.monotonic()
        self._seen = [each for each in self._seen if now - each[0] < MEMORY]
        return Counter(place for _, place in self._seen)

    @property
    def _possible_causes(self) -> list[str]:
        """Features that can be disabled, in this order."""
        return [GPU] * self._has_gpu + [DRAFTS] * (self._options.drafters != ())

    @property
    def _causes(self) -> list[str]:
        """Disabled features, one more for every further loss at the same place."""
        return self._possible_causes[: max(0, max(self._recent().values(), default=0) + 1 - SUSPICIOUS)]

    @property
    def is_reduced(self) -> bool:
        """Whether a requested feature is disabled."""
        return bool(self._causes)

    @property
    def is_past(self) -> bool:
        """Whether the last loss was long ago: a minute, and twice as long with every time it happened again."""
        return time.monotonic() - self._lost_at > MEMORY * (1 << self._n_restored)

    def restored(self) -> None:
        """Record that everything requested is enabled again."""
        self._n_restored += 1

    @property
    def options(self) -> Options:
        """Options for the next start."""
        asked, causes = self._options, self._causes
        return replace(
            asked,
            without_gpu=asked.without_gpu or GPU in causes,
            drafters=() if DRAFTS in causes else asked.drafters,
        )

    @property
    def consequence(self) -> str:
        """Effect of a restart, as part of a message to the user."""
        return {
            (): "; no text is lost",
            (DRAFTS,): ", without drafts, as they may be the cause",
            (GPU,): " on the processor, as the GPU or its driver may be the cause",
            (
                GPU,
                DRAFTS,
            ): " on the processor and without drafts, as the GPU, its driver or drafts may be the cause",
        }[tuple(self._causes)]
