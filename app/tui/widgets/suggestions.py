"""The list of suggestions for the typed text, a line each. Knows suggestions; changes no text."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from app.tui.completion import Suggestion

WIDEST = 44  # maximal columns for the text; the rest is for its note
GAP = 2


class SuggestionList(OptionList, can_focus=False):
    """Shows suggestions while there are any. Posts OptionSelected for a click."""

    def __init__(self) -> None:
        super().__init__(markup=False, compact=True)
        self.display = False
        self._shown: Sequence[Suggestion] = ()

    def show(self, suggestions: Sequence[Suggestion], choice: int | None) -> None:
        """Show these suggestions with one of them marked."""
        if suggestions != self._shown:
            self._shown = suggestions
            width = min(WIDEST, self.app.size.width // 3, max((len(name(each)) for each in suggestions), default=0))
            self.clear_options()
            self.add_options(Option(row(each, width)) for each in suggestions)
        self.display = bool(suggestions)
        self.highlighted = choice


def name(suggestion: Suggestion) -> str:
    """Return the text in the list."""
    return suggestion.shown or suggestion.text


def row(suggestion: Suggestion, width: int) -> Content:
    """Return a line with the text, in a column, and its note."""
    shown = name(suggestion)
    if not suggestion.note:
        return Content(shown)
    cut = shown if len(shown) <= width else f"{shown[: width - 1]}…"
    return Content.assemble(cut.ljust(width + GAP), (suggestion.note, "dim"))
