"""What runs in threads: a pair is opened, a reply is made. Posts messages and touches no widget.

Text is gathered until the screen takes it, so that the keyboard is never starved by a fast model.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Lock

from textual.message import Message

from app.terminal import inert
from app.tui.turns import SharedEngine
from runtime.core.errors import SlipstreamError
from runtime.engine import Chunk, Engine, Ids, Options, Sampling
from runtime.engine import Message as Turn
from runtime.models.registry import Pair
from runtime.speculative.control.explain import Explanation, Pass

EXPLAIN = 0.5  # seconds between two looks at the controller
LINES = str.maketrans("\u2028\u2029", "\n\n")  # Markdown knows one line separator
OpenEngine = Callable[[Pair, Options, Callable[[str, float], bool]], Engine]
Post = Callable[[Message], object]


@dataclass(frozen=True, slots=True)
class Asked:
    """What to answer, and which message of the chat the answer is."""

    message: int
    turns: Sequence[Turn]
    sampling: Sampling
    max_tokens: int | None


@dataclass(frozen=True, slots=True)
class Piece:
    """Text, and the drafter that guessed it; "" where the target said it itself."""

    text: str
    drafter: str = ""


class Loading(Message):
    """A model is so far loaded."""

    def __init__(self, what: str, share: float) -> None:
        super().__init__()
        self.what, self.share = what, share

    def can_replace(self, message: Message) -> bool:
        """The latest says it all."""
        return isinstance(message, Loading)


class Loaded(Message):
    """A pair is open."""

    def __init__(self, engine: SharedEngine, seconds: float) -> None:
        super().__init__()
        self.engine, self.seconds = engine, seconds


class LoadFailed(Message):
    """A pair cannot be opened; the reason is for people."""

    def __init__(self, reason: str) -> None:
        super().__init__()
        self.reason = reason


class Reading(Message):
    """So much of the prompt is read."""

    def __init__(self, done: int, total: int) -> None:
        super().__init__()
        self.done, self.total = done, total

    def can_replace(self, message: Message) -> bool:
        """The latest says it all."""
        return isinstance(message, Reading)


class Arrived(Message):
    """More of a reply is gathered; it is to be taken when there is time to show it."""

    def __init__(self, gathering: Gathering) -> None:
        super().__init__()
        self.gathering = gathering


class Finished(Message):
    """A reply is complete, was stopped, or failed."""

    def __init__(self, gathering: Gathering, last: Chunk | None, error: str = "") -> None:
        super().__init__()
        self.gathering, self.last, self.error = gathering, last, error


def load(open_engine: OpenEngine, pair: Pair, options: Options, is_unwanted: Callable[[], bool], post: Post) -> None:
    """Opens a pair, with progress."""

    def report(what: str, share: float) -> bool:
        post(Loading(what, share))
        return not is_unwanted()

    began = time.perf_counter()
    try:
        engine = SharedEngine(open_engine(pair, options, report))
    except SlipstreamError as error:
        post(LoadFailed(str(error)))
    except KeyboardInterrupt:  # what the loader makes of a `False`
        return
    else:
        post(Loaded(engine, time.perf_counter() - began))


def answer(engine: SharedEngine, asked: Asked, is_cancelled: Callable[[], bool], post: Post) -> None:
    """Makes a reply."""

    def on_prefill(done: int, total: int) -> None:
        post(Reading(done, total))

    gathering = Gathering(engine, asked.message)
    last: Chunk | None = None
    error = ""
    try:
        for last in engine.reply(
            prompt_of(engine, asked.turns), asked.sampling, asked.max_tokens, cancel=is_cancelled,
            on_prefill=on_prefill, when_full="drop-oldest"
        ):  # fmt: skip
            if gathering.add(last):
                post(Arrived(gathering))
    except SlipstreamError as failure:
        last, error = None, str(failure)
    post(Finished(gathering, last, error))


def prompt_of(engine: SharedEngine, turns: Sequence[Turn]) -> Sequence[Turn] | Ids:
    """The conversation; one that ends with the model's own words as tokens, so that it goes on there."""
    if turns[-1].role != "assistant":
        return turns
    return Ids((*engine.encode(turns[:-1]), *engine.tokenize(turns[-1].content, special=False)))


@dataclass(slots=True)
class Batch:
    """What came since the last look."""

    pieces: list[Piece] = field(default_factory=list)
    passes: list[Pass] = field(default_factory=list)
    n_tokens: int = 0
    explanation: Explanation | None = None  # where it is time for a new one


class Gathering:
    """What came of a reply and was not shown yet: a thread adds, the screen takes."""

    def __init__(self, engine: SharedEngine, message: int) -> None:
        self.engine, self.message = engine, message
        self._n_passes, self._explained = 0, 0.0
        self._batch, self._lock = Batch(), Lock()

    def add(self, chunk: Chunk) -> bool:
        """Takes a chunk in. Is it the first that the screen does not know of?"""
        passes, explanation = self.engine.passes(self._n_passes), None
        self._n_passes += len(passes)
        if time.monotonic() - self._explained >= EXPLAIN:
            self._explained, explanation = time.monotonic(), self.engine.explain()
        drafter = passes[-1].drafter if passes else ""
        flags = [*chunk.drafted, *[False] * (len(chunk.pieces) - len(chunk.drafted))]
        pieces = [
            Piece(clean(text), drafter if flag else "") for text, flag in zip(chunk.pieces, flags, strict=True) if text
        ]
        with self._lock:
            batch, is_first = self._batch, not (self._batch.passes or self._batch.pieces)
            batch.pieces += pieces
            batch.passes += passes
            batch.n_tokens += len(chunk.tokens)
            batch.explanation = explanation or batch.explanation
        return is_first

    def take(self) -> Batch:
        """Everything up to now."""
        with self._lock:
            batch, self._batch = self._batch, Batch()
        return batch


def clean(text: str) -> str:
    """Text that can command nothing and whose lines everyone counts alike."""
    return inert(text.translate(LINES))
