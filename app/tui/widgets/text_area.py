"""A text area with keys as in a shell, which move over whole drawn characters: an emoji of several code points, an
accent, a chip that stands for a long paste. Suggestions for what is typed at the cursor come from a function.

Knows text only, and draws no suggestion.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.cells import split_graphemes
from textual import on
from textual.binding import Binding, BindingType
from textual.widgets import TextArea

from app.tui.completion import Completion, Suggestion, common
from app.tui.pace import Latest

MARK = "\u2063"  # around a chip: invisible and on no keyboard, so typed text never becomes a chip
CHIP = re.compile(rf"{MARK}\[Pasted #([1-9]\d{{0,5}}): [^\]]*\]{MARK}")
FLAG = re.compile("[\U0001f1e6-\U0001f1ff]{2}")


class Pastes:
    """The long texts pasted into one box, by number from 1."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._short: list[str] = []  # pastes of a few lines, which are no chips

    def fold(self, text: str) -> str:
        """Return the chip that stands for a text."""
        if text not in self._texts:
            self._texts.append(text)
        number, n_lines = self._texts.index(text) + 1, len(text.splitlines())
        return f"{MARK}[Pasted #{number}: {n_lines} line{'s' * (n_lines != 1)}, {len(text)} characters]{MARK}"

    def unfold(self, text: str) -> str:
        """Return a text with the chips replaced by their pastes."""

        def pasted(chip: re.Match[str]) -> str:
            number = int(chip[1])
            return self._texts[number - 1] if number <= len(self._texts) else chip[0]

        return CHIP.sub(pasted, text)

    def note(self, text: str) -> None:
        """Record a short paste. One line counts as typed."""
        if "\n" in text.strip():
            self._short.append(text)

    def typed(self, text: str) -> str:
        """Return the part of a text that was not pasted."""
        for each in self._short:
            text = text.replace(each, "")
        return CHIP.sub("", text)


def as_text(text: str) -> str:
    """Return a text from elsewhere without chips: what looks like one becomes plain text."""
    return text.replace(MARK, "") if CHIP.search(text) else text


def pieces(line: str) -> Iterator[tuple[int, int]]:
    """Yield the begin and end of each piece of a line: a chip, or code points drawn as one character."""
    place = 0
    for chip in [*CHIP.finditer(line), None]:
        end = chip.start() if chip else len(line)
        yield from ((place + first, place + last) for first, last in characters(line[place:end]))
        if chip:
            yield chip.span()
            place = chip.end()


def characters(text: str) -> Iterator[tuple[int, int]]:
    """Yield the begin and end of each drawn character. Two regional indicators are a flag, which Rich does not know."""
    flags = {flag.start() for flag in FLAG.finditer(text)}
    for first, last, _ in split_graphemes(text)[0]:
        if first - 1 not in flags:
            yield first, last + (first in flags)


def left_of(line: str, column: int) -> int:
    """Return the beginning of the piece that ends at a column or contains it; 0 at the beginning."""
    return max((first for first, _ in pieces(line) if first < column), default=0)


def right_of(line: str, column: int) -> int:
    """Return the end of the piece that begins at a column or contains it; the line's end at its end."""
    return min((last for _, last in pieces(line) if last > column), default=len(line))


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

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether an action is available: none of those that are left to what is around the empty area."""
        return bool(self.text) or action not in ("cursor_line_start", "cursor_line_end", "delete_right")

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
