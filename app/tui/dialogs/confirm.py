"""A question that is answered with yes or no. Knows its words; does nothing itself."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Label


class ConfirmDialog(ModalScreen[bool]):
    """A question with what follows from a yes. Returns whether the answer is yes."""

    DEFAULT_CSS = """
    ConfirmDialog { align: center middle; }
    ConfirmDialog .question { width: 1fr; height: auto; margin-bottom: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,n", "answer(False)", "No"),
        Binding("enter,y", "answer(True)", "Yes"),
    ]

    def __init__(self, title: str, question: str, yes: str, no: str) -> None:
        super().__init__()
        self.heading, self.question, self.hint = title, question, f"Enter {yes} · Esc {no}"

    def compose(self) -> ComposeResult:
        """Yield the question and the keys."""
        with Vertical(classes="dialog small") as dialog:
            dialog.border_title = Content(self.heading)
            yield Label(self.question, classes="question", markup=False)
            yield Label(self.hint, classes="hint", markup=False)

    def action_answer(self, is_wanted: bool) -> None:
        """Return the answer."""
        self.dismiss(is_wanted)
