"""A question that is answered with yes or no, alone or about the changes of a file.

Knows its words; does nothing itself.
"""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import ScrollableContainer, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Label, Static

from app.terminal import clean
from app.tui.edits import Edit

COLORS = {"+": "$text-success", "-": "$text-error", "@": "$text-primary"}
LEAVES_OUT = "The reply seems to leave out parts of the file: check the removed lines before you write it."


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


class DiffScreen(ConfirmDialog):
    """The removed and added lines of a file. Returns whether to write it."""

    def __init__(self, edit: Edit) -> None:
        n_new, n_gone = edit.counts
        super().__init__(f"{clean(edit.path)}: +{n_new} -{n_gone} lines", "", "writes the file", "leaves it as it is")
        self._edit = edit

    def compose(self) -> ComposeResult:
        """Yield the lines, which scroll, then the keys."""
        with Vertical(classes="dialog") as dialog:
            dialog.border_title = Content(self.heading)
            with ScrollableContainer(id="difference"):
                yield Static(colored(self._edit.diff), markup=False)
            if self._edit.leaves_out:
                yield Label(LEAVES_OUT, id="warning", markup=False)
            yield Label(self.hint, classes="hint", markup=False)

    def on_mount(self) -> None:
        """Focus the lines, so that keys scroll them."""
        self.query_one("#difference").focus()


def colored(diff: list[str]) -> Content:
    """Return the lines in colors for added, removed and position."""
    lines = [Content.styled(clean(line), COLORS.get(line[:1], "")) for line in diff]
    return Content("\n").join(lines)
