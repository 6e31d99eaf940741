"""The screen that explains whether replies are faster and why; tables with the evidence are one key away.

Knows the text of its pages; knows neither its computation nor a chat.
"""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import Screen
from textual.widgets import Footer, Static

from app.tui.dialogs.why_summary import picture, three_sentences
from app.tui.dialogs.why_text import Section
from runtime.engine import Engine
from runtime.engine.stats import Stats
from runtime.speculative.control.explain import Explanation

HALF = 3  # sections in the left column


class WhyScreen(Screen[None]):
    """Three sentences and a picture; on a second page tables, in two columns on a wide screen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,f2", "dismiss", "Back to the chat"),
        Binding("t,enter", "turn", "Tables and formulas"),
    ]

    def __init__(
        self, whose: str, explanation: Explanation, stats: Stats, tables: list[Section], engine: Engine | None
    ) -> None:
        super().__init__()
        self.whose = whose
        self.sentences, self.picture = three_sentences(stats, explanation, engine), picture(stats)
        self.sections = tables

    def compose(self) -> ComposeResult:
        """Yield both pages; one of them is visible."""
        yield Static(self.whose, id="whose", markup=False)
        with VerticalScroll(id="summary"):
            for question, answer in self.sentences:
                yield Static(question, classes="title", markup=False)
                yield Static(answer, classes="text", markup=False)
            yield Static(self.picture, id="picture", markup=False)
        with VerticalScroll(id="why"):
            for column in (self.sections[:HALF], self.sections[HALF:]):
                with Vertical(classes="column"):
                    for section in column:
                        yield Static(section.title, classes="title", markup=False)
                        yield Static(section.text, classes="text", markup=False)
                        if section.table:
                            yield Static(section.table, classes="table", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        """Focus the visible page, so that keys scroll it."""
        self.query_one("#summary").focus()

    def action_turn(self) -> None:
        """Show the other page."""
        self.toggle_class("-tables")
        self.query_one("#why" if self.has_class("-tables") else "#summary").focus()
