"""The screen that explains whether replies are faster and why: sentences and a picture, and one key away the evidence.

Knows the controller's explanation; computes nothing of it, and knows no chat.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import Screen
from textual.widgets import Footer, Static

from app.tui.dialogs.why_summary import picture, three_sentences
from app.tui.numbers import FEWEST, acceptance
from runtime.engine import Engine
from runtime.engine.stats import Stats
from runtime.speculative.control.explain import DrafterFacts, Explanation, Pass

BAR = 20  # characters of the longest bar
HALF = 3  # sections in the left column


@dataclass(frozen=True, slots=True)
class Section:
    """A heading, a paragraph, a table."""

    title: str
    text: str
    table: str = ""


def sections(
    explanation: Explanation, passes: Sequence[Pass], reasons: Sequence[tuple[str, int]] = ()
) -> list[Section]:
    """Return the decision first, then its evidence. `passes` are those of the replies on screen, and `reasons` say why
    some of them had no guess, with counts.
    """
    if not explanation.pass_seconds:  # another server runs the passes
        return [Section("Now", f"Nothing is decided here: {explanation.why_plain}.")]
    return [
        decision(explanation),
        unguessed(passes, reasons),
        costs(explanation),
        promises(explanation),
        observed(explanation, passes),
        depths(passes),
        ledger(explanation),
    ]


def decision(explanation: Explanation) -> Section:
    """Return the controller's current choice, and the reason."""
    plain = explanation.plain_per_second
    if explanation.fixed_k is not None:
        text = f"You set {explanation.fixed_k} draft tokens always, so nothing is decided here."
    elif explanation.chosen is not None:
        most = max(max(each.tokens) for each in explanation.drafters)  # a plain pass takes no longer than a wider one
        rate = min(explanation.rate, most * plain)
        promised = f"about {rate:.0f} tok/s, {rate / plain:.2f} times the {plain:.0f} of plain decode"
        text = f"The drafter '{explanation.chosen}' drafts where it is confident, expecting {promised}."
    else:
        text = f"Plain decode, {plain:.0f} tok/s: {explanation.why_plain}."
    if explanation.n_together > 1:
        text += f" {explanation.n_together} replies share each pass, so each is slower than it would be alone."
    return Section("Now", f"{text} It is decided again before every pass.")


def unguessed(passes: Sequence[Pass], reasons: Sequence[tuple[str, int]]) -> Section:
    """Return why passes had no guess, with counts."""
    n_drafted = sum(each.n_drafted > 0 for each in passes)
    text = f"{n_drafted} of the {len(passes)} passes of the replies on screen checked guesses."
    return Section("Why passes had no guess", text, "\n".join(f"{n:>6}  {reason}" for reason, n in reasons))


def costs(explanation: Explanation) -> Section:
    """Return the cost T(n) of a pass over n tokens here, as a table."""
    one, most = explanation.pass_seconds[0], max(explanation.pass_seconds)
    rows = []
    for width, seconds in enumerate(explanation.pass_seconds, start=1):
        how = "" if width in explanation.measured else "  not measured"
        bar = "█" * max(1, round(BAR * seconds / most)) if most else ""
        rows.append(f"{width:>4} {1e3 * seconds:>9.2f} {seconds / one if one else 0:>6.2f}  {bar}{how}")
    text = (
        "The model can check several tokens in one pass. What a pass over n tokens costs on this machine decides "
        "everything: "
        "if 4 cost less than 4 times as much as 1, checking guesses can pay."
    )
    return Section("What a pass costs here, T(n)", text, "\n".join([f"{'n':>4} {'ms':>9} {'× T(1)':>6}", *rows]))


def promises(explanation: Explanation) -> Section:
    """Return the expected tok/s of each drafter by K, the best marked."""
    drafters = explanation.drafters
    head = "   K " + "".join(f"{each.name:>14}" for each in drafters)
    rows = [
        f"   0 {explanation.plain_per_second:>14.0f}  plain decode"
        + ("  ◀ chosen" if explanation.chosen is None else "")
    ]
    rows += [
        f"{k:>4} " + "".join(cell(each, k, explanation.chosen) for each in drafters)
        for k in range(1, len(explanation.pass_seconds))
    ]
    rows.append(
        "  a  " + "".join(f"{percent(each.acceptance if each.n_seen >= FEWEST else None):>13} " for each in drafters)
    )
    text = (
        "If a share a of the guesses is right, a draft of K tokens yields E(K) = 1 + a + a² + … = (1 - a^(K+1)) / (1 - "
        "a) tokens. "
        "Divided by the time for guessing and for the pass, that is tok/s. ◀ marks the best K of the drafter that is "
        "used; "
        "the real K differs by step, because a drafter stops where it is unsure, and one that finds nothing is not "
        "used."
    )
    return Section(
        "Expected tok/s of each drafter by K",
        text,
        "\n".join([head, *rows]) if drafters else "No drafter is switched on.",
    )


