"""The search for one target's draft model on this machine, in the background, and when it begins and ends.

The search is `slipstream models pair` in its own process. It begins after an idle time and outlives the engine. Its
result is kept for the next start; nothing waits for it. Knows files and processes; knows no engine.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Lock, Timer, current_thread

import psutil

from app.models.search_process import end_running, note, running, start
from runtime.core.errors import SlipstreamError
from runtime.loading import layout
from runtime.loading.profile_cache import ProfileCache, fingerprint
from runtime.models.registry import user_registry
from runtime.tools.paired import is_settled

IDLE = 30.0  # seconds without a reply after which the search begins
OPT_OUT = "SLIPSTREAM_NO_SEARCH"  # environment variable that disables automatic searches
CHECK_SECONDS = 5.0  # seconds between two looks at whether the search disturbs somebody
Say = Callable[[str], object]
Disturbs = Callable[[], bool]  # whether a search would disturb somebody now; called in other threads


def never() -> bool:
    """Return that a search disturbs nobody."""
    return False


def always() -> bool:
    """Return that a search disturbs somebody, so that none begins."""
    return True


def say_on_stderr(text: str) -> None:
    """Print a message that is not part of the reply to standard error."""
    print(f"slipstream: {text}", file=sys.stderr, flush=True)


class Search:
    """The search for one target's draft model, and for the layout of its weights if `is_open`.

    Its methods may be called from several threads.
    """

    def __init__(self, target: Path, say: Say, wants_draft: bool = True, disturbs: Disturbs = never) -> None:
        self.target, self._say, self._wants_draft, self.is_open = target, say, wants_draft, False
        self._disturbs = disturbs
        self._lock, self._was_announced = Lock(), False
        self._timer: Timer | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def wait(self) -> None:
        """Begin the search after IDLE seconds, unless it is stopped before, and once it disturbs nobody."""
        with self._lock:
            self._set_timer(IDLE)

    def begin(self) -> None:
        """Begin the search, unless it would disturb somebody, there is no new model to try or a search is running."""
        with self._lock:
            self._cancel()
            if not self._disturbs():
                self._begin()

    def stop(self) -> None:
        """Stop the search until it begins again, also one left by an earlier program.

        It can be killed at any point, because its result is written whole or not at all.
        """
        with self._lock:
            self._cancel()
            self._end()
            end_running()

    def _set_timer(self, seconds: float) -> None:
        self._cancel()
        self._timer = Timer(seconds, self._look)
        self._timer.daemon = True
        self._timer.start()

    def _look(self) -> None:
        """Begin the search, or if it would disturb somebody, end it; while there is anything to do, look again."""
        is_disturbing = self._disturbs()
        with self._lock:
            if self._timer is not current_thread():  # stopped meanwhile
                return
            if is_disturbing:
                self._end()
            elif self._process is None:
                self._begin()
            if is_disturbing or (self._process is not None and self._process.poll() is None):
                self._set_timer(CHECK_SECONDS)

    def _begin(self) -> None:
        """Start the process if there is anything to try. Errors are ignored, since no reply depends on it."""
        with suppress(SlipstreamError, OSError, psutil.Error):
            is_open = self.is_open and layout.remembered(self.target) is None
            if os.environ.get(OPT_OUT) or (not is_open and self._sees_nothing_new()) or running():
                return
            folders = self._folders()  # read before the search looks through them
            if (models := self._new_models()) or is_open:
                self._process = start(self.target)
                note(self._process, self.target)
                self._announce(
                    f"{tried(len(models), is_open)} for {self.target.name} in the background; the next start uses "
                    "what pays."
                )
            else:
                self._memo().write({"folders": folders})

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
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

    def _sees_nothing_new(self) -> bool:
        """Return whether the folders are unchanged since there was nothing to try. This must be fast, because it runs
        whenever an engine closes.
        """
        folders = self._memo().read().get("folders", {})
        if not isinstance(folders, dict):
            return False
        return bool(folders) and all(changed(Path(folder)) == when for folder, when in folders.items())

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
