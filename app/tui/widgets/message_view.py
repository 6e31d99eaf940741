"""One message on screen: a question as plain text, a reply as Markdown or, token by token, in the colors of the
drafters.

Knows its message; knows no other message, no store and no engine. Keys on it are requests to the screen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Collapsible, Label, Markdown, Static

from app.chats.pictures import pictures_in
from app.chats.store import StoredMessage
from app.reply_text import Piece, pieces_of, split_reasoning, text_of
from app.terminal import clean
from app.tui.attach import attached_in, without_attached
from app.tui.edits import ACCEPTED
from app.tui.markdown_dialect import markdown_parser
from app.tui.private_textual import growing
from app.tui.widgets.reply_markdown import ReplyMarkdown
from runtime.drafters.registry import described, find

FIRST_LINES, LAST_LINES = 8, 5  # of a long text; the lines between them are folded
FIRST_CHARACTERS, LAST_CHARACTERS = 900, 500
HOW = "(Enter on this message)"
ENDED = {"line", "end"}  # facts of an ended reply, which are removed if it continues
OTHER = "accent"  # color of text by an unknown drafter


@growing
class MessageView(Vertical, can_focus=True):
    """A focusable message; its keys post requests."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("c,y", "request('copy')", "Copy", id="turn.copy"),
        Binding("b", "request('copy_code')", "Copy code", id="turn.copy_code"),
        Binding("r", "request('regenerate')", "Regenerate", id="turn.regenerate"),
        Binding("e", "request('edit')", "Edit", id="turn.edit"),
        Binding("d", "request('diff')", "Changes", id="turn.diff", show=False),
        Binding("x,delete", "request('delete_turn')", "Delete", id="turn.delete", show=False),
        Binding("left", "request('older')", "Older version", id="turn.older", show=False),
        Binding("right", "request('newer')", "Newer version", id="turn.newer", show=False),
        Binding("enter,space", "unfold", "Unfold", id="turn.unfold", show=False),
        Binding("shift+left", "scroll_code(-1)", "Code to the left", id="turn.code_left", show=False),
        Binding("shift+right", "scroll_code(1)", "Code to the right", id="turn.code_right", show=False),
        Binding("up,k", "app.focus_previous", "Up", show=False),
        Binding("down,j", "app.focus_next", "Down", show=False),
    ]

    @dataclass
    class Requested(Message):
        """An action on this message: copy, copy_code, regenerate, edit, diff, delete_turn, older, newer."""

        view: MessageView
        what: str

    def __init__(self, message: StoredMessage, version: tuple[int, int], label: str = "") -> None:
        super().__init__(classes=message.role)
        self.message_id, self.role, self.text = message.id, message.role, message.content
        self.pieces = pieces_of(message.content, message.facts)
        self.facts: dict[str, Any] = message.facts
        self._version = "" if version[1] == 1 else f"version {version[0]} of {version[1]} (Shift+Tab, then ← →)"
        self._folded, self._label = True, clean(label)
        self._thinking: Collapsible | None = None

    def action_request(self, what: str) -> None:
        """Post the request to the screen."""
        self.post_message(self.Requested(self, what))

    def compose(self) -> ComposeResult:
        """Yield the parts; their visibility depends on the message."""
        if self.role == "user":
            yield Static(self._question(), classes="question", markup=False)
        else:
            if self._label:
                yield Label(self._label, classes="model", markup=False)
            yield ReplyMarkdown()
            yield Static(classes="tokens", markup=False)
        yield Label(classes="foot", markup=False)

    async def on_mount(self) -> None:
        """Show the text of a reply that exists already."""
        self._show_foot()
        if self.role != "user":
            await self._show_reply()

    def _question(self) -> Content:
        pictures = [f"attached: {each.line}" for each in pictures_in(self.facts)]
        text, attached = folded(self.text) if self._folded else (self.text.strip(), "")
        attached = "\n".join(filter(None, [*pictures, attached]))
        return Content.assemble(clean(text), (f"\n{clean(attached)}" * bool(attached), "dim"))

    def _show_foot(self) -> None:
        accepted = self.facts.get(ACCEPTED)
        written = f"written to {clean(', '.join(accepted))}" if accepted else ""
        text = " · ".join(filter(None, (self.facts.get("line"), self.facts.get("end"), written, self._version)))
        foot = self.query_one(".foot", Label)
        foot.update(text)
        foot.display = bool(text)

    def action_unfold(self) -> None:
        """Show all of a long question and its attached files, or the reasoning."""
        self._folded = not self._folded
        if self.role == "user":
            self.query_one(".question", Static).update(self._question())
        elif self._thinking is not None:
            self._thinking.collapsed = not self._thinking.collapsed

    def action_scroll_code(self, direction: int) -> None:
        """Scroll the reply's wide code sideways."""
        for answer in self.query(ReplyMarkdown):
            answer.scroll_code(direction)

    async def append(self, pieces: Sequence[Piece]) -> None:
        """Show more of the reply; only the end of the Markdown is rendered again."""
        if pieces and not ENDED.isdisjoint(self.facts):
            self.tell({name: fact for name, fact in self.facts.items() if name not in ENDED})
        before = split_reasoning(clean(self.text))[1]
        self.pieces += pieces
        self.text += text_of(pieces)
        thought, answer = split_reasoning(clean(self.text))
        await self._show_thought(thought)
        if answer.startswith(before):
            await self.query_one(Markdown).append(answer[len(before) :])
        else:
            await self.query_one(Markdown).update(answer)

    async def settle(self, pieces: Sequence[Piece], facts: dict[str, Any]) -> None:
        """Show the complete reply, rendered again, with its numbers."""
        self.pieces, self.text, self.facts = list(pieces), text_of(pieces), facts
        await self._show_reply()
        self._show_foot()

    def tell(self, facts: dict[str, Any]) -> None:
        """Show other facts of the reply."""
        self.facts = facts
        self._show_foot()

    async def _show_reply(self) -> None:
        thought, answer = split_reasoning(clean(self.text))
        await self._show_thought(thought)
        await self.query_one(Markdown).update(answer)
        self.show_tokens()

    async def _show_thought(self, thought: str) -> None:
        """Show the reasoning; its part is only mounted if there is any, as widgets are slow."""
        title = f"Thinking, {len(thought.split())} words"
        if thought and self._thinking is None:
            self._thinking = Collapsible(Static(classes="thought", markup=False), title="Thinking", classes="thinking")
            await self.mount(self._thinking, before=self.query_one(ReplyMarkdown))
        if self._thinking is not None:
            self._thinking.display = bool(thought)
            self._thinking.title = title
            self._thinking.query_one(".thought", Static).update(thought)

    def show_tokens(self) -> None:
        """Redraw the reply token by token, in the colors of the drafters."""
        names = list(dict.fromkeys(piece.drafter for piece in self.pieces if piece.drafter))
        parts: list[Content | tuple[str, str]] = [(f"■ {described(name)} ", color(name)) for name in names]
        parts += [("□ the model itself\n", "dim")] if self.pieces else []
        parts += [
            (piece.text, f"{color(piece.drafter)} underline") if piece.drafter else Content(piece.text)
            for piece in self.pieces
        ]
        self.query_one(".tokens", Static).update(Content.assemble(*parts))

    def code(self) -> str:
        """Return the last code block as raw text, or ""."""
        blocks = [each.content for each in markdown_parser().parse(self.text) if each.type in ("fence", "code_block")]
        return blocks[-1] if blocks else ""


