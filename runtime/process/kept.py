"""The model process of a pair, restarted when it is wanted after a loss."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import TypeVar

from runtime.core.backend import OnProgress
from runtime.core.errors import ModelError
from runtime.loading.options import Options
from runtime.models.registry import Pair
from runtime.process.losses import Losses
from runtime.process.model_process import ModelProcess, ProcessLostError

WORKER_TIMEOUT = 15.0  # seconds that a worker may take to be reachable again
CLOSED = "The model is closed."
Answer = TypeVar("Answer")


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
