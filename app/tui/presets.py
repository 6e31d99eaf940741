"""What is kept under a name: presets, which are a model, a system prompt and settings, with the chats; templates, which
are texts for reuse in the prompt, as one Markdown file each.

Knows the store, names of settings and the folder of templates; loads no model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from platformdirs import user_config_path

from app.chats.store import Store, read_json
from app.setting_values import Values
from app.tui.chat_settings import known_values
from runtime.core.errors import SettingsError, nearest
from runtime.core.outside import NotTextError, text_of

KEPT = "presets"  # preference name
PICKED = "preset:"  # prefix of a preset's name in a list of models
NAME = re.compile(r"[\w-]{1,40}")
SAVE, REMOVE = "save", "remove"  # words of the command, which are not names
TEMPLATE_NAME = re.compile(r"[\w-]{1,64}")
TEMPLATE = re.compile(r"(\S+)(?:\s+(.*))?", re.DOTALL)
REMOVED = "none"  # the text that removes a template


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


def template_folder() -> Path:
    """Return the folder of this person's templates."""
    return user_config_path("slipstream", appauthor=False) / "templates"


def template_names() -> list[str]:
    """Return the names of all templates."""
    return sorted(path.stem for path in template_folder().glob("*.md"))


def read_template(name: str) -> str:
    """Return the text of a template. Raises SettingsError naming the nearest one."""
    if name not in (known := template_names()):
        raise SettingsError(
            f"There is no template '{name[:64]}'. {nearest(name, known) if known else 'Save one: /template name text'}"
        )
    try:
        return text_of((template_folder() / f"{name}.md").read_bytes()).strip()
    except OSError as error:
        raise SettingsError(
            f"{template_folder() / name}.md cannot be read ({error.strerror}). Make it readable, or remove it."
        ) from error
    except NotTextError as error:
        raise SettingsError(f"{template_folder() / name}.md cannot be read ({error}).") from error


def keep_template(name: str, text: str) -> str:
    """Write a template, or remove it if the text is `none`; return a sentence about it. Raises SettingsError."""
    if not TEMPLATE_NAME.fullmatch(name):
        raise SettingsError(f"'{name[:64]}' cannot name a template. Use letters, digits, - and _.")
    path = template_folder() / f"{name}.md"
    try:
        if text == REMOVED:
            read_template(name)
            path.unlink()
            return f"The template {name} is removed."
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", encoding="utf8")
    except OSError as error:
        raise SettingsError(f"{path} cannot be written ({error.strerror}). Make its folder writable.") from error
    return f"Saved. /template {name} begins with it, /system @{name} gives it to the model."