def cell(drafter: DrafterFacts, k: int, chosen: str | None) -> str:
    """Return one number of the table; "-" for a drafter without any scored token."""
    if not drafter.n_seen:
        return f"{'-':>13} "
    mark = "◀" if drafter.name == chosen and k == drafter.best_k else " "
    return f"{drafter.per_second[k - 1]:>13.0f}{mark}"


def observed(explanation: Explanation, passes: Sequence[Pass]) -> Section:
    """Return the expected tokens per pass, E(K), and the observed ones."""
    rows = []
    for k in sorted({each.n_drafted for each in passes if each.n_drafted}):
        came = Stats(steps=[each for each in passes if each.n_drafted == k])
        expected = [
            each.tokens[k - 1]
            for each in explanation.drafters
            if each.name == explanation.chosen and k <= len(each.tokens)
        ]
        told = f"{expected[0]:>9.2f}" if expected else f"{'-':>9}"
        rows.append(
            f"{k:>4} {came.n_passes:>7} {told} {came.tokens_per_target_pass:>9.2f} {percent(acceptance(came)):>9}"
        )
    head = f"{'K':>4} {'passes':>7} {'expected':>9} {'observed':>9} {'accepted':>9}"
    text = (
        "Tokens per pass of the replies on screen. Long drafts are made where the drafter is sure, so they do better "
        "than the average acceptance says."
    )
    return Section("Expected and observed", text, "\n".join([head, *rows]) if rows else "Nothing was drafted yet.")


def depths(passes: Sequence[Pass]) -> Section:
    """Return how often the i-th token of a draft is accepted if all before it were."""
    rows, depth = [], 1
    while tried := [each for each in passes if each.n_drafted >= depth and each.n_accepted >= depth - 1]:
        share = sum(each.n_accepted >= depth for each in tried) / len(tried) if len(tried) >= FEWEST else None
        rows.append(f"{depth:>4} {len(tried):>7} {percent(share):>6}  {'█' * round(BAR * (share or 0))}".rstrip())
        depth += 1
    head = f"{'':>4} {'tried':>7} {'right':>6}"
    text = (
        "A wrong guess ends what is taken of a draft, so the second token counts only where the first was right, and "
        "so on."
    )
    return Section("Acceptance by depth", text, "\n".join([head, *rows]) if rows else "Nothing was drafted yet.")


def percent(share: float | None) -> str:
    """Return a share in percent, "-" for one that is known from too few tokens."""
    return "-" if share is None else f"{share:.0%}"


def ledger(explanation: Explanation) -> Section:
    """Return the time spent on trying drafters that do not pay."""
    spent = explanation.probe_seconds / explanation.decode_seconds if explanation.decode_seconds else 0.0
    rows = [f"{each.name:>14}  {state(each)}" for each in explanation.drafters]
    text = (
        f"A drafter that does not pay is parked and tried again now and then. Of {explanation.decode_seconds:.1f} s of "
        "decoding, "
        f"{explanation.probe_seconds * 1e3:.0f} ms ({spent:.2%}) were lost that way; {explanation.probe_share:.1%} is "
        "the limit, "
        "but for one pass at the very first start."
    )
    return Section("What trying again costs", text, "\n".join(rows))


def state(drafter: DrafterFacts) -> str:
    """Return whether a drafter is used or parked now."""
    seen = f"{drafter.n_seen} tokens scored"
    if drafter.expected_gain > 0:
        return f"promises {drafter.expected_gain:.2f} more tokens a pass; {seen}"
    if drafter.is_model_free:
        return f"costs nothing, brought nothing recently; {seen}"
    return f"parked, tried again in {max(0, drafter.n_wait - drafter.n_waited)} passes; {seen}"


def read_ahead(engine: Engine | None) -> list[Section]:
    """Return how much was read before it was asked for, and how much of that was needed; nothing if nothing was."""
    n_read, n_used = engine.status.ahead if engine else (0, 0)
    if not n_read:
        return []
    told = f"{n_read:,} tokens were read while you typed or between requests, and {n_used:,} of them were needed."
    return [Section("Read ahead", told)]


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
