"""The box to write in: several lines, history, long pastes as chips, completion of commands and paths.

Knows text, files' names and what was written before; knows no chat.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import ClassVar

from textual import events
from textual.actions import SkipAction
from textual.message import Message
from textual.widgets import TextArea

LONG_CHARACTERS, LONG_LINES = 1000, 8  # from which on a paste becomes a chip
JOINERS = ("\u200c", "\u200d")  # which Unicode does not call printable; letters of many scripts and emoji need them
CHIP = re.compile(r"\[Pasted #(\d+): [^\]]*\]")


class PromptBox(TextArea):
    """Enter sends; Shift+Enter or Ctrl+J begins a line; up and down on the outer lines go through the history."""

    ACTIONS: ClassVar[dict[str, str]] = {
        "enter": "send", "shift+enter": "newline", "alt+enter": "newline", "ctrl+j": "newline", "tab": "complete"
    }  # fmt: skip

    class Sent(Message):
        """Enter was pressed on some text. `replaces` is the message that it is to take the place of."""

        def __init__(self, box: PromptBox, text: str, replaces: int | None) -> None:
            super().__init__()
            self.box, self.text, self.replaces = box, text, replaces

        @property
        def control(self) -> PromptBox:
            """The box that it was written in."""
            return self.box

    def __init__(self, past: Sequence[str] = (), commands: Sequence[str] = (), id: str | None = None) -> None:
        super().__init__(tab_behavior="focus", highlight_cursor_line=False, id=id)
        self.past, self._commands = list(past), commands  # what was sent before, oldest first; names to complete
        self._place = len(self.past)
        self._draft = ""  # what was being written before going back in history
        self._replaces: int | None = None
        self._pasted: list[str] = []

    async def _on_key(self, event: events.Key) -> None:
        """Keys that edit are done here and not as bindings, which letters overtake that were typed after them."""
        if event.is_printable:
            return
        if action := self.ACTIONS.get(event.key):
            getattr(self, action)()
        elif event.character in JOINERS:
            self.insert(event.character)
        elif not await self._has_done(event.key):
            return
        event.prevent_default()
        event.stop()

    async def _has_done(self, key: str) -> bool:
        """Does what the key is bound to in this box, if it is bound to anything."""
        for binding in self._bindings.key_to_bindings.get(key, ()):
            if await self.app.run_action(binding.action, self):
                return True
        return False

    def send(self) -> None:
        """Posts what is written, chips unfolded."""
        text = self.unfolded()
        if text.strip():
            self.post_message(self.Sent(self, text, self._replaces))

    def unfolded(self) -> str:
        """The text with every chip replaced by what was pasted."""
        return CHIP.sub(
            lambda chip: self._pasted[int(chip[1]) - 1] if int(chip[1]) <= len(self._pasted) else chip[0], self.text
        )

    def begin(self, text: str = "") -> None:
        """Begins with another text, at its end."""
        self.text = text
        self.move_cursor(self.document.end)
        self._place, self._draft = len(self.past), ""

    def begin_rewriting(self, message: int, text: str) -> None:
        """Begins with the text of a message that is to be replaced."""
        self._replaces = message
        self.add_class("-rewriting")
        self.border_title = "Editing: Enter branches the chat here, Esc leaves it as it was"
        self.begin(text)
        self.focus()

    def end_rewriting(self) -> None:
        """What is sent next replaces nothing."""
        self._replaces = None
        self.remove_class("-rewriting")
        self.border_title = ""

    @property
    def is_rewriting(self) -> bool:
        """Is a message to be replaced?"""
        return self._replaces is not None

    def remember(self) -> None:
        """Puts what is written into the history."""
        if self.past[-1:] != [self.text]:
            self.past.append(self.text)
        self._place = len(self.past)

    def newline(self) -> None:
        """Begins a line."""
        self.replace("\n", *self.selection)

    async def _on_paste(self, event: events.Paste) -> None:
        """A long paste becomes a chip."""
        text = event.text.replace("\r\n", "\n").replace("\r", "\n")
        n_lines = len(text.splitlines())
        if len(text) >= LONG_CHARACTERS or n_lines >= LONG_LINES:
            self._pasted.append(text)
            text = f"[Pasted #{len(self._pasted)}: {n_lines} lines, {len(text)} characters]"
        event.prevent_default()
        event.stop()
        self.replace(text, *self.selection)

    def action_cursor_line_start(self, select: bool = False) -> None:
        """Goes to the beginning of the line. Where nothing is written, the key is the chat's."""
        self._leave_to_chat()
        super().action_cursor_line_start(select)

    def action_cursor_line_end(self, select: bool = False) -> None:
        """Goes to the end of the line. Where nothing is written, the key is the chat's."""
        self._leave_to_chat()
        super().action_cursor_line_end(select)

    def _leave_to_chat(self) -> None:
        if not self.text:
            raise SkipAction

    def action_cursor_up(self, select: bool = False) -> None:
        """Goes to the line above, or back in history from the first."""
        if not select and self.cursor_at_first_line and self._place > 0:
            self._go(-1)
        else:
            super().action_cursor_up(select)

    def action_cursor_down(self, select: bool = False) -> None:
        """Goes to the line below, or forward in history from the last."""
        if not select and self.cursor_at_last_line and self._place < len(self.past):
            self._go(1)
        else:
            super().action_cursor_down(select)

    def _go(self, step: int) -> None:
        if self._place == len(self.past):
            self._draft = self.text
        self._place += step
        self.text = self._draft if self._place == len(self.past) else self.past[self._place]
        self.move_cursor(self.document.end)

    def complete(self) -> None:
        """Completes the command or the `@path` before the cursor as far as it is certain; otherwise goes on to the next
        widget.
        """
        row, column = self.cursor_location
        word = self.document.get_line(row)[:column].rpartition(" ")[2]
        options = paths(word[1:]) if word.startswith("@") else self._commands_that_begin(word)
        added = common(options)[len(word) - word.startswith("@") :]
        if added:
            self.insert(added)
        elif not options:
            self.screen.focus_next()

    def _commands_that_begin(self, word: str) -> list[str]:
        return [name for name in self._commands if word and name.startswith(word)]


def common(words: Sequence[str]) -> str:
    """The letters that all of these words begin with."""
    letters = takewhile(lambda same: len(set(same)) == 1, zip(*words, strict=False))
    return "".join(same[0] for same in letters)


def paths(begun: str) -> list[str]:
    """The paths that begin with these letters, folders with a slash."""
    folder, _, name = begun.rpartition("/")
    base = Path(folder + "/" if folder or begun.startswith("/") else ".").expanduser()
    try:
        found = sorted(base.iterdir())
    except OSError:
        return []
    prefix = begun[: len(begun) - len(name)]
    hidden = name.startswith(".")
    return [
        prefix + path.name + "/" * path.is_dir()
        for path in found
        if path.name.startswith(name) and (hidden or path.name[0] != ".")
    ]
