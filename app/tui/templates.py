"""Templates: texts for reuse in the prompt, one Markdown file each.

Knows the folder; the screen uses the texts.
"""

from __future__ import annotations

import re
from pathlib import Path

from platformdirs import user_config_path

from runtime.core.errors import SettingsError, nearest
from runtime.core.outside import NotTextError, text_of

NAME = re.compile(r"[\w-]{1,64}")
TEMPLATE = re.compile(r"(\S+)(?:\s+(.*))?", re.DOTALL)
REMOVED = "none"


def folder() -> Path:
    """Return the folder of this person's templates."""
    return user_config_path("slipstream", appauthor=False) / "templates"


def names() -> list[str]:
    """Return the names of all templates."""
    return sorted(path.stem for path in folder().glob("*.md"))


def read_template(name: str) -> str:
    """Return the text of a template. Raises SettingsError naming the nearest one."""
    if name not in (known := names()):
        raise SettingsError(
            f"There is no template '{name[:64]}'. {nearest(name, known) if known else 'Save one: /template name text'}"
        )
    try:
        return text_of((folder() / f"{name}.md").read_bytes()).strip()
    except OSError as error:
        raise SettingsError(
            f"{folder() / name}.md cannot be read ({error.strerror}). Make it readable, or remove it."
        ) from error
    except NotTextError as error:
        raise SettingsError(f"{folder() / name}.md cannot be read ({error}).") from error


def keep_template(name: str, text: str) -> str:
    """Write a template, or remove it if the text is `none`; return a sentence about it. Raises SettingsError."""
    if not NAME.fullmatch(name):
        raise SettingsError(f"'{name[:64]}' cannot name a template. Use letters, digits, - and _.")
    path = folder() / f"{name}.md"
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
