"""The model process of a pair, restarted when it is needed after a loss, without what the losses may be due to."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import TypeVar

from runtime.core.backend import OnProgress
from runtime.core.errors import ModelError
from runtime.engine.process.model_process import ModelProcess, ProcessLostError
from runtime.loading.options import Options
from runtime.models.registry import Pair

WORKER_TIMEOUT = 15.0  # seconds that a worker may take to be reachable again
CLOSED = "The model is closed."
Answer = TypeVar("Answer")
WORKER_LOST = "RPC server crashed"  # part of llama.cpp's last message when a worker fails
MEMORY = 60.0  # seconds for which a loss counts
SUSPICIOUS = 2  # losses at the same place from which a possible cause is disabled
GPU, DRAFTS = "GPU", "drafts"


class KeptProcess:
    """The current process, and the losses so far."""

    def __init__(
        self,
        pair: Pair,
        options: Options,
        on_progress: OnProgress,
        on_wait: Callable[[], None],
        on_restart: Callable[[str], None],
    ) -> None:
        """`on_wait` is called from time to time during a restart; `on_restart` gets a message after it."""
        self._pair, self._losses, self._lock, self.is_closed = pair, Losses(options), threading.RLock(), False
        self._on_wait, self._on_restart = on_wait, on_restart
        self._is_reduced = False  # whether the current process runs without something that was requested
        self.current = self._started(on_progress)
        self._losses.forget_others()
        if self._losses.is_reduced:
            facts = self.current.facts
            lost = f"the model's process was lost while it loaded and was started again{self._losses.consequence}"
            self.current.facts = replace(facts, left_out="; ".join(filter(None, (facts.left_out, lost))))

    def _started(self, on_progress: OnProgress, timeout: float = 0.0) -> ModelProcess:
        """Start the process and load the pair; restart it if it is lost.

        Workers may be unreachable for `timeout` seconds, because the process is lost when a worker is. Raises what
        loading raises, and ModelError if loading lost the process several times.
        """
        while True:
            self._is_reduced = self._losses.is_reduced
            try:
                process = ModelProcess(self._pair, replace(self._losses.options, worker_timeout=timeout), on_progress)
            except ProcessLostError as lost:
                self.note_loss(lost, "load")
            else:
                self._losses.forgive("load")
                return process

    def living(self) -> ModelProcess:
        """Return the process, restarted if it was lost. Raises what loading raises."""
        with self._lock:
            if not self.current.is_alive:
                self._restart()
                left_out = self.current.facts.left_out
                how = f"has been started again{self._losses.consequence}.{f' {left_out}.' if left_out else ''}"
                self._on_restart(f"The model's process was lost and {how}")
            return self.current

    def restore(self) -> None:
        """Restart an idle process that runs without drafts or the GPU, once the losses are long past."""
        if not self._is_reduced or not self._losses.is_past:
            return
        with self._lock:
            self._losses.restored()
            self._restart()
            self._on_restart("The model's process was started again with all that was left out after its losses.")

    def _restart(self) -> None:
        """Close the process and start another. Raises what loading raises."""
        if self.is_closed:
            raise ModelError(CLOSED)
        self.current.close()
        try:
            self.current = self._started(self._goes_on, WORKER_TIMEOUT)
        except KeyboardInterrupt:  # closed meanwhile
            raise ModelError(CLOSED) from None

    def _goes_on(self, what: str, share: float) -> bool:
        self._on_wait()
        return not self.is_closed

    def note_loss(self, lost: ProcessLostError, place: Hashable) -> None:
        """Record the loss of the process at this place. Raises ModelError if losses there repeat."""
        with self._lock:
            self._losses.note(lost, place, self._pair.target.name)

    def call(self, ask: Callable[[ModelProcess], Answer]) -> Answer:
        """Return what `ask` returns for the process, for a new one after a loss. Raises what `ask` raises."""
        place = object()
        while True:
            try:
                return ask(self.living())
            except ProcessLostError as lost:
                self.note_loss(lost, place)

    def close(self, is_busy: bool) -> None:
        """Free the models, at once if the process is busy with replies; calls in progress fail."""
        self.is_closed = True
        self.current.close(is_busy)


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

    def forget_others(self) -> None:
        """Let later starts use the memory that was left to other models at the first one."""
        self._options = replace(self._options, reserved=0, is_whole=False)

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
