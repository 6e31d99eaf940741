"""Graphs of the last reply, pass by pass: draft tokens, acceptance rate, tokens per pass.

Knows the numbers of a reply; chooses nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Sparkline, Static

from app.tui.numbers import by_pass, is_elsewhere, sources
from app.tui.pace import show_in
from runtime.engine.stats import Stats
from runtime.speculative.control.explain import Pass

SHOWN = 240  # passes in a graph
POINTS = 28  # minimal points of a graph, so that a single pass is not a solid block
WINDOW = 8  # drafts averaged in a point of the second graph
GRAPHS = ("guesses", "right", "tokens")


class SidePanel(Vertical):
    """Graphs of a reply next to the chat, or in a strip below it on a narrow screen."""

    def compose(self) -> ComposeResult:
        """Yield a title and a graph each."""
        for name in GRAPHS:
            with Vertical(classes="graph"):
                yield Static(id=f"{name}-title", classes="title", markup=False)
                yield Sparkline(id=f"{name}-graph")
        yield Static(id="who", markup=False)

    _stats = Stats()

    @property
    def lack(self) -> str:
        """Why there is nothing to draw, in a sentence; "" if there is something."""
        if is_elsewhere(self._stats):
            return "There are no graphs: another server runs the model and does not report its passes."
        return "" if self._stats.steps else "The graphs appear with the next reply."

    def show(self, stats: Stats) -> None:
        """Show the passes up to now, as soon as the panel is visible; without any it takes no room."""
        self._stats = stats
        self.set_class(bool(self.lack), "-empty")
        if self.display:
            self.draw()

    def on_show(self) -> None:
        """Draw the passes since the panel was hidden, when nothing was drawn."""
        self.draw()

    def draw(self) -> None:
        """Draw titles and graphs from scratch. Two titles have the numbers of the whole reply, if they are known; the
        acceptance rate stands with the speed.
        """
        stats = self._stats
        shown = [] if self.lack else stats.steps[-SHOWN:]
        tokens, guesses = by_pass(stats) or ("Written at once", "Guessed ahead")
        self._graph("guesses", guesses, [each.n_drafted for each in shown])
        self._graph("right", "Guessed right", rolling([each for each in shown if each.n_drafted]))
        # The bottom of the graph is the one token that every pass yields
        self._graph("tokens", tokens, [max(0, each.n_tokens - 1) for each in shown])
        show_in(self.query_one("#who", Static), Content("\n".join(shares(stats))))

    def _graph(self, name: str, title: str, data: Sequence[float]) -> None:
        self.query_one(f"#{name}-title", Static).update(title, layout=False)
        before = [0.0] * max(1, POINTS - len(data))  # a graph begins at zero and is filled from the right
        self.query_one(f"#{name}-graph", Sparkline).data = [*before, *data] if data else []


def rolling(drafted: Sequence[Pass]) -> list[float]:
    """Return the acceptance rate over the last few drafts, at each of them."""
    windows = [drafted[max(0, i - WINDOW + 1) : i + 1] for i in range(len(drafted))]
    return [Stats(steps=list(window)).acceptance_rate for window in windows]


def shares(stats: Stats) -> list[str]:
    """Return the share of passes by drafter, and the share without drafts."""
    lines = [f"{n / stats.n_passes:4.0%} {name}" for name, n in sources(stats).most_common()]
    plain = stats.drafters["none"]
    return ["Where guesses came from:", *lines, f"{plain / stats.n_passes:4.0%} without a guess"] if stats.steps else []
