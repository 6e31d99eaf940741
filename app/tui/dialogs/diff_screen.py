"""The changes of a file by a reply, line by line, before it is written. Knows an edit; writes nothing."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import ScrollableContainer, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Label, Static

from app.tui.edits import Edit
from app.tui.pieces import clean

COLORS = {"+": "$text-success", "-": "$text-error", "@": "$text-primary"}
HINT = "Enter writes the file · Esc leaves it as it is"
LEAVES_OUT = "The reply seems to leave out parts of the file: check the removed lines before you write it."


class DiffScreen(ModalScreen[bool]):
    """The removed and added lines. Returns whether to write the file."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,n", "answer(False)", "Leave"),
        Binding("enter,y", "answer(True)", "Write"),
    ]

    def __init__(self, edit: Edit) -> None:
        super().__init__()
        self._edit = edit

    def compose(self) -> ComposeResult:
        """Yield the lines, which scroll, then the keys."""
        edit, (n_new, n_gone) = self._edit, self._edit.counts
        with Vertical(classes="dialog") as dialog:
            dialog.border_title = Content(f"{clean(edit.path)}: +{n_new} -{n_gone} lines")
            with ScrollableContainer(id="difference"):
                yield Static(colored(edit.diff), markup=False)
            if edit.leaves_out:
                yield Label(LEAVES_OUT, id="warning", markup=False)
            yield Label(HINT, classes="hint", markup=False)

    def on_mount(self) -> None:
        """Focus the lines, so that keys scroll them."""
        self.query_one("#difference").focus()

    def action_answer(self, is_wanted: bool) -> None:
        """Return the answer."""
        self.dismiss(is_wanted)


def colored(diff: list[str]) -> Content:
    """Return the lines in colors for added, removed and position."""
    lines = [Content.styled(clean(line), COLORS.get(line[:1], "")) for line in diff]
    return Content("\n").join(lines)
