"""Settings for replies in four layers: Slipstream's defaults, the model's own, those for all chats, those of one chat.

Knows names of settings, and the store for the settings of all chats; knows no widgets.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar

from app.chats.store import Store, read_json
from app.setting_values import (
    OPTIONAL,
    Value,
    Values,
    example,
    parsed,
    sampling_values,
    shown_values,
    usual_sampling,
)
from runtime.core.errors import SettingsError, nearest
from runtime.core.rare_sampling import RARE_NAMES
from runtime.engine import PLAIN_NAMES, Sampling, sampling_of
from runtime.models.registry import Pair

DEFAULT = "--default"  # makes a setting apply to all chats
UNSET = "default"  # the value that resets a setting
WHEN_FULL, ASK, LEAVE_OUT = "when_full", "ask", "leave-out"  # treatment of the oldest turns in a full context
SETTING_NAMES = [*PLAIN_NAMES, "max_tokens", WHEN_FULL, *RARE_NAMES]
KEPT_VALUES, KEPT_SYSTEM = "settings", "system"  # preference names of the settings for all chats


class Source(StrEnum):
    """Where the value of a setting comes from."""

    USUAL = "Slipstream's default"
    OWN = "the model"
    ALL_CHATS = "all chats"
    THIS_CHAT = "this chat"


@dataclass(frozen=True, slots=True)
class SettingChange:
    """A valid change of a setting, of one chat or of all."""

    USUAL: ClassVar[Mapping[str, tuple[float, float]]] = {  # ranges outside which a value is most likely a mistake
        "temperature": (0.0, 2.0),
        "min_p": (0.0, 0.5),
        "repetition_penalty": (0.8, 1.5),
        "frequency_penalty": (-2.0, 2.0),
        "presence_penalty": (-2.0, 2.0),
    }
    name: str
    is_for_all: bool
    values: dict[str, Value]  # of that chat, or of all, after the change

    @property
    def doubt(self) -> str:
        """A sentence on a value that is most likely a mistake, for a question; "" for a usual one."""
        value = self.values.get(self.name)
        least, most = self.USUAL.get(self.name, (-math.inf, math.inf))
        if not isinstance(value, float | int) or least <= value <= most:
            return ""
        return (
            f"{self.name} {value:g} is unusual: from {least:g} to {most:g} replies make sense, beyond that most models "
            "write words without meaning or repeat themselves."
        )


@dataclass(slots=True)
class ChatSettings:
    """The settings of all chats; each method receives the settings of one chat as an argument."""

    store: Store
    given: Values = field(default_factory=dict)  # on the command line, for new chats of this run
    given_system: str | None = None

    @property
    def for_all(self) -> dict[str, Value]:
        """The settings for all chats."""
        return known_values(read_json(self.store.preference(KEPT_VALUES)))

    @property
    def system(self) -> str:
        """The system prompt of new chats."""
        return self.store.preference(KEPT_SYSTEM) if self.given_system is None else self.given_system

    def keep_system(self, text: str) -> None:
        """Store the system prompt of all new chats."""
        self.store.set_preference(KEPT_SYSTEM, text)
        self.given_system = None

    def layers(self, pair: Pair, chosen: Values) -> list[tuple[Source, Values]]:
        """Return the layers of settings with their names; later ones override earlier ones."""
        layers = (usual_values(), own_values(pair), self.for_all, chosen)
        return list(zip(Source, layers, strict=True))

    def source(self, name: str, pair: Pair, chosen: Values) -> tuple[Value, Source]:
        """Return the effective value of a setting and the layer that it comes from."""
        return [(layer[name], who) for who, layer in self.layers(pair, chosen) if name in layer][-1]

    def values(self, pair: Pair, chosen: Values) -> dict[str, Value]:
        """Return the effective value of each setting."""
        return {name: value for _, layer in self.layers(pair, chosen) for name, value in layer.items()}

    def sampling(self, pair: Pair, chosen: Values) -> Sampling:
        """Return the effective sampling settings. Raises SettingsError."""
        return sampling_of(sampling_values(self.values(pair, chosen)))

    def max_tokens(self, pair: Pair, chosen: Values) -> int | None:
        """Return the token limit of a reply, or None for no limit."""
        number = self.values(pair, chosen)["max_tokens"]
        return None if number is None else int(number)

    def leaves_out(self, pair: Pair, chosen: Values) -> bool:
        """Return whether the oldest turns are left out automatically when the context is full."""
        return self.values(pair, chosen)[WHEN_FULL] == LEAVE_OUT

    def told(self, pair: Pair, chosen: Values, system: str) -> list[str]:
        """Return the settings that differ from the model's defaults, in a word or two each."""
        own = {**usual_values(), **own_values(pair)}
        other = [f"{name} {value}" for name, value in self.values(pair, chosen).items() if value != own[name]]
        return [*other, *["system prompt"] * bool(system)]

    def checked(self, argument: str, pair: Pair, chosen: Values) -> SettingChange:
        """Return the change that `[--default] name value` asks for. Raises SettingsError."""
        everywhere = argument.split()[:1] == [DEFAULT]
        name, _, word = argument.removeprefix(DEFAULT * everywhere).strip().partition(" ")
        if not name:
            raise SettingsError(f"Name a setting and its value, such as: /set {argument.strip()} temperature 0.7")
        if name not in SETTING_NAMES:
            raise SettingsError(f"There is no setting '{name[:64]}'. {nearest(name, SETTING_NAMES)}")
        change = SettingChange(
            name, everywhere, changed_values(self.for_all if everywhere else chosen, name, word.strip())
        )
        self.sampling(pair, change.values)  # raises for invalid values
        return change

    def change(self, argument: str, pair: Pair, chosen: Values) -> tuple[dict[str, Value], str]:
        """Change a setting by `[--default] name value`; return the chat's new settings and a sentence about the change.

        Raises SettingsError.
        """
        change = self.checked(argument, pair, chosen)
        name, changed = change.name, change.values
        if change.is_for_all:
            self.store.set_preference(KEPT_VALUES, json.dumps(changed))
            self.given = {each: value for each, value in self.given.items() if each != name}
            changed = {each: value for each, value in chosen.items() if each != name}
        value = self.values(pair, changed)[name]
        where = "in all chats without their own value" if change.is_for_all else "in this chat"
        return changed, f"{name} is {'none' if value is None else value} {where}."


