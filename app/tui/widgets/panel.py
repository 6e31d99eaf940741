"""The side panel: live graphs of draft length, acceptance and tokens per pass, and who guesses.

Knows passes and what the controller explains; chooses nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Sparkline, Static

from runtime.engine.stats import ELSEWHERE
from runtime.speculative.control.explain import Explanation, Pass

SHOWN = 240  # passes in a graph
WINDOW = 8  # passes that a point of the acceptance graph looks back on
GRAPHS = ("k", "acceptance", "tokens")


class SidePanel(Vertical):
    """Graphs of the chat's last passes."""

    def compose(self) -> ComposeResult:
        """A title and a graph each."""
        for name in GRAPHS:
            yield Static(id=f"{name}-title", classes="title")
            yield Sparkline(id=f"{name}-graph")
        yield Static(id="who")

    _passes: Sequence[Pass] = ()
    _explanation: Explanation | None = None

    def show(self, passes: Sequence[Pass], explanation: Explanation | None) -> None:
        """Shows the passes up to now, as soon as the panel is seen."""
        self._passes, self._explanation = passes, explanation
        if self.display:
            self.draw()

    def on_show(self) -> None:
        """Draws what came while it was hidden and cost nothing."""
        self.draw()

    def draw(self) -> None:
        """Draws titles and graphs anew."""
        passes, explanation = self._passes, self._explanation
        shown = [each for each in passes[-SHOWN:] if each.drafters != (ELSEWHERE,)]
        rates = rolling([each for each in shown if each.n_drafted])
        last = shown[-1] if shown else None
        self._graph("k", f"K, draft length: {last.n_drafted if last else '-'}", [each.n_drafted for each in shown])
        self._graph("acceptance", f"acceptance: {rates[-1]:.0%}" if rates else "acceptance: -", rates)
        self._graph(
            "tokens",
            f"tokens per pass: {last.n_accepted + 1 if last else '-'}",
            [each.n_accepted + 1 for each in shown],
        )
        self.query_one("#who", Static).update(Content("\n".join(drafter_shares(shown, explanation))))

    def _graph(self, name: str, title: str, data: Sequence[float]) -> None:
        self.query_one(f"#{name}-title", Static).update(Content(title), layout=False)
        self.query_one(f"#{name}-graph", Sparkline).data = [0.0, *data]  # graphs begin at zero


def rolling(drafted: Sequence[Pass]) -> list[float]:
    """Accepted / drafted over the last few drafts, at each of them."""
    windows = [drafted[max(0, i - WINDOW + 1) : i + 1] for i in range(len(drafted))]
    return [sum(each.n_accepted for each in window) / sum(each.n_drafted for each in window) for window in windows]


def drafter_shares(passes: Sequence[Pass], explanation: Explanation | None) -> list[str]:
    """Which drafters these passes used, and what asking others cost."""
    if explanation is not None and not explanation.pass_seconds:
        return ["Another server has the model,", "and tells of no passes."]
    counts = Counter(each.drafter.replace("none", "plain decode") for each in passes)
    lines = [f"{n / len(passes):4.0%} {name}" for name, n in counts.most_common()]
    if explanation is not None and explanation.decode_seconds:
        lines += ["", f"{explanation.probe_seconds / explanation.decode_seconds:.1%} of the time", "went into probes"]
    return lines