def color(drafter: str) -> str:
    """Return the color of text by a drafter; several combined count as the first."""
    known = find(drafter.partition("+")[0])
    return f"$text-{known.colour if known else OTHER}"


def folded(question: str) -> tuple[str, str]:
    """Return the short text of a question, and a line for each file attached to it."""
    files = [f"attached: {path}, {counted(text)}" for path, text in attached_in(question).items()]
    return shortened(without_attached(question).strip()), "\n".join(f"{line} {HOW}" for line in files)


def shortened(text: str) -> str:
    """Return the first and last lines of a long text around a line about those between; a short text unchanged."""
    if text.count("\n") < FIRST_LINES + LAST_LINES + 1 and len(text) <= FIRST_CHARACTERS + LAST_CHARACTERS:
        return text
    first = "\n".join(text.split("\n")[:FIRST_LINES])[:FIRST_CHARACTERS]
    rest = text[len(first) :]
    last = "\n".join(rest.split("\n")[-LAST_LINES:])[-LAST_CHARACTERS:]
    left_out = rest[: len(rest) - len(last)].strip("\n")
    n_lines = left_out.count("\n") + 1
    what = f"{n_lines} more lines" if n_lines > 1 else f"{len(left_out)} more characters"
    return f"{first}\n… {what} {HOW}\n{last}"


def counted(text: str) -> str:
    """Return the number of lines in words."""
    n = len(text.splitlines())
    return f"{n} line{'s' * (n != 1)}"
