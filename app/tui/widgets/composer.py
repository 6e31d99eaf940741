"""The input area: waiting messages, suggestions for the typed text, files that cannot be attached, and the text box.

Knows its parts and passes events between them; sends nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import OptionList, Static, TextArea
from textual.widgets.option_list import Option

from app.terminal import clean
from app.tui.attach import told_pictures, unattached, without_attached
from app.tui.completion import Completion, Suggestion
from app.tui.widgets.prompt import PromptBox
from app.tui.widgets.text_area import SuggestingArea

WIDEST = 44  # maximal columns for the text; the rest is for its note
GAP = 2
SHOWN = 3  # messages that have a line each; more are counted
HINT = "Sent when the model is free · Up changes the last one · Esc takes back all"
UNSEEN = "{} cannot see pictures, so it gets a note instead. /model chooses another, --mmproj names its encoder."
SEND = " Enter once more sends the text without it."


class Composer(Vertical):
    """The parts from top to bottom. PromptBox.Sent bubbles up to the screen."""

    DEFAULT_CSS = "Composer { height: auto; }"

    def __init__(
        self,
        past: Sequence[str],
        complete: Callable[[str], Completion],
        blind_model: Callable[[], str] = lambda: "",
        kept_pictures: Callable[[], Sequence[str]] = lambda: (),
    ) -> None:
        """`blind_model` returns the name of a model that cannot see, "" for any other one; `kept_pictures` the names of
        the pictures that the question has already.
        """
        super().__init__()
        self._blind_model, self._kept_pictures = blind_model, kept_pictures
        self.queue, self.suggestions = MessageQueue(), SuggestionList()
        self.lacking = Static(id="lacking", markup=False)
        self._told = ""  # the shown sentence about files that cannot be attached
        self._reported = ""  # the text that Enter has not sent because of them
        asked = [*dict.fromkeys(map(without_attached, past))]
        self.prompt = PromptBox(asked, complete, lambda: bool(self.queue.texts), id="prompt")

    def compose(self) -> ComposeResult:
        """Yield the parts; only the box is always visible."""
        yield self.queue
        yield self.suggestions
        yield self.lacking
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

    @on(SuggestingArea.Suggested)
    def _show_suggestions(self, event: SuggestingArea.Suggested) -> None:
        event.stop()
        self.suggestions.show(event.suggestions, event.choice)
        self._show_lacking()

    @on(OptionList.OptionSelected)
    def _take_suggestion(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.prompt.take(event.option_index)
        self.prompt.focus()

    @on(TextArea.Changed)
    def _show_lacking(self) -> None:
        """Name the files that cannot be attached, or else the pictures that are; while one is being typed, its
        suggestions are shown instead.
        """
        is_reported = self.prompt.text == self._reported
        is_choosing = self.suggestions.display and not is_reported
        fault = "" if is_choosing else self._lacking()
        told = fault + SEND if fault and is_reported else fault or ("" if is_choosing else pictures(self.prompt.text))
        if told != self._told:
            self._told, self.lacking.display = told, bool(told)
            self.lacking.set_class(bool(fault), "-fault")
            self.lacking.update(told)

    def _lacking(self) -> str:
        """Return why files named in the question cannot be attached or seen; "" for a command."""
        text = self.prompt.text
        if text.startswith("/"):
            return ""
        fault, blind = unattached(text, self._kept_pictures()), self._blind_model()
        unseen = UNSEEN.format(blind) if blind and (self._kept_pictures() or told_pictures(text)) else ""
        return clean(" ".join(filter(None, [fault, unseen])))

    @on(PromptBox.Sent)
    def _hold_back(self, event: PromptBox.Sent) -> None:
        """Report files that cannot be attached instead of sending the text, once."""
        text = self.prompt.text
        is_held = bool(self._lacking()) and text != self._reported
        self._reported = text if is_held else ""
        if is_held:
            event.stop()
        self._show_lacking()


def pictures(text: str) -> str:
    """Return a line about the pictures named in a question; "" for a command."""
    found = "" if text.startswith("/") else told_pictures(text)
    return clean(f"Attached: {found}") if found else ""


class MessageQueue(Static):
    """Shows the waiting messages, the next one first; hidden while there are none."""

    def __init__(self) -> None:
        super().__init__(markup=False)
        self.texts: list[str] = []
        self.display = False

    def add(self, text: str) -> None:
        """Add a message at the end of the queue."""
        self._change([*self.texts, text])

    def take_next(self) -> str | None:
        """Remove and return the oldest message."""
        return self._take(0)

    def take_last(self) -> str | None:
        """Remove and return the newest message."""
        return self._take(-1)

    def take_all(self) -> str:
        """Remove all messages and return them as one text."""
        texts = "\n\n".join(self.texts)
        self._change([])
        return texts

    def _take(self, at: int) -> str | None:
        if not self.texts:
            return None
        rest = list(self.texts)
        taken = rest.pop(at)
        self._change(rest)
        return taken

    def _change(self, texts: list[str]) -> None:
        self.texts, self.display = texts, bool(texts)
        lines = [f"▸ {clean(' '.join(text.split()))}" for text in texts[:SHOWN]]
        lines += [f"  and {len(texts) - SHOWN} more"] * (len(texts) > SHOWN)
        self.update(Content.assemble("\n".join(lines), (f"\n  {HINT}", "dim")))


class SuggestionList(OptionList, can_focus=False):
    """Shows suggestions while there are any. Posts OptionSelected for a click."""

    def __init__(self) -> None:
        super().__init__(markup=False, compact=True)
        self.display = False
        self._shown: Sequence[Suggestion] = ()

    def show(self, suggestions: Sequence[Suggestion], choice: int | None) -> None:
        """Show these suggestions with one of them marked."""
        if suggestions != self._shown:
            self._shown = suggestions
            width = min(WIDEST, self.app.size.width // 3, max((len(name(each)) for each in suggestions), default=0))
            self.clear_options()
            self.add_options(Option(row(each, width)) for each in suggestions)
        self.display = bool(suggestions)
        self.highlighted = choice


def name(suggestion: Suggestion) -> str:
    """Return the text in the list."""
    return suggestion.shown or suggestion.text


def row(suggestion: Suggestion, width: int) -> Content:
    """Return a line with the text, in a column, and its note."""
    shown = name(suggestion)
    if not suggestion.note:
        return Content(shown)
    cut = shown if len(shown) <= width else f"{shown[: width - 1]}…"
    return Content.assemble(cut.ljust(width + GAP), (suggestion.note, "dim"))
