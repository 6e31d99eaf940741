"""What one run of the chat has: the pair, the open engine, the store, the settings, the log.

Plain state; knows no widgets. Only EngineHost changes the engine.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from app.chats.branch import ChatBranch
from app.chats.store import Store
from app.tui.chat_settings import ChatSettings
from app.tui.shared_engine import SharedEngine
from runtime.engine import Engine, Options
from runtime.models.registry import AS_TRAINED, Pair

if TYPE_CHECKING:  # a web server is slow to import, and most chats serve nobody
    from app.server.command import ServerSettings
    from app.tui.serving import Serving

OpenEngine = Callable[[Pair, Options, Callable[[str, float], bool]], Engine]

LOG = 1000  # lines
RECENT, REMEMBERED = "recent models", 8  # the store's name for what was loaded lately, and how many of them


@dataclass(slots=True)
class Session:
    """What all screens share."""

    pair: Pair
    options: Options
    settings: ChatSettings
    open_engine: OpenEngine
    keymap: dict[str, str] = field(default_factory=dict)
    serve: ServerSettings | None = None  # where editors are answered, when they are to be
    api_key: str = ""  # what editors must know
    allow_origins: tuple[str, ...] = ()  # apps and pages that may ask without it
    engine: SharedEngine | None = None  # of `pair`; None before any is open
    serving: Serving | None = None  # once there is an engine
    log: deque[str] = field(default_factory=lambda: deque(maxlen=LOG))

    @property
    def store(self) -> Store:
        """Where the chats are."""
        return self.settings.store

    @property
    def recent(self) -> list[str]:
        """What was loaded lately: pairs by name, files by path, the latest first."""
        return [name for name in self.store.preference(RECENT).split("\n") if name]

    def take(self, pair: Pair) -> None:
        """Notes that this pair answers from now on, and for the next starts that it did."""
        self.pair = pair
        name = pair.name if pair.context != AS_TRAINED else str(pair.target.absolute())
        self.store.set_preference(
            RECENT, "\n".join([name, *(each for each in self.recent if each != name)][:REMEMBERED])
        )

    def branch(self, chat: int | None = None) -> ChatBranch:
        """A chat, or a new one with what holds for new ones. Raises StoreError."""
        return ChatBranch(self.store, chat, self.settings.system, self.settings.given)

    def note(self, text: str) -> None:
        """Adds a line to the log."""
        self.log.append(f"{time.strftime('%H:%M:%S')}  {text}")

    def close_engine(self) -> None:
        """Frees the models."""
        old, self.engine = self.engine, None
        if old is not None:
            old.close()

    def start_serving(self) -> None:
        """Answers editors from now on, if that is wanted. Raises AddressError, and then it is wanted no more."""
        wanted, self.serve = self.serve, None
        if wanted is not None and self.engine is not None:
            from app.tui.serving import Serving

            self.serving = Serving(self.engine, wanted)
        self.serve = wanted

    def stop_serving(self) -> None:
        """Ends every request and closes the socket."""
        serving, self.serving = self.serving, None
        if serving is not None:
            serving.stop()
