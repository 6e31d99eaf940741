"""Graphs of the last reply, pass by pass: draft tokens, acceptance rate, tokens per pass.

Knows the numbers of a reply; chooses nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Sparkline, Static

from app.tui.numbers import guesses_per_pass, is_elsewhere, sources
from app.tui.widgets.growing_blocks import show_in
from runtime.engine.stats import Stats
from runtime.speculative.control.explain import Pass

SHOWN = 240  # passes in a graph
POINTS = 28  # minimal points of a graph, so that a single pass is not a solid block
WINDOW = 8  # drafts averaged in a point of the second graph
GRAPHS = ("guesses", "right", "tokens")


class SidePanel(Vertical):
    """Graphs of a reply beside the chat, or in a strip below it on a narrow screen."""

    def compose(self) -> ComposeResult:
        """Yield a title and a graph each."""
        for name in GRAPHS:
            with Vertical(classes="graph"):
                yield Static(id=f"{name}-title", classes="title")
                yield Sparkline(id=f"{name}-graph")
        yield Static(id="who")

    _stats = Stats()

    def show(self, stats: Stats) -> None:
        """Show the passes up to now, as soon as the panel is visible."""
        self._stats = stats
        if self.display:
            self.draw()

    def on_show(self) -> None:
        """Draw the passes since the panel was hidden, when nothing was drawn."""
        self.draw()

    def draw(self) -> None:
        """Draw titles and graphs from scratch. The titles have the numbers of the whole reply, as elsewhere."""
        stats = self._stats
        shown = [] if is_elsewhere(stats) else stats.steps[-SHOWN:]
        guesses = f"{guesses_per_pass(stats):.1f} " if shown else ""
        right = f"{stats.acceptance_rate:.0%} of " if stats.draft_n else ""
        tokens = f"{stats.tokens_per_target_pass:.1f} " if shown else ""
        self._graph("guesses", f"{guesses}guesses/pass", [each.n_drafted for each in shown])
        self._graph("right", f"{right}guesses right", rolling([each for each in shown if each.n_drafted]))
        # The bottom of the graph is the one token that every pass yields
        self._graph("tokens", f"{tokens}tokens/pass", [max(0, each.n_tokens - 1) for each in shown])
        show_in(self.query_one("#who", Static), Content("\n".join(shares(stats))))

    def _graph(self, name: str, title: str, data: Sequence[float]) -> None:
        self.query_one(f"#{name}-title", Static).update(Content(title), layout=False)
        before = [0.0] * max(1, POINTS - len(data))  # a graph begins at zero and is filled from the right
        self.query_one(f"#{name}-graph", Sparkline).data = [*before, *data] if data else []


def rolling(drafted: Sequence[Pass]) -> list[float]:
    """Return the acceptance rate over the last few drafts, at each of them."""
    windows = [drafted[max(0, i - WINDOW + 1) : i + 1] for i in range(len(drafted))]
    return [Stats(steps=list(window)).acceptance_rate for window in windows]


def shares(stats: Stats) -> list[str]:
    """Return the share of passes by drafter, and the share without drafts."""
    if is_elsewhere(stats):
        return ["Another server has the model,", "and tells of no passes."]
    lines = [f"{n / stats.n_passes:4.0%} by {name}" for name, n in sources(stats).most_common()]
    plain = stats.drafters["none"]
    return ["guesses, by pass:", *lines, f"{plain / stats.n_passes:4.0%} none"] if stats.steps else []
