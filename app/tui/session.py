"""The state of one run of the chat: the pair, the open engine, the store, the settings, the log; and opening another
pair, in a thread, while the current one still answers.

Knows no widgets; the thread posts messages. Only the engine host and its threads change the engine.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from textual.message import Message

from app.chats.authors import LOADS, RECENT, Facts, names_in, signed, with_latest
from app.chats.branch import ChatBranch
from app.chats.store import Store
from app.setting_values import Values
from app.tui.chat_settings import ChatSettings
from app.tui.pace import Latest, Post
from runtime.core.errors import NoMemoryError, SlipstreamError
from runtime.core.limits import Limits
from runtime.engine import Engine, Options
from runtime.models.registry import AS_TRAINED, Pair

if TYPE_CHECKING:  # a web server is slow to import, and most chats serve nobody
    from app.server.command import ServerSettings
    from app.tui.serving import Serving

OpenEngine = Callable[..., Engine]  # of a pair, options, a function for progress, and seeks: whether to search a draft

# With editors: the chat and two of their chats run at the same time, and a completion
EDITORS, SLOTS = Limits(max_running=3, max_waiting=16), 4
LOG = 1000  # lines


@dataclass(frozen=True, slots=True)
class Given:
    """What the command line gives to a chat."""

    values: Values = field(default_factory=dict)  # settings of new chats
    system: str | None = None  # their system prompt
    chat: int | None = None  # the chat to open at first; None: a new one
    serve: ServerSettings | None = None  # settings of the server for editors, if there is to be one from the start
    api_key: str = ""  # required from editors
    allow_origins: tuple[str, ...] = ()  # apps and pages that need no key


@dataclass(slots=True)
class Session:
    """The state that all screens share."""

    pair: Pair
    options: Options
    settings: ChatSettings
    open_engine: OpenEngine
    keymap: dict[str, str] = field(default_factory=dict)
    given: Given = field(default_factory=Given)
    serve: ServerSettings | None = None  # settings of the server for editors, if there is to be one
    sized: dict[Pair, Pair] = field(default_factory=dict)  # pairs with a context chosen here -> before that
    engine: Engine | None = None  # of `pair`; None before any is open
    serving: Serving | None = None  # once there is an engine
    log: deque[str] = field(default_factory=lambda: deque(maxlen=LOG))

    @property
    def store(self) -> Store:
        """The store of the chats."""
        return self.settings.store

    @property
    def recent(self) -> list[str]:
        """The recently loaded models, the latest first: pairs by name, files by path."""
        return names_in(self.store.preference(RECENT))

    @property
    def model(self) -> str:
        """The name that loads the current pair again."""
        return str(self.signature()[LOADS])

    def signature(self, pair: Pair | None = None) -> Facts:
        """Return the facts of replies that name a pair, the current one by default, with any length of context."""
        return signed(self.sized.get(pair or self.pair, pair or self.pair))

    def resized(self, n_ctx: int) -> Pair:
        """Return the current pair with that length of context, which is not shortened when it is opened."""
        before = self.sized.get(self.pair, self.pair)
        pair = replace(before, context=n_ctx)
        self.sized[pair] = before
        return pair

    def options_for(self, pair: Pair) -> Options:
        """Return the options to open a pair with, for several replies at the same time if editors are answered."""
        options = replace(self.options, n_ctx=pair.context) if pair in self.sized else self.options
        return replace(options, slots=SLOTS, limits=EDITORS) if self.serve is not None else options

    @property
    def has_room_for_editors(self) -> bool:
        """Whether the open engine generates several replies at the same time."""
        return self.engine is not None and self.engine.limits == EDITORS

    def is_loaded(self, pair: Pair) -> bool:
        """Return whether that pair answers now, with any length of context and any draft found for its file."""
        here = self.sized.get(self.pair, self.pair)
        is_file = pair.context == here.context == AS_TRAINED  # its name may be Ollama's
        models = [(each.target.absolute(), each.upstream, each.upstream_model) for each in (here, pair)]
        return self.engine is not None and models[0] == models[1] and (is_file or here.name == pair.name)

    def take(self, pair: Pair) -> None:
        """Record that this pair answers from now on, also for later starts."""
        self.pair = pair
        self.store.set_preference(RECENT, with_latest(self.model, self.recent))

    def note_compared(self, pair: Pair) -> None:
        """Record that this pair answered after the current one, with which the next start begins."""
        other = with_latest(str(self.signature(pair)[LOADS]), self.recent)
        self.store.set_preference(RECENT, with_latest(self.model, names_in(other)))

    def branch(self, chat: int | None = None) -> ChatBranch:
        """Return a chat, or a new one with the settings for new chats. Raises StoreError."""
        return ChatBranch(self.store, chat, self.settings.system, self.settings.given)

    def note(self, text: str) -> None:
        """Add a line to the log."""
        self.log.append(f"{time.strftime('%H:%M:%S')}  {text}")

    def note_once(self, text: str) -> None:
        """Add a line to the log unless the last line says the same."""
        if not (self.log and self.log[-1].endswith(f"  {text}")):
            self.note(text)

    def close_engine(self) -> None:
        """Free the models."""
        old, self.engine = self.engine, None
        if old is not None:
            old.close()

    def start_serving(self) -> None:
        """Start the server for editors if it is enabled. Raises AddressError, which also disables it."""
        wanted, self.serve = self.serve, None
        if wanted is not None and self.engine is not None:
            from app.tui.serving import Serving

            self.serving = Serving(self.engine, wanted)
        self.serve = wanted

    def stop_serving(self) -> None:
        """End every request and close the socket."""
        serving, self.serving = self.serving, None
        if serving is not None:
            serving.stop()


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
