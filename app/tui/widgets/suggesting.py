"""A text area with suggestions for what is typed at the cursor.

Knows text, and receives a function for completion; draws no suggestion.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from textual import on
from textual.widgets import TextArea

from app.tui.completion import Completion, Suggestion, common
from app.tui.pace import Latest
from app.tui.widgets.piece_area import PieceArea


class SuggestingArea(PieceArea):
    """A text area that posts suggestions while one types, and takes one of them into the text."""

    @dataclass
    class Suggested(Latest):
        """The suggestions, or the chosen one of them, have changed; there may be none."""

        suggestions: Sequence[Suggestion]
        choice: int | None

    def __init__(self, complete: Callable[[str], Completion], id: str | None = None) -> None:
        super().__init__(tab_behavior="focus", highlight_cursor_line=False, id=id)
        self._complete = complete
        self._completion, self._choice = Completion(), -1  # -1: no suggestion is chosen
        self._read = self._seen = ""  # the text at the last completion, and its part before the cursor

    @on(TextArea.Changed)
    @on(TextArea.SelectionChanged)
    def _suggest(self) -> Completion:
        """Return the completion at the cursor after the text has changed; an empty one once the cursor has moved."""
        before = self.get_text_range((0, 0), self.cursor_location)
        if self.text != self._read:
            self._show(self._complete(before) if before else Completion())
        elif before != self._seen:
            self._show(Completion())
        return self._completion

    def _show(self, completion: Completion) -> None:
        self._read, self._seen = self.text, self.get_text_range((0, 0), self.cursor_location)
        self._completion = completion
        self._choice = 0 if completion.is_named else -1  # letters alone must not run what they begin
        self._tell()

    def _tell(self) -> None:
        self.post_message(self.Suggested(self._completion.suggestions, self._choice if self._choice >= 0 else None))

    def end_suggestions(self) -> bool:
        """Clear the suggestions until something is typed; return whether there were any."""
        had = bool(self._completion.suggestions)
        self._show(Completion())
        return had

    def take(self, choice: int) -> None:
        """Replace the typed letters by a suggestion."""
        self._put(self._suggest().suggestions[choice].text)

    def _put(self, text: str) -> None:
        typed = self._seen[self._completion.begin :]
        row, column = self.cursor_location
        self.replace(text, (row, column - len(typed)), (row, column))
        self._suggest()

    def complete(self) -> None:
        """Take the chosen suggestion, or complete the common prefix; otherwise choose the first one."""
        completion = self._suggest()
        texts = [each.text for each in completion.suggestions]
        typed, same = self._seen[completion.begin :], common(texts)
        if self._choice >= 0:
            self.take(self._choice)
        elif len(texts) == 1 or (len(same) > len(typed) and same.startswith(typed)):
            self._put(same)
        elif texts:
            self._choose(1)
        elif not self.text.startswith("/"):
            self.screen.focus_next()

    def _choose(self, step: int) -> None:
        self._choice = (self._choice + step) % len(self._completion.suggestions)
        self._tell()
