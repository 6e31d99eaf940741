"""The search for one target's draft model on this machine, in the background, and when it begins and ends.

It begins after an idle time and ends with the engine. Its result is kept for the next start; nothing waits for it.
Knows files and processes; knows no engine.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import RLock, Timer, current_thread

from app.models.search_process import NOT_NOW, running, start
from app.terminal import print_note
from runtime.core.children import Child
from runtime.core.errors import SlipstreamError
from runtime.loading import layout
from runtime.loading.neighbours import Neighbours
from runtime.loading.pass_timing import n_cores
from runtime.loading.profile_cache import ProfileCache, fingerprint
from runtime.models.registry import user_registry
from runtime.tools.paired import is_settled, note_failure

IDLE = 30.0  # seconds without a reply after which the search begins; twice as long after each that was stopped
OPT_OUT = "SLIPSTREAM_NO_SEARCH"  # environment variable that disables automatic searches
CHECK_SECONDS = 5.0  # seconds between two looks at whether the search disturbs somebody
BUSY = 0.25  # share of the cores that others use, from which on a search would disturb them, and they it
Say = Callable[[str], object]
Disturbs = Callable[[], bool]  # whether a search would disturb somebody now; called in other threads


def never() -> bool:
    """Return that a search disturbs nobody."""
    return False


def is_busy() -> bool:
    """Return whether other programs use the cores, such as another Slipstream that replies. Takes a moment."""
    return Neighbours().wait() > BUSY * n_cores()


def say_on_stderr(text: str) -> None:
    """Print a message that is not part of the reply to standard error."""
    print_note(f"slipstream: {text}")


class Search:
    """The search for one target's draft model, and with `tries_layout` for the layout of its weights, if replies have
    seeds. Its methods may be called from several threads.
    """

    def __init__(
        self, target: Path, say: Say, wants_draft: bool = True, tries_layout: bool = False, disturbs: Disturbs = never
    ) -> None:
        self.target, self._say, self._disturbs = target, say, disturbs
        self._wants_draft, self._tries_layout = wants_draft, tries_layout
        self._lock, self._was_announced, self._idle = RLock(), False, IDLE
        self._timer: Timer | None = None
        self._process: Child | None = None
        self._scope: dict[str, object] = {}  # what the process looks through

    def wait(self) -> None:
        """Begin the search after an idle time, unless it is stopped before, and once it disturbs nobody."""
        with self._lock:
            self._set_timer(self._idle)

    def begin(self) -> None:
        """Begin the search, unless it would find nothing new or one is running. Errors are ignored, since no reply
        depends on it.
        """
        with self._lock, suppress(SlipstreamError, OSError):
            tries_layout = self._tries_layout and layout.has_seeds(self.target) and not layout.remembered(self.target)
            if os.environ.get(OPT_OUT) or running():
                return
            scope = {"folders": self._folders(), "layout": tries_layout}
            if self._memo().read() == scope:
                return
            if (models := self._new_models()) or tries_layout:
                self._process, self._scope = start(self.target), scope
                self._announce(
                    f"{tried(len(models), tries_layout)} for {self.target.name} in the background; the next start uses "
                    "what pays."
                )
            else:
                self._memo().write(scope)

    def stop(self) -> None:
        """Stop the search until it begins again. It can be killed at any point, because its result is written whole or
        not at all.
        """
        with self._lock:
            self._cancel()
            if self._is_running():
                self._idle *= 2
            self._end()

    def _set_timer(self, seconds: float) -> None:
        self._cancel()
        self._timer = Timer(seconds, self._look)
        self._timer.daemon = True
        self._timer.start()

    def _look(self) -> None:
        """Begin the search, or if it would disturb somebody, end it; while there is anything to do, look again."""
        is_disturbing = self._disturbs() or (self._process is None and is_busy())
        with self._lock:
            if self._timer is not current_thread():  # stopped meanwhile
                return
            if is_disturbing:
                self._end()
            elif self._process is None:
                self.begin()
            if is_disturbing or self._is_running():
                self._set_timer(CHECK_SECONDS)

    def _is_running(self) -> bool:
        """Return whether the process runs. What it looked through is noted if it has ended by itself, also by a crash:
        it would find the same again.
        """
        if self._process is None or (code := self._process.poll()) is None:
            return self._process is not None
        self._process = None
        if code not in (-getattr(signal, "SIGKILL", 0), NOT_NOW):
            with suppress(OSError):  # the target is gone
                self._memo().write(self._scope)
            if code:
                note_failure(self.target, f"its process ended with code {code}.")
        return False

    def _end(self) -> None:
        if self._is_running() and self._process is not None:
            self._process.end()
            self._process = None

    def _announce(self, text: str) -> None:
        """Announce the search to the user, only the first time."""
        if not self._was_announced:
            self._say(text)
        self._was_announced = True

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _folders(self) -> dict[str, int]:
        """Return the folders that models come from, and when each changed."""
        from huggingface_hub import constants  # slow to import and rarely needed

        places = (self.target.absolute().parent, Path(constants.HF_HUB_CACHE), user_registry())
        return {str(place): changed(place) for place in places}

    def _new_models(self) -> list[Path]:
        """Return the models to try. Empty if all of them were tried."""
        from app.models.pair import usual_candidates  # slow to import and rarely needed

        models = usual_candidates(self.target) if self._wants_draft else []
        return [] if is_settled(self.target, models) else models

    def _memo(self) -> ProfileCache:
        return ProfileCache(fingerprint(self.target, "search"))


def changed(path: Path) -> int:
    """Return when a file or folder changed, in nanoseconds. 0 if there is none."""
    return path.stat().st_mtime_ns if path.exists() else 0


def tried(n: int, has_layouts: bool) -> str:
    """Return the start of a sentence about the trials: models as drafts, layouts of the weights."""
    models = "One model is tried as a draft" if n == 1 else f"{n} models are tried as a draft"
    if not has_layouts:
        return models
    return f"{models}, and another layout of the weights," if n else "Another layout of the weights is tried"
