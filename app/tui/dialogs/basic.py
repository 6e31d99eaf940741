"""Small screens over the chat: a list to pick from, a text input, a page to read, a yes or no, also to a file's edit.

Know their content and return the choice; know no chat.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Generic, TypeVar

from rich.console import RenderableType
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import ScrollableContainer, Vertical, VerticalScroll
from textual.content import Content
from textual.events import Mount
from textual.screen import ModalScreen
from textual.widgets import Input, Label, OptionList, Static
from textual.widgets.option_list import Option

from app.terminal import clean
from app.tui.edits import Edit
from app.tui.widgets.prompt import PromptBox
from runtime.core.errors import SlipstreamError

T = TypeVar("T")
# Typed text -> lines to show with their values, None for a heading
Find = Callable[[str], Sequence[tuple[str | Content, T | None]]]
COLORS = {"+": "$text-success", "-": "$text-error", "@": "$text-primary"}  # by the first character of a diff's line
LEAVES_OUT = "The reply seems to leave out parts of the file: check the removed lines before you write it."


def narrowing(options: Sequence[tuple[str, T]]) -> Find[T]:
    """Return a search for the options whose line contains the typed text."""
    return lambda typed: [(line, value) for line, value in options if typed.lower() in line.lower()]


class Fault(Label):
    """A sentence on what is wrong in a dialog; no line while nothing is."""

    def __init__(self, text: str = "") -> None:
        super().__init__(text, classes="remark", markup=False)
        self.display = bool(text)

    def show(self, text: str) -> None:
        """Show this sentence, or none for ""."""
        self.update(clean(text))
        self.display = bool(text)


class PickDialog(ModalScreen[T], Generic[T]):
    """A list that narrows as the person types. Returns the picked value, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", "Back"),
        Binding("down", "move(1)", show=False, priority=True),
        Binding("up", "move(-1)", show=False, priority=True),
    ]

    remark, placeholder = "", "Type to search"  # a sentence above the list; what stands where one types

    def __init__(self, title: str, find: Find[T], hint: str = "") -> None:
        super().__init__()
        self.heading, self.find, self.hint = title, find, hint
        self.found: Sequence[tuple[str | Content, T | None]] = []

    def compose(self) -> ComposeResult:
        """Yield a line to type in, and the list."""
        with Vertical(classes="dialog") as dialog:
            dialog.border_title = Content(self.heading)
            yield Fault(self.remark)
            yield Input(placeholder=self.placeholder)
            yield OptionList(markup=False)
            yield Label(id="told", classes="hint", markup=False)
            yield Label(f"Enter picks · Esc goes back{self.hint}", classes="hint", markup=False)

    @on(Mount)
    @on(Input.Changed)
    def refill(self) -> None:
        """Show the options that match the typed text; everything until something is typed."""
        self.found = list(self.find(self.query_one(Input).value))
        options = self.query_one(OptionList)
        options.clear_options()
        for line, value in self.found:
            prompt = line if isinstance(line, Content) else Content(clean(line))
            options.add_option(Option(prompt, disabled=value is None))
        options.highlighted = next((i for i, (_, value) in enumerate(self.found) if value is not None), None)
        self._tell()  # as a list without a highlighted option posts no event

    def highlight(self, wanted: T | None) -> None:
        """Highlight the option with that value, if it is in the list."""
        at = next((i for i, (_, value) in enumerate(self.found) if value is not None and value == wanted), None)
        if at is not None:
            self.query_one(OptionList).highlighted = at

    @on(OptionList.OptionHighlighted)
    def _tell(self) -> None:
        picked = self.picked()
        told = self.told_of(picked) if picked is not None else ""
        label = self.query_one("#told", Label)
        label.update(told)
        label.display = bool(told)

    def told_of(self, value: T) -> str:
        """Return a note on the highlighted value, or ""."""
        return ""

    def picked(self) -> T | None:
        """Return the value of the highlighted line."""
        at = self.query_one(OptionList).highlighted
        return None if at is None else self.found[at][1]

    def action_move(self, step: int) -> None:
        """Highlight the line below or above."""
        options = self.query_one(OptionList)
        options.action_cursor_down() if step > 0 else options.action_cursor_up()

    @on(Input.Submitted)
    @on(OptionList.OptionSelected)
    def finish(self) -> None:
        """Return the highlighted value, or the one that the typed text is if nothing is found."""
        picked = self.picked()
        try:
            chosen = self.typed(self.query_one(Input).value.strip()) if picked is None else picked
            self.dismiss(None) if chosen is None else self.choose(chosen)
        except SlipstreamError as error:
            self.query_one(Fault).show(str(error))

    def typed(self, text: str) -> T | None:
        """Return the value that a typed text is, of which nothing is found; None for none. Raises SlipstreamError."""
        return None

    def choose(self, value: T) -> None:
        """Return the picked value."""
        self.dismiss(value)


class TextDialog(ModalScreen[str]):
    """A text to write or change. Returns it, or None. A text that `check` refuses stays, with the reason."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss", "Back")]

    def __init__(
        self,
        title: str,
        text: str = "",
        hint: str = "",
        about: str = "",
        check: Callable[[str], object] = lambda text: None,
        is_selected: bool = False,
    ) -> None:
        super().__init__()
        self.heading, self.text, self.hint, self.about = title, text, hint, about
        self.check, self.is_selected = check, is_selected  # whether the first letter replaces the text

    def compose(self) -> ComposeResult:
        """Yield the text box."""
        with Vertical(classes="dialog small") as dialog:
            dialog.border_title = Content(self.heading)
            yield PromptBox()
            yield Fault()
            if self.about:
                yield Label(self.about, classes="about", markup=False)
            yield Label(f"Enter accepts · Ctrl+J new line · Esc goes back{self.hint}", classes="hint", markup=False)

    def on_mount(self) -> None:
        """Put the current text into the box."""
        box = self.query_one(PromptBox)
        box.begin(self.text)
        if self.is_selected:
            box.select_all()

    @on(PromptBox.Sent)
    def finish(self, event: PromptBox.Sent) -> None:
        """Return the written text, or show why it is refused."""
        event.stop()
        if not (text := event.text.strip()):
            return
        try:
            self.check(text)
        except SlipstreamError as error:
            self.query_one(Fault).show(str(error))
        else:
            self.dismiss(text)


class PageDialog(ModalScreen[None]):
    """A page to read: text or another renderable."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,f1,f8", "dismiss", "Back")]

    def __init__(self, title: str, text: str | RenderableType) -> None:
        super().__init__()
        self.heading, self.text = title, text

    def compose(self) -> ComposeResult:
        """Yield the page, with a scrollbar if it is long."""
        with VerticalScroll(classes="dialog") as dialog:
            dialog.border_title, dialog.border_subtitle = Content(self.heading), "Esc goes back"
            yield Static(self.text, markup=False)


class ConfirmDialog(ModalScreen[bool]):
    """A question with what follows from a yes. Returns whether the answer is yes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,n", "dismiss(False)", "No"),
        Binding("enter,y", "dismiss(True)", "Yes"),
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
    return Content("\n").join(Content.styled(clean(line), COLORS.get(line[:1], "")) for line in diff)
