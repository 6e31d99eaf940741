"""The text box: several lines, history, long pastes as chips, suggestions for the typed text.

Knows text and the history, and receives a function for completion; knows no chat.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message

from app.tui.completion import Completion, complete
from app.tui.pace import TypingGap
from app.tui.picture_files import named_if_dropped
from app.tui.private_textual import bound
from app.tui.widgets.text_area import Pastes, SuggestingArea, as_text

LONG_CHARACTERS, LONG_LINES = 1000, 8  # from this size on a paste becomes a chip
VERY_LONG = 20_000  # characters from which on a restored text becomes a chip, too: drawing its lines takes seconds
JOINERS = ("\u200c", "\u200d")  # not printable by Unicode, but required by many scripts and emoji
ONLY_FILES = partial(complete, arguments={})


def is_letter(event: events.Key) -> bool:
    """Return whether a key types its character. With Alt, a terminal sends Esc before one that is not to be typed."""
    return event.is_printable and not event.key.startswith("alt+")


class PromptBox(SuggestingArea):
    """Text input: Enter sends, Shift+Enter or Ctrl+J begins a line, Up and Down on the outer lines move through the
    history.
    """

    ACTIONS: ClassVar[dict[str, str]] = {
        "enter": "send", "shift+enter": "newline", "alt+enter": "newline", "ctrl+j": "newline", "tab": "complete",
    }  # fmt: skip
    BINDINGS: ClassVar[list[BindingType]] = [  # Ctrl+Z suspends, as in any program of a terminal
        Binding("ctrl+underscore,ctrl+slash,alt+z", "undo", "Undo", show=False)
    ]

    @dataclass
    class Sent(Message):
        """Enter was pressed, maybe without any text. `typed` is the part that was not pasted, `replaces` the message
        that it replaces.
        """

        text: str
        typed: str
        replaces: int | None = None

    class Recalled(Message):
        """Up was pressed in an empty box while messages wait: the last of them returns to the box."""

    def __init__(
        self,
        past: Sequence[str] = (),
        complete: Callable[[str], Completion] = ONLY_FILES,
        has_waiting: Callable[[], bool] = lambda: False,
        id: str | None = None,
    ) -> None:
        super().__init__(complete, id)
        self.past = list(past)  # texts sent before, oldest first
        self._has_waiting = has_waiting  # whether messages wait to be sent
        self._place = len(self.past)
        self._draft = ""  # the unsent text, while moving through the history
        self.rewritten: int | None = None  # the message that is being rewritten
        self._pastes = Pastes()
        self.gap = TypingGap()

    async def _on_key(self, event: events.Key) -> None:
        """Handle a key in order: Textual inserts letters immediately, but runs the actions of bound keys later."""
        self.gap.note_key()
        self.call_after_refresh(self.gap.use)
        if is_letter(event):
            return
        if action := self.ACTIONS.get(event.key):
            getattr(self, action)()
        elif event.character in JOINERS:
            self.insert(event.character)
        elif not await self._has_done(event.key) and not event.is_printable:
            return
        event.prevent_default()
        event.stop()

    async def _has_done(self, key: str) -> bool:
        """Run the action of a key bound in this box; return whether there was one."""
        for binding in bound(self, key):
            if await self.app.run_action(binding.action, self):
                return True
        return False

    def send(self) -> None:
        """Post the text with chips unfolded, or take the chosen command or file."""
        completion = self._suggest()
        if self._choice >= 0:
            chosen = completion.suggestions[self._choice]
            is_typed = chosen.text.rstrip() == self._seen[completion.begin :]
            self.take(self._choice)
            if not completion.is_command or (chosen.goes_on and not is_typed):
                return
        text = self.unfolded()
        if text.strip() or not text:
            self.post_message(self.Sent(text, self._pastes.typed(self.text), self.rewritten))

    def unfolded(self) -> str:
        """Return the text with every chip replaced by its pasted text."""
        return self._pastes.unfold(self.text)

    def begin(self, text: str = "") -> None:
        """Replace the text, with the cursor at its end."""
        self._place, self._draft = len(self.past), ""
        self._replace_all(self._drawable(text))

    def _drawable(self, text: str) -> str:
        """Return the text, or a chip for it if it is very long."""
        return self._pastes.fold(text) if len(text) >= VERY_LONG else as_text(text)

    def _replace_all(self, text: str) -> None:
        self.text = text
        self.move_cursor(self.document.end)
        self.end_suggestions()

    def begin_rewriting(self, message: int, text: str) -> None:
        """Start rewriting a message, with its text."""
        self.rewritten = message
        self.add_class("-rewriting")
        self.border_title = "Editing: Enter branches the chat here, Esc leaves it as it was"
        self.begin(text)
        self.focus()

    def end_rewriting(self) -> None:
        """End rewriting: the next text replaces no message."""
        self.rewritten = None
        self.remove_class("-rewriting")
        self.border_title = ""

    @property
    def is_rewriting(self) -> bool:
        """Whether a message is being rewritten."""
        return self.rewritten is not None

    def remember(self) -> None:
        """Add the text to the history, with its pastes."""
        text = self.unfolded()
        if text and self.past[-1:] != [text]:
            self.past.append(text)
        self._place = len(self.past)

    def newline(self) -> None:
        """Insert a line break."""
        self.replace("\n", *self.selection)

    async def _on_paste(self, event: events.Paste) -> None:
        """Insert a paste; a long one becomes a chip."""
        text = event.text.replace("\r\n", "\n").replace("\r", "\n")
        if len(text) >= LONG_CHARACTERS or len(text.splitlines()) >= LONG_LINES:
            text = self._pastes.fold(text)
        else:
            text = named_if_dropped(text) or as_text(text)
            self._pastes.note(text)
        event.prevent_default()
        event.stop()
        self.replace(text, *self.selection)

    def action_copy(self) -> None:
        """Copy what is selected, here or on the screen. Without that, remove the text, which Up brings back."""
        if self.selected_text or not self.text or self.screen.get_selected_text():
            super().action_copy()
        else:
            self.remember()
            self.end_rewriting()
            self.begin()

    def action_cursor_up(self, select: bool = False) -> None:
        """Choose the previous suggestion, recall a waiting message, or move to the line above or, from the first line,
        back in history.
        """
        if self._suggest().suggestions:
            self._choose(-1)
        elif not self.text and self._has_waiting():
            self.post_message(self.Recalled())
        elif not select and self.cursor_at_first_line and self._place > 0:
            self._go(-1)
        else:
            super().action_cursor_up(select)

    def action_cursor_down(self, select: bool = False) -> None:
        """Choose the next suggestion, or move to the line below or, from the last line, forward in history."""
        if self._suggest().suggestions:
            self._choose(1)
        elif not select and self.cursor_at_last_line and self._place < len(self.past):
            self._go(1)
        else:
            super().action_cursor_down(select)

    def _go(self, step: int) -> None:
        if self._place == len(self.past):
            self._draft = self.text
        self._place += step
        self._replace_all(self._draft if self._place == len(self.past) else self._drawable(self.past[self._place]))
