"""The settings of a chat with where each value comes from. Knows rows; changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from textual.content import Content

from app.tui.dialogs.basic import PickDialog
from app.tui.pieces import clean

NAME, VALUE = 20, 24  # columns
MAX_SHOWN = 300  # characters of a value below the list
HINT = " · the picked one changes in this chat\n/set --default name value, /system --default: in all chats"


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One setting."""

    name: str
    value: str
    source: str
    is_usual: bool = False  # whether the value is Slipstream's default

    @property
    def line(self) -> Content:
        """The setting on one line."""
        value = " ".join(self.value.split())
        cut = value if len(value) < VALUE else f"{value[: VALUE - 2]}…"
        return Content.styled(clean(f"{self.name:<{NAME}}{cut:<{VALUE}}{self.source}"), "dim" * self.is_usual)


class SettingsList(PickDialog[str]):
    """All settings. Returns the name of the one to change, or None."""

    def __init__(self, title: str, rows: Sequence[SettingRow], at: str = "") -> None:
        super().__init__(title, self._find, HINT)
        self._rows, self._at = rows, at

    def on_mount(self) -> None:
        """Highlight the setting that was changed last, once the list is filled by the base class."""
        self.call_later(self.highlight, self._at)

    def _find(self, typed: str) -> list[tuple[str | Content, str | None]]:
        return [(row.line, row.name) for row in self._rows if typed.lower() in row.name]

    def told_of(self, value: str) -> str:
        """Return a value that is too long for its line."""
        found = next((row.value for row in self._rows if row.name == value), "")
        return clean(found[:MAX_SHOWN]) if len(found) >= VALUE else ""
