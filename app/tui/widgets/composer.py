"""The input area: waiting messages, suggestions for the typed text, and the text box.

Knows its three parts and passes events between them; sends nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import OptionList

from app.tui.completion import Completion
from app.tui.widgets.prompt import PromptBox
from app.tui.widgets.queue import MessageQueue
from app.tui.widgets.suggestions import SuggestionList


class Composer(Vertical):
    """The three parts from top to bottom. PromptBox.Sent bubbles up to the screen."""

    DEFAULT_CSS = "Composer { height: auto; }"

    def __init__(self, past: Sequence[str], complete: Callable[[str], Completion]) -> None:
        super().__init__()
        self.queue, self.suggestions = MessageQueue(), SuggestionList()
        self.prompt = PromptBox(past, complete, lambda: bool(self.queue.texts), id="prompt")

    def compose(self) -> ComposeResult:
        """Yield the parts; only the box is always visible."""
        yield self.queue
        yield self.suggestions
        yield self.prompt

    def unsent(self) -> str:
        """Return all waiting messages and the text in the box."""
        return "\n\n".join(filter(None, [*self.queue.texts, self.prompt.unfolded()]))

    def take_back(self) -> None:
        """Put all waiting messages into the box, before its text."""
        self.prompt.begin("\n\n".join(filter(None, [self.queue.take_all(), self.prompt.text])))

    @on(PromptBox.Recalled)
    def _take_last_back(self, event: PromptBox.Recalled) -> None:
        event.stop()
        self.prompt.begin(self.queue.take_last() or "")

    @on(PromptBox.Suggested)
    def _show_suggestions(self, event: PromptBox.Suggested) -> None:
        event.stop()
        self.suggestions.show(event.suggestions, event.choice)

    @on(OptionList.OptionSelected)
    def _take_suggestion(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.prompt.take(event.option_index)
        self.prompt.focus()