def usual_values() -> dict[str, Value]:
    """Return Slipstream's default of each setting."""
    return usual_sampling() | {"max_tokens": None, WHEN_FULL: ASK}


def own_values(pair: Pair) -> dict[str, Value]:
    """Return the settings that a registry or the model's file names, and those that differ from the defaults."""
    usual = usual_values()
    own = shown_values(pair.sampling_defaults).items()
    return {name: value for name, value in own if name in pair.named or value != usual[name]}


def changed_values(values: Values, name: str, word: str) -> dict[str, Value]:
    """Return the values with `name` set to `word`, or without it for `default`. Raises SettingsError."""
    rest = {each: value for each, value in values.items() if each != name}
    if word == UNSET:
        return rest
    if not word:
        valid = LEAVE_OUT if name == WHEN_FULL else example(name)
        raise SettingsError(f"{name} needs a value, such as: /set {name} {valid}")
    if name == WHEN_FULL:
        return rest | {name: parse_when_full(word)}
    number = parsed(name, word)
    if number is None and name not in OPTIONAL:
        raise SettingsError(f"{name} needs a number, such as: /set {name} {example(name)}")
    if name == "max_tokens" and isinstance(number, int) and number < 1:
        raise SettingsError(f"max_tokens is {number}: it must be at least 1, or 'none'.")
    return rest | {name: number}


def parse_when_full(word: str) -> str:
    """Return a valid value of `when_full`. Raises SettingsError."""
    if word not in (ASK, LEAVE_OUT):
        raise SettingsError(f"{WHEN_FULL} is either {ASK} or {LEAVE_OUT}. For example: /set {WHEN_FULL} {LEAVE_OUT}")
    return word


def known_values(found: object) -> dict[str, Value]:
    """Return the known settings in a stored object, without those of other versions; {} for anything else."""
    return {name: found[name] for name in SETTING_NAMES if name in found} if isinstance(found, dict) else {}
