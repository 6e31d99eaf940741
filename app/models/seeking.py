"""`--draft auto` for a target without a known draft model: after a reply, the models on this machine are tried as
drafts in the background.

The search ends when the next reply begins or another engine is loaded, and waits while it would disturb somebody.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from app.models.draft_search import Disturbs, Say, Search, always, never, say_on_stderr
from app.models.search_process import end_running
from runtime.core.backend import OnProgress
from runtime.engine import Engine, Options
from runtime.engine.engine import Ask
from runtime.engine.output import Sink
from runtime.engine.trace import TraceFile
from runtime.loading import layout
from runtime.models.registry import Pair
from runtime.process.client import EngineProcess
from runtime.process.spawning import discard
from runtime.tools.paired import remembered


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
        disturbs: Disturbs = never,
    ) -> None:
        names = pair.drafters if options is None or options.drafters is None else options.drafters
        if pair.draft is None and "model" in names:
            pair = replace(pair, draft=remembered(pair.target))
        end_running()  # it would disturb the measurements while loading
        super().__init__(pair, options, on_progress, on_loss, trace)
        wants_draft = pair.draft is None and "model" in names and self.facts.can_draft
        self._could_be_exact = self.facts.can_draft and self.facts.could_be_exact
        is_wanted = wants_draft or self._could_be_exact
        self._search = Search(pair.target, say, wants_draft, disturbs) if is_wanted else None
        self._has_replied = self._has_seeds = False
        self._is_alone = self.facts.has_gpu  # GPU memory may not hold a second copy; files in RAM are shared

    def add(self, ask: Ask, sink: Sink) -> int:
        """Add a request as Engine does, and stop a running search. The first seed enables a trial of the exact layout,
        because only replies with seeds gain from it.
        """
        if self._search is not None:
            self._search.stop()
            self._search.is_open |= self._could_be_exact and ask.sampling.seed is not None
        if ask.sampling.seed is not None and not self._has_seeds and not self.facts.exactness.is_exact:
            self._has_seeds = True
            layout.note_seed(self.pair.target)
        return super().add(ask, sink)

    def rest(self) -> None:
        """Begin the search some time after the last reply has ended."""
        self._has_replied = True
        is_calm = self.status.memory_level == "OK" and not self.is_answering
        if self._search is not None and not self._is_alone and is_calm:
            self._search.wait()

    def close(self) -> None:
        """Free the models, then begin the search if the idle times were too short for it."""
        super().close()
        if self._search is not None and self._has_replied:
            self._has_replied = False
            self._search.begin()


def opener(
    draft: str,
    trace: TraceFile | None = None,
    say: Say = say_on_stderr,
    on_loss: Say = say_on_stderr,
    disturbs: Disturbs = never,
) -> Callable[..., Engine]:
    """Return the function that opens pairs for this `--draft` option. `auto` searches for a draft model, but not for a
    pair that is opened with `seeks=False`.
    """

    def open_here(pair: Pair, options: Options | None, on_progress: OnProgress | None, seeks: bool) -> Engine:
        if draft == "auto":
            return SeekingEngine(pair, options, on_progress, say, on_loss, trace, disturbs if seeks else always)
        return EngineProcess(pair, options, on_progress, on_loss, trace)

    def open_engine(
        pair: Pair, options: Options | None = None, on_progress: OnProgress | None = None, seeks: bool = True
    ) -> Engine:
        if not pair.upstream:
            return open_here(pair, options, on_progress, seeks)
        from runtime.upstream.engine import UpstreamEngine  # HTTP is slow to import, and most models are local

        discard()
        return UpstreamEngine(pair, options, on_progress)

    return open_engine
