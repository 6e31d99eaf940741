"""The settings of a chat with where each value comes from. Knows rows; changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from textual.content import Content

from app.tui.chat_settings import ASK, LEAVE_OUT, WHEN_FULL
from app.tui.dialogs.basic import PickDialog
from app.tui.dialogs.rare_settings import RARE, RARE_ABOUT
from app.tui.pieces import clean

NAME, VALUE = 22, 24  # columns
MAX_SHOWN = 300  # characters of a value below the list
ABOUT = {  # what each setting does and its range, for people
    "temperature": "How much chance there is in the choice of words: 0 takes the most likely one every time. From 0 to "
    "100, usually at most 1.5.",
    "top_k": "How many of the most likely tokens can be taken. A whole number; 0 has no limit.",
    "top_p": "Only the most likely tokens that together have this share can be taken. Above 0, at most 1 (all).",
    "min_p": "Leaves out tokens that have less than this share of the most likely one's chance. From 0, which leaves "
    "out none, to below 1.",
    "seed": "The same seed gives the same reply again. A whole number from 0, or none for another reply each time.",
    "repetition_penalty": "Makes tokens that came lately less likely. Above 0, at most 100; 1 changes nothing, usually "
    "at most 1.3.",
    "frequency_penalty": "Makes tokens less likely each time they came lately. From -100 to 100; 0 changes nothing, "
    "usually at most 1.",
    "presence_penalty": "Makes tokens that came lately less likely, but once only. From -100 to 100; 0 changes "
    "nothing, usually at most 1.",
    "penalty_last_n": "How many tokens back the three penalties look. A whole number; -1 is the whole chat, 0 turns "
    "them off.",
    "max_tokens": "The length at which a reply is cut off, from 1 token on, or none. 100 tokens are about 75 English "
    "words.",
    **RARE_ABOUT,
    WHEN_FULL: f"What happens when the context is full: {ASK} offers to leave out the oldest turns, {LEAVE_OUT} leaves "
    "them out without asking.",
}
HINT = " · the picked one changes in this chat\n/set --default name value, /system --default: in all chats"


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One setting."""

    name: str
    value: str
    source: str
    is_usual: bool = False  # whether the value is Slipstream's default
    about: str = ""  # what it does, and its range

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
        found = [row for row in self._rows if typed.lower() in row.name]
        usual = [(row.line, row.name) for row in found if row.name not in RARE_ABOUT]
        rare = [(row.line, row.name) for row in found if row.name in RARE_ABOUT]
        return [*usual, *([(RARE, None)] if rare else []), *rare]

    def told_of(self, value: str) -> str:
        """Return what a setting does, and its value if that is too long for its line."""
        row = next(row for row in self._rows if row.name == value)
        long = row.value[:MAX_SHOWN] if len(row.value) >= VALUE else ""
        return clean("\n".join(filter(None, [row.about, long])))
