"""`--draft auto` for a target without a known draft model: the models on this machine are tried as drafts in the
background, some time after a reply.

The search ends with the engine, and when a reply begins or an engine is loaded in any program of this user. It waits
while it would disturb somebody.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from app.models.draft_search import Disturbs, Say, Search, never, say_on_stderr
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
    """An engine during whose replies no search runs. Unless `disturbs` is None, it starts the search for a
    draft model if its pair has none and may use one.
    """

    def __init__(
        self,
        pair: Pair,
        options: Options | None = None,
        on_progress: Callable[[str, float], bool] | None = None,
        say: Say = say_on_stderr,
        on_loss: Say = say_on_stderr,
        trace: TraceFile | None = None,
        disturbs: Disturbs | None = never,
    ) -> None:
        end_running()  # it would disturb the measurements while loading
        super().__init__(pair, options, on_progress, on_loss, trace)
        wants_draft = pair.draft is None and may_draft(pair, options) and self.facts.can_draft
        tries_layout = self.facts.can_draft and self.facts.could_be_exact
        self._search = None
        if disturbs is not None and (wants_draft or tries_layout):
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
    say: Say = say_on_stderr,
    on_loss: Say = say_on_stderr,
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
