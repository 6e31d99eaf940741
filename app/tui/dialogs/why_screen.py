"""The screen that shows why speculation is on or off.

Knows the text of its sections; knows neither the engine nor how they are found out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Footer, Static

from app.tui.dialogs.why_text import sections
from runtime.speculative.control.explain import Explanation, Pass

HALF = 3  # sections in the left column


class WhyScreen(Screen[None]):
    """The sections one under the other; in two columns where there is room."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,f2", "dismiss", "Back to the chat")]

    def __init__(self, explanation: Explanation, passes: Sequence[Pass]) -> None:
        super().__init__()
        self.sections = sections(explanation, passes)

    def compose(self) -> ComposeResult:
        """Everything is there at once."""
        with VerticalScroll(id="why"):
            for column in (self.sections[:HALF], self.sections[HALF:]):
                with Vertical(classes="column"):
                    for section in column:
                        yield Static(Content(section.title), classes="title")
                        yield Static(Content(section.text), classes="text")
                        if section.table:
                            yield Static(Content(section.table), classes="table")
        yield Footer()
