"""The state of one run of the chat: the pair, the open engine, the store, the settings, the log.

Plain state; knows no widgets. Only the engine host and its threads change the engine.
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
RECENT, REMEMBERED = "recent models", 8  # preference name of the recently loaded models, and their number


@dataclass(slots=True)
class Session:
    """The state that all screens share."""

    pair: Pair
    options: Options
    settings: ChatSettings
    open_engine: OpenEngine
    keymap: dict[str, str] = field(default_factory=dict)
    serve: ServerSettings | None = None  # settings of the server for editors, if there is to be one
    api_key: str = ""  # required from editors
    allow_origins: tuple[str, ...] = ()  # apps and pages that need no key
    engine: SharedEngine | None = None  # of `pair`; None before any is open
    serving: Serving | None = None  # once there is an engine
    log: deque[str] = field(default_factory=lambda: deque(maxlen=LOG))

    @property
    def store(self) -> Store:
        """The store of the chats."""
        return self.settings.store

    @property
    def recent(self) -> list[str]:
        """The recently loaded models, the latest first: pairs by name, files by path."""
        return [name for name in self.store.preference(RECENT).split("\n") if name]

    def take(self, pair: Pair) -> None:
        """Record that this pair answers from now on, also for later starts."""
        self.pair = pair
        name = pair.name if pair.context != AS_TRAINED else str(pair.target.absolute())
        self.store.set_preference(
            RECENT, "\n".join([name, *(each for each in self.recent if each != name)][:REMEMBERED])
        )

    def branch(self, chat: int | None = None) -> ChatBranch:
        """Return a chat, or a new one with the settings for new chats. Raises StoreError."""
        return ChatBranch(self.store, chat, self.settings.system, self.settings.given)

    def note(self, text: str) -> None:
        """Add a line to the log."""
        self.log.append(f"{time.strftime('%H:%M:%S')}  {text}")

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
