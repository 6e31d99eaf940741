"""What one run of the chat has: the pair, the open engine, the store, the settings, the log.

Plain state; knows no widgets.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from app.chats.store import Store
from app.tui.answering import OpenEngine
from app.tui.turns import SharedEngine
from runtime.core.errors import SettingsError
from runtime.engine import Options, Sampling
from runtime.models.registry import Pair
from runtime.models.strict_toml import nearest
from runtime.speculative.control.explain import Explanation

if TYPE_CHECKING:  # a web server is slow to import, and most chats serve nobody
    from app.server.command import Settings
    from app.tui.serving import Serving

LOG = 1000  # lines
OFF = ("none", "off")


@dataclass(slots=True)
class Session:
    """Shared by the screens; changed only in handlers."""

    pair: Pair
    options: Options
    store: Store
    open_engine: OpenEngine
    keymap: dict[str, str] = field(default_factory=dict)
    serve: Settings | None = None  # where editors are answered, when they are to be
    api_key: str = ""  # what editors must know
    engine: SharedEngine | None = None  # None while a pair is loaded
    serving: Serving | None = None  # once there is an engine
    explanation: Explanation | None = None  # the latest
    sampling: Sampling = field(default_factory=Sampling)
    max_tokens: int | None = None
    log: deque[str] = field(default_factory=lambda: deque(maxlen=LOG))

    def __post_init__(self) -> None:
        """The pair's own way to sample."""
        self.choose(self.pair)

    def choose(self, pair: Pair) -> None:
        """Another pair, with its own way to sample; a seed stays."""
        self.pair = pair
        self.sampling = Sampling(**pair.sampling_defaults, seed=self.sampling.seed)

    def note(self, text: str) -> None:
        """Adds a line to the log."""
        self.log.append(f"{time.strftime('%H:%M:%S')}  {text}")

    def start_serving(self) -> None:
        """Answers editors from now on, if that is wanted. Raises AddressError, and then it is wanted no more."""
        wanted, self.serve = self.serve, None
        if wanted is not None and self.engine is not None:
            from app.tui.serving import Serving

            self.serving = Serving(self.engine, wanted)
        self.serve = wanted

    def stop_serving(self) -> None:
        """Every request ends; the socket goes."""
        serving, self.serving = self.serving, None
        if serving is not None:
            serving.stop()

    def set(self, words: str) -> str:
        """`name value` for sampling or max_tokens; returns what holds now. Raises SettingsError."""
        numbers = [each.name for each in fields(Sampling) if each.name != "logit_bias"]
        name, _, value = words.partition(" ")
        if not words:
            return (
                ", ".join(f"{name} {getattr(self.sampling, name)}" for name in numbers)
                + f", max_tokens {self.max_tokens}"
            )
        if name not in (*numbers, "max_tokens"):
            raise SettingsError(f"There is no setting '{name}'. {nearest(name, [*numbers, 'max_tokens'])}")
        number = parse_number(name, value.strip())
        if name == "max_tokens":
            if number is not None and number < 1:
                raise SettingsError(f"max_tokens is {number}: it must be at least 1, or 'none'.")
            self.max_tokens = None if number is None else int(number)
        elif number is None and name != "seed":
            raise SettingsError(f"{name} needs a number, such as: /set {name} {getattr(self.sampling, name)}")
        else:
            values: dict[str, Any] = {name: number}
            self.sampling = replace(self.sampling, **values)
        return f"{name} is {value.strip()} from now on."


def parse_number(name: str, value: str) -> float | int | None:
    """A number, or None for `none` and `off`. Raises SettingsError."""
    if value in OFF:
        return None
    try:
        return float(value) if name not in ("seed", "top_k", "max_tokens", "penalty_last_n") else int(value)
    except ValueError:
        raise SettingsError(
            f"'{value}' is not a number that {name} can be. For example: /set temperature 0.7"
        ) from None
