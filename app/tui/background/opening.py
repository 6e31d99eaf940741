"""Opening a pair in a thread, while the current one still answers.

Posts messages; touches no widget and keeps no state.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from textual.message import Message

from app.tui.background.replies import Post
from app.tui.pace import Latest
from app.tui.session import Session
from runtime.core.errors import NoMemoryError, SlipstreamError
from runtime.engine import Engine
from runtime.models.registry import Pair


@dataclass
class ModelLoading(Latest):
    """A share of one of the pair's models is loaded."""

    part: str
    share: float


@dataclass
class ModelReady(Message):
    """A pair is open."""

    pair: Pair
    engine: Engine
    seconds: float


@dataclass
class ModelFailed(Message):
    """A pair cannot be opened; the reason is for people."""

    pair: Pair
    reason: str


def open_pair(session: Session, pair: Pair, is_unwanted: Callable[[], bool], post: Post) -> None:
    """Open a pair, with progress, while the current one stays open. If memory does not suffice for both, the current
    one is closed first, and opened again if the other one still fails.
    """

    def opened(wanted: Pair) -> Engine:
        return session.open_engine(wanted, session.options_for(wanted), report)

    def report(part: str, share: float) -> bool:
        post(ModelLoading(part, share))
        return not is_unwanted()

    began = time.perf_counter()
    try:
        engine = open_second(session, partial(opened, pair))
        if engine is None:
            session.stop_serving()
            session.close_engine()
            try:
                engine = opened(pair)
            except SlipstreamError:
                session.engine = opened(session.pair)
                raise
    except SlipstreamError as error:
        post(ModelFailed(pair, str(error)))
    except KeyboardInterrupt:  # raised by the loader after `report` returned False
        return
    else:
        post(ModelReady(pair, engine, time.perf_counter() - began))


def open_second(session: Session, opened: Callable[[], Engine]) -> Engine | None:
    """Return a second engine with the current one open; None if memory does not suffice for both."""
    try:
        engine = opened()
    except NoMemoryError:
        if session.engine is None:
            raise
        return None
    if session.engine is None or not engine.facts.is_short:
        return engine
    engine.close()
    return None
