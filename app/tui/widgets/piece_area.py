"""A text area with keys as in a shell, which move over whole drawn characters: an emoji of several code points, an
accent, a chip.
"""

from __future__ import annotations

from typing import ClassVar

from textual.actions import SkipAction
from textual.binding import Binding, BindingType
from textual.widgets import TextArea

from app.tui.widgets.pastes import left_of, pieces, right_of


class PieceArea(TextArea):
    """Textual's text area, in which arrows, Backspace and Delete move over or remove whole pieces of a line. While it
    is empty, what is around it handles Home, End and Ctrl+D.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("alt+d", "delete_word_right", "Delete word", show=False)]

    def get_cursor_left_location(self) -> tuple[int, int]:
        """Return the target of the left arrow and of Backspace: before a whole chip or emoji."""
        row, column = self.cursor_location
        return (row, left_of(self.document[row], column)) if column else super().get_cursor_left_location()

    def get_cursor_right_location(self) -> tuple[int, int]:
        """Return the target of the right arrow and of Delete, likewise."""
        row, column = self.cursor_location
        line = self.document[row]
        return (row, right_of(line, column)) if column < len(line) else super().get_cursor_right_location()

    def action_cursor_line_start(self, select: bool = False) -> None:
        """Move to the beginning of the line."""
        self._skip_if_empty()
        super().action_cursor_line_start(select)

    def action_cursor_line_end(self, select: bool = False) -> None:
        """Move to the end of the line."""
        self._skip_if_empty()
        super().action_cursor_line_end(select)

    def action_delete_right(self) -> None:
        """Remove the piece right of the cursor."""
        self._skip_if_empty()
        super().action_delete_right()

    def _skip_if_empty(self) -> None:
        if not self.text:
            raise SkipAction

    def action_delete_left(self) -> None:
        """Remove the piece left of the cursor; inside a chip, the whole chip."""
        self._leave_chip()
        super().action_delete_left()

    def _leave_chip(self) -> None:
        """Move the cursor to the end of the chip that it is in."""
        row, column = self.cursor_location
        inside = [last for first, last in pieces(self.document[row]) if first < column < last]
        if self.selection.is_empty and inside:
            self.move_cursor((row, inside[0]))
