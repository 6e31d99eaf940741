"""`--draft auto` for a target without a known draft model: the models on this machine are tried as drafts in the
background, some time after a reply.

The search ends with the engine, and when a reply begins or an engine is loaded in any program of this user. It waits
while it would disturb somebody. Its result is kept for the next start; nothing waits for it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Event, RLock, Thread

from app.models.search_process import NOT_NOW, end_running, running, start
from app.terminal import print_message
from runtime.core.backend import OnProgress
from runtime.core.children import Child
from runtime.core.cores import n_cores
from runtime.core.errors import SlipstreamError
from runtime.core.spawning import discard
from runtime.engine import Engine, Options
from runtime.engine.engine import Ask
from runtime.engine.output import Sink
from runtime.engine.paired import is_settled, note_failure, remembered
from runtime.engine.process.client import EngineProcess
from runtime.engine.trace import TraceFile
from runtime.loading import cache_types, layout
from runtime.loading.neighbours import Neighbours
from runtime.loading.profile_cache import ProfileCache, fingerprint
from runtime.models.registry import Pair, user_registry

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


class Search:
    """The search for one target's draft model, for the types of its cache, and with `tries_layout` for the layout of
    its weights, if replies have seeds. Its methods may be called from several threads.
    """

    def __init__(
        self, target: Path, say: Say, wants_draft: bool = True, tries_layout: bool = False, disturbs: Disturbs = never
    ) -> None:
        self.target, self._say, self._disturbs = target, say, disturbs
        self._wants_draft, self._tries_layout = wants_draft, tries_layout
        self._lock, self._was_announced, self._idle = RLock(), False, IDLE
        self._stopped = Event()  # of the thread that looks when it may begin
        self._process: Child | None = None
        self._scope: dict[str, object] = {}  # what the process looks through

    def wait(self) -> None:
        """Begin the search after an idle time, unless it is stopped before, and once it disturbs nobody."""
        with self._lock:
            self._stopped.set()
            self._stopped = Event()
            Thread(target=self._look, args=(self._stopped, self._idle), daemon=True).start()

    def _look(self, stopped: Event, seconds: float) -> None:
        """Begin the search, or if it would disturb somebody, end it; while there is anything to do, look again."""
        while not stopped.wait(seconds):
            is_disturbing = self._disturbs() or (self._process is None and is_busy())
            with self._lock:
                if stopped.is_set():
                    return
                if is_disturbing:
                    self._end()
                elif self._process is None:
                    self.begin()
                if not (is_disturbing or self._is_running()):
                    return
            seconds = CHECK_SECONDS

    def begin(self) -> None:
        """Begin the search, unless it would find nothing new or one is running. Errors are ignored, since no reply
        depends on it.
        """
        with self._lock, suppress(SlipstreamError, OSError):
            if os.environ.get(OPT_OUT) or running():
                return
            trials = self._trials()
            scope: dict[str, object] = {"folders": self._folders(), "trials": trials}
            if self._memo().read() == scope:
                return
            if (models := self._new_models()) or trials:
                self._process, self._scope = start(self.target, bool(models)), scope
                self._announce(", ".join([*as_drafts(len(models)), *trials]))
            else:
                self._memo().write(scope)

    def _trials(self) -> list[str]:
        """Return the properties of the target itself that remain to be tried."""
        tries_layout = self._tries_layout and layout.has_seeds(self.target) and not layout.remembered(self.target)
        types = ["other types of its cache"] if cache_types.is_pending(self.target) else []
        return types + (["another layout of its weights"] if tries_layout else [])

    def stop(self) -> None:
        """Stop the search until it begins again. It can be killed at any point, because its result is written whole or
        not at all.
        """
        with self._lock:
            self._stopped.set()
            if self._is_running():
                self._idle *= 2
            self._end()

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

    def _announce(self, trials: str) -> None:
        """Announce the search to the user, only the first time."""
        if not self._was_announced:
            self._say(f"Tried for {self.target.name} in the background: {trials}. The next start uses what pays.")
        self._was_announced = True

    def _folders(self) -> dict[str, int]:
        """Return the folders that models come from, and when each changed."""
        from huggingface_hub import constants  # slow to import and rarely needed

        places = (self.target.absolute().parent, Path(constants.HF_HUB_CACHE), user_registry())
        return {str(place): place.stat().st_mtime_ns if place.exists() else 0 for place in places}

    def _new_models(self) -> list[Path]:
        """Return the models to try. Empty if all of them were tried."""
        from app.models.pair import usual_candidates  # slow to import and rarely needed

        models = usual_candidates(self.target) if self._wants_draft else []
        return [] if is_settled(self.target, models) else models

    def _memo(self) -> ProfileCache:
        return ProfileCache(fingerprint(self.target, "search"))


def as_drafts(n: int) -> list[str]:
    """Return the part of a list of trials that names `n` models, if there are any."""
    return [f"{n} models as its draft" if n > 1 else "one model as its draft"] if n else []


class SeekingEngine(EngineProcess):
    """An engine during whose replies no search runs. Unless `disturbs` is None, it starts the search, for a draft model
    only if its pair has none and may use one.
    """

    def __init__(
        self,
        pair: Pair,
        options: Options | None = None,
        on_progress: Callable[[str, float], bool] | None = None,
        say: Say = print_message,
        on_loss: Say = print_message,
        trace: TraceFile | None = None,
        disturbs: Disturbs | None = never,
    ) -> None:
        end_running()  # it would disturb the measurements while loading
        super().__init__(pair, options, on_progress, on_loss, trace)
        wants_draft = pair.draft is None and may_draft(pair, options) and self.facts.can_draft
        tries_layout = self.facts.can_draft and self.facts.could_be_exact
        self._search = None
        if disturbs is not None:
            self._search = Search(pair.target, say, wants_draft, tries_layout, disturbs)
        self._has_seeds = False

    def add(self, ask: Ask, sink: Sink) -> int:
        """Add a request as Engine does, and stop a running search. The first seed is noted, because only replies with
        seeds gain from a trial of the exact layout.
        """
        if self._search is not None:
            self._search.stop()
        end_running()  # of another program
        if ask.sampling.seed is not None and not self._has_seeds and not self.facts.exactness.is_exact:
            self._has_seeds = True
            layout.note_seed(self.pair.target)
        return super().add(ask, sink)

    def rest(self) -> None:
        """Begin the search some time after the last reply has ended."""
        if self._search is not None and self.status.memory_level == "OK" and not self.is_answering:
            self._search.wait()

    def close(self) -> None:
        """End the search and free the models."""
        if self._search is not None:
            self._search.stop()
        super().close()


def may_draft(pair: Pair, options: Options | None) -> bool:
    """Return whether the pair may use a draft model."""
    return "model" in (pair.drafters if options is None or options.drafters is None else options.drafters)


def opener(
    draft: str,
    trace: TraceFile | None = None,
    say: Say = print_message,
    on_loss: Say = print_message,
    disturbs: Disturbs | None = never,
) -> Callable[..., Engine]:
    """Return the function that opens pairs for this `--draft` option. `auto` uses the draft model that was found for a
    target, and searches for one unless `disturbs` is None, but not for a pair that is opened with `seeks=False`.
    """

    def open_engine(
        pair: Pair, options: Options | None = None, on_progress: OnProgress | None = None, seeks: bool = True
    ) -> Engine:
        if pair.upstream:
            from runtime.upstream.engine import UpstreamEngine  # HTTP is slow to import, and most models are local

            discard()
            return UpstreamEngine(pair, options, on_progress)
        is_auto = draft == "auto"
        if is_auto and pair.draft is None and may_draft(pair, options):
            pair = replace(pair, draft=remembered(pair.target))
        disturbed = disturbs if is_auto and seeks else None
        return SeekingEngine(pair, options, on_progress, say, on_loss, trace, disturbed)

    return open_engine
