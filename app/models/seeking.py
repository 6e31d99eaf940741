"""`--draft auto` for a target without a known draft model: after a reply, the models on this machine are tried as
drafts in the background.

The search is `slipstream models pair` in its own process. It begins after an idle time and outlives the engine. It ends
when the next reply begins or another engine is loaded. Its result is kept for the next start; nothing waits for it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Lock, Timer

import psutil

from app.models.search_process import end_running, note, running, start
from runtime.core.backend import OnProgress
from runtime.core.errors import SlipstreamError
from runtime.engine import Engine, Options
from runtime.engine.engine import Ask
from runtime.engine.output import Output
from runtime.engine.trace import TraceFile
from runtime.loading import layout
from runtime.loading.profile_cache import ProfileCache, fingerprint
from runtime.models.registry import Pair, user_registry
from runtime.process.client import EngineProcess
from runtime.process.spawning import discard
from runtime.tools.paired import is_settled, remembered

IDLE = 30.0  # seconds without a reply after which the search begins
OPT_OUT = "SLIPSTREAM_NO_SEARCH"  # environment variable that disables automatic searches
Say = Callable[[str], object]


def say_on_stderr(text: str) -> None:
    """Print a message that is not part of the reply to standard error."""
    print(f"slipstream: {text}", file=sys.stderr, flush=True)


class Search:
    """The search for one target's draft model, and for the layout of its weights if `is_open`.

    Its methods may be called from several threads.
    """

    def __init__(self, target: Path, say: Say, wants_draft: bool = True) -> None:
        self.target, self._say, self._wants_draft, self.is_open = target, say, wants_draft, False
        self._lock, self._was_announced = Lock(), False
        self._timer: Timer | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def wait(self) -> None:
        """Begin the search after IDLE seconds, unless it is stopped before."""
        with self._lock:
            self._timer = Timer(IDLE, self.begin)
            self._timer.daemon = True
            self._timer.start()

    def begin(self) -> None:
        """Begin the search, unless there is no new model to try or a search is running. Errors are ignored, since no
        reply depends on it.
        """
        with self._lock, suppress(SlipstreamError, OSError, psutil.Error):
            self._cancel()
            is_open = self.is_open and layout.remembered(self.target) is None
            if os.environ.get(OPT_OUT) or (not is_open and self._sees_nothing_new()) or running():
                return
            folders = self._folders()  # read before the search looks through them
            if (models := self._new_models()) or is_open:
                self._process = start(self.target)
                note(self._process)
                self._announce(
                    f"{tried(len(models), is_open)} for {self.target.name} in the background; the next start takes "
                    "what pays."
                )
            else:
                self._memo().write({"folders": folders})

    def stop(self) -> None:
        """Stop the search until it begins again, also one left by an earlier program.

        It can be killed at any point, because its result is written whole or not at all.
        """
        with self._lock:
            self._cancel()
            if self._process is not None:
                self._process.kill()
                self._process.wait()
                self._process = None
            end_running()

    def _announce(self, text: str) -> None:
        """Announce the search to the user, only the first time."""
        if not self._was_announced:
            self._say(text)
        self._was_announced = True

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

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


class SeekingEngine(EngineProcess):
    """An engine that starts the search for a draft model if its pair has none and may use one."""

    def __init__(
        self,
        pair: Pair,
        options: Options | None = None,
        on_progress: Callable[[str, float], bool] | None = None,
        say: Say = say_on_stderr,
        on_loss: Say = say_on_stderr,
        trace: TraceFile | None = None,
    ) -> None:
        names = pair.drafters if options is None or options.drafters is None else options.drafters
        if pair.draft is None and "model" in names:
            pair = replace(pair, draft=remembered(pair.target))
        end_running()  # it would disturb the measurements while loading
        super().__init__(pair, options, on_progress, on_loss, trace)
        wants_draft = pair.draft is None and "model" in names and self.facts.can_draft
        self._could_be_exact = self.facts.can_draft and self.facts.could_be_exact
        self._search = Search(pair.target, say, wants_draft) if wants_draft or self._could_be_exact else None
        self._has_replied = self._has_seeds = False
        self._is_alone = self.facts.has_gpu  # GPU memory may not hold a second copy; files in RAM are shared

    def add(self, ask: Ask) -> int:
        """Add a request as Engine does, and stop a running search. The first seed enables a trial of the exact layout,
        because only replies with seeds gain from it.
        """
        if self._search is not None:
            self._search.stop()
            self._search.is_open |= self._could_be_exact and ask.sampling.seed is not None
        if ask.sampling.seed is not None and not self._has_seeds and not self.facts.exactness.is_exact:
            self._has_seeds = True
            layout.note_seed(self.pair.target)
        return super().add(ask)

    def step(self) -> list[Output]:
        """Run a step as Engine does. The search begins some time after the last reply has ended."""
        was_answering = self.is_answering
        outputs = super().step()
        self._search_if_idle(was_answering)
        return outputs

    def end(self, number: int) -> None:
        """End a reply as Engine does. The search begins some time after the last reply has ended."""
        was_answering = self.is_answering
        super().end(number)
        self._search_if_idle(was_answering)

    def _search_if_idle(self, was_answering: bool) -> None:
        if self._search is None or not was_answering or self.is_answering:
            return
        self._has_replied = True
        if not self._is_alone and self.memory_level == "OK":
            self._search.wait()

    def close(self) -> None:
        """Free the models, then begin the search if the idle times were too short for it."""
        super().close()
        if self._search is not None and self._has_replied:
            self._has_replied = False
            self._search.begin()


def changed(path: Path) -> int:
    """Return when a file or folder changed, in nanoseconds. 0 if there is none."""
    return path.stat().st_mtime_ns if path.exists() else 0


def tried(n: int, has_layouts: bool) -> str:
    """Return the start of a sentence about the trials: models as drafts, layouts of the weights."""
    models = "One model is tried as a draft" if n == 1 else f"{n} models are tried as a draft"
    if not has_layouts:
        return models
    return f"{models}, and another layout of the weights," if n else "Another layout of the weights is tried"


def opener(
    draft: str, trace: TraceFile | None = None, say: Say = say_on_stderr, on_loss: Say = say_on_stderr
) -> Callable[..., Engine]:
    """Return the function that opens pairs for this `--draft` option. `auto` searches for a draft model."""
    if draft == "auto":
        open_here: Callable[..., Engine] = partial(SeekingEngine, say=say, on_loss=on_loss, trace=trace)
    else:
        open_here = partial(EngineProcess, say=on_loss, trace=trace)

    def open_engine(pair: Pair, options: Options | None = None, on_progress: OnProgress | None = None) -> Engine:
        if not pair.upstream:
            return open_here(pair, options, on_progress)
        from runtime.upstream.engine import UpstreamEngine  # HTTP is slow to import, and most models are local

        discard()
        return UpstreamEngine(pair, options, on_progress)

    return open_engine
