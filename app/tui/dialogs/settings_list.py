"""The settings of a chat with where each value comes from. Knows rows; changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from textual.content import Content

from app.terminal import clean
from app.tui.chat_settings import ASK, LEAVE_OUT, WHEN_FULL
from app.tui.dialogs.basic import PickDialog

NAME, VALUE = 22, 24  # columns
MAX_SHOWN = 300  # characters of a value below the list
RARE = "Samplers that few use"  # heading of their group
RARE_ABOUT = {
    "dry_multiplier": "Makes tokens less likely that would continue a repetition, the more the longer it is. 0 is off, "
    "usually 0.8.",
    "dry_base": "By what factor that penalty grows with each token of the repetition. From 1 to 100.",
    "dry_allowed_length": "How many tokens may be repeated before that penalty begins. A whole number.",
    "dry_penalty_last_n": "How many tokens back repetitions are sought. A whole number; -1 is the whole chat, 0 "
    "is off.",
    "dry_sequence_breakers": "Texts across which no repetition is sought, with spaces between; \\n is the end of a "
    "line, \\s a space.",
    "xtc_probability": "How often the likeliest tokens are left out, so that a less usual one comes. From 0 (off) to "
    "1, usually 0.5.",
    "xtc_threshold": "Of the tokens with at least this chance only the last is kept then. From 0 to 1; above 0.5 is "
    "off.",
    "top_n_sigma": "Leaves out tokens that score this many standard deviations below the best. 0 or less is off, "
    "usually 1.",
    "typical_p": "Keeps the tokens that are about as surprising as is to be expected, up to this share. Above 0, at "
    "most 1 (off).",
    "dynatemp_range": "How far the temperature may move to both sides: down where the model is sure, up where it is "
    "not. 0 is off.",
    "dynatemp_exponent": "How the temperature follows the model's doubt: 1 evenly, above 1 later. From 0 to 100.",
    "mirostat": "2 keeps the replies about as surprising as mirostat_tau says, in place of top_k, top_p and min_p. 0 "
    "is off.",
    "mirostat_tau": "How surprising tokens are to be on average, in bits. From 0 to 100, usually 5.",
    "mirostat_eta": "How fast mirostat corrects what was more or less surprising. From 0 to 1.",
    "min_tokens": "How many tokens a reply has at least. A whole number; 0 is off.",
    "samplers": "The order in which samplers are applied, such as top_k;min_p;temperature; those without a place are "
    "off. None is the usual order.",
}
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
