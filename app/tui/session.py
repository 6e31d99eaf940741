"""What one run of the chat has: the pair, the open engine, the store, the settings, the log.

Plain state; knows no widgets. Only EngineHost changes the engine.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from app.chats.store import Store
from app.tui.shared_engine import SharedEngine
from runtime.core.errors import SettingsError
from runtime.engine import Engine, Options, Sampling
from runtime.models.registry import Pair
from runtime.models.strict_toml import nearest

if TYPE_CHECKING:  # a web server is slow to import, and most chats serve nobody
    from app.server.command import ServerSettings
    from app.tui.serving import Serving

OpenEngine = Callable[[Pair, Options, Callable[[str, float], bool]], Engine]

LOG = 1000  # lines
OFF = ("none", "off")
SAMPLING_NAMES = [each.name for each in fields(Sampling) if each.name != "logit_bias"]
SETTING_NAMES = [*SAMPLING_NAMES, "max_tokens"]
WHOLE_NUMBERS = ("seed", "top_k", "max_tokens", "penalty_last_n")


@dataclass(slots=True)
class Session:
    """What all screens share."""

    pair: Pair
    options: Options
    store: Store
    open_engine: OpenEngine
    keymap: dict[str, str] = field(default_factory=dict)
    serve: ServerSettings | None = None  # where editors are answered, when they are to be
    api_key: str = ""  # what editors must know
    allow_origins: tuple[str, ...] = ()  # apps and pages that may ask without it
    engine: SharedEngine | None = None  # of `pair`; None before any is open
    serving: Serving | None = None  # once there is an engine
    sampling: Sampling = field(default_factory=Sampling)
    max_tokens: int | None = None
    log: deque[str] = field(default_factory=lambda: deque(maxlen=LOG))

    def __post_init__(self) -> None:
        """Begins with the pair's own sampling."""
        self.choose(self.pair)

    def choose(self, pair: Pair) -> None:
        """Takes another pair with its own sampling; a seed stays."""
        self.pair = pair
        self.sampling = Sampling(**pair.sampling_defaults, seed=self.sampling.seed)

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

    def set(self, argument: str) -> str:
        """Changes a setting by `name value`; returns a sentence with what holds now. Raises SettingsError."""
        if not argument:
            settings = ", ".join(f"{name} {getattr(self.sampling, name)}" for name in SAMPLING_NAMES)
            return f"{settings}, max_tokens {self.max_tokens}"
        name, _, value = argument.partition(" ")
        if name not in SETTING_NAMES:
            raise SettingsError(f"There is no setting '{name}'. {nearest(name, SETTING_NAMES)}")
        number = parse_number(name, value.strip())
        if name == "max_tokens":
            self._set_max_tokens(number)
        else:
            self._set_sampling(name, number)
        return f"{name} is {value.strip()} from now on."

    def _set_max_tokens(self, number: float | None) -> None:
        if number is not None and number < 1:
            raise SettingsError(f"max_tokens is {number}: it must be at least 1, or 'none'.")
        self.max_tokens = None if number is None else int(number)

    def _set_sampling(self, name: str, number: float | None) -> None:
        if number is None and name != "seed":
            raise SettingsError(f"{name} needs a number, such as: /set {name} {getattr(self.sampling, name)}")
        values: dict[str, Any] = {name: number}
        self.sampling = replace(self.sampling, **values)


def parse_number(name: str, value: str) -> float | None:
    """The number that a setting is to have, or None for `none` and `off`. Raises SettingsError."""
    if value in OFF:
        return None
    try:
        return int(value) if name in WHOLE_NUMBERS else float(value)
    except ValueError:
        raise SettingsError(
            f"'{value}' is not a number that {name} can be. For example: /set temperature 0.7"
        ) from None
