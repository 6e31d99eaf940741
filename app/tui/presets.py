"""Presets: a model, a system prompt and settings under one name, stored with the chats.

Knows the store and names of settings; loads no model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from app.chats.store import Store, read_json
from app.setting_values import Values
from app.tui.chat_settings import known_values
from runtime.core.errors import SettingsError, nearest

KEPT = "presets"  # preference name
PICKED = "preset:"  # prefix of a preset's name in a list of models
NAME = re.compile(r"[\w-]{1,40}")
SAVE, REMOVE = "save", "remove"  # words of the command, which are not names


@dataclass(frozen=True, slots=True)
class Preset:
    """What a chat answers with."""

    model: str  # the name of a pair, the path of a file, or a server's address
    system: str = ""
    values: Values = field(default_factory=dict)

    @property
    def told(self) -> str:
        """The preset in a few words."""
        model = self.model.rpartition("/")[2] if self.model.endswith(".gguf") else self.model
        settings = [f"{name} {'none' if value is None else value}" for name, value in self.values.items()]
        return " · ".join([model, *settings, *["system prompt"] * bool(self.system)])


class Presets:
    """The presets of one user."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def all(self) -> dict[str, Preset]:
        """Return the presets by name; those that cannot be read are left out."""
        found = read_json(self._store.preference(KEPT))
        return {name: read_preset(kept) for name, kept in sorted(found.items()) if isinstance(kept, dict)}

    def find(self, name: str) -> Preset:
        """Return the preset of that name. Raises SettingsError naming the nearest one."""
        if (found := self.all().get(name)) is None:
            known = list(self.all())
            then = nearest(name, known) if known else f"/preset {SAVE} {name[:40]} saves what answers now."
            raise SettingsError(f"There is no preset '{name[:64]}'. {then}")
        return found

    def save(self, name: str, preset: Preset) -> None:
        """Store a preset, in place of one of the same name. Raises SettingsError for an invalid name."""
        if not NAME.fullmatch(name) or name in (SAVE, REMOVE):
            raise SettingsError(
                f"A preset's name has letters, digits, - and _, at most 40. For example: /preset {SAVE} brief"
            )
        self._write({**self.all(), name: preset})

    def remove(self, name: str) -> None:
        """Delete a preset. Raises SettingsError if there is none."""
        self.find(name)
        self._write({each: preset for each, preset in self.all().items() if each != name})

    def _write(self, presets: Mapping[str, Preset]) -> None:
        kept = {
            name: {"model": each.model, "system": each.system, "settings": dict(each.values)}
            for name, each in presets.items()
        }
        self._store.set_preference(KEPT, json.dumps(kept))


def read_preset(kept: Mapping[str, object]) -> Preset:
    """Return a stored preset; settings of other versions are left out."""
    return Preset(str(kept.get("model", "")), str(kept.get("system", "")), known_values(kept.get("settings")))
