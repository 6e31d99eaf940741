"""One message on screen: a question as it was written, a reply as Markdown or, token by token, in the colours of who
guessed it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Collapsible, Label, Markdown, Static

from app.chats.store import Said
from app.tui.answering import Piece, clean
from app.tui.conversation import split_thinking

SHOWN_LINES = 14  # of a question, before it is folded
COLORS = {
    "ngram": "$text-success",
    "suffix": "$text-success",
    "grammar": "$text-error",
    "prediction": "$text-primary",
    "layerskip": "$text-warning",
}
OTHER = "$text-accent"
FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})[^\n]*\n(.*?)(?:^ {0,3}\1[`~]*[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)


class Turn(Vertical, can_focus=True):
    """Keys work on the message that has the focus; what they wish for is a message to the screen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("c,y", "wish('copy')", "Copy", id="turn.copy"),
        Binding("b", "wish('copy_code')", "Copy code", id="turn.copy_code"),
        Binding("r", "wish('regenerate')", "Regenerate", id="turn.regenerate"),
        Binding("e", "wish('edit')", "Edit", id="turn.edit"),
        Binding("left", "wish('older')", "Older version", id="turn.older", show=False),
        Binding("right", "wish('newer')", "Newer version", id="turn.newer", show=False),
        Binding("enter,space", "unfold", "Unfold", id="turn.unfold", show=False),
        Binding("up,k", "app.focus_previous", "Up", show=False),
        Binding("down,j", "app.focus_next", "Down", show=False),
    ]

    class Wish(Message):
        """What to do with this message: copy, copy_code, regenerate, edit, older, newer."""

        def __init__(self, turn: Turn, what: str) -> None:
            super().__init__()
            self.turn, self.what = turn, what

    def __init__(self, said: Said, version: tuple[int, int]) -> None:
        super().__init__(classes=said.role)
        self.message, self.role, self.text = said.id, said.role, said.content
        self.pieces = [Piece(text, drafter) for text, drafter in runs(said)]
        self.facts: dict[str, Any] = said.facts
        self._version = "" if version[1] == 1 else f"version {version[0]} of {version[1]} (← →)"
        self._folded = True

    def action_wish(self, what: str) -> None:
        """Tells the screen."""
        self.post_message(self.Wish(self, what))

    def compose(self) -> ComposeResult:
        """The parts; which of them are seen depends on the message."""
        if self.role == "user":
            yield Static(self._question(), classes="question")
        else:
            with Collapsible(title="Thinking", classes="thinking"):
                yield Static(classes="thought")
            yield Markdown(open_links=False, classes="answer")
            yield Static(classes="tokens")
        yield Label(classes="foot", markup=False)

    async def on_mount(self) -> None:
        """A reply from the store is there at once."""
        self._show_foot()
        if self.role != "user":
            await self.settle()

    def _question(self) -> Content:
        lines = clean(self.text.strip()).split("\n")
        if self._folded and len(lines) > SHOWN_LINES:
            lines[SHOWN_LINES - 1 :] = [f"… {len(lines) - SHOWN_LINES + 1} more lines (Enter on this message)"]
        return Content("\n".join(lines))

    def _show_foot(self) -> None:
        text = " · ".join(
            part for part in (self.facts.get("line", ""), self.facts.get("end", ""), self._version) if part
        )
        foot = self.query_one(".foot", Label)
        foot.update(text)
        foot.display = bool(text)

    def action_unfold(self) -> None:
        """Shows all of a long question, or what was thought."""
        self._folded = not self._folded
        if self.role == "user":
            self.query_one(".question", Static).update(self._question())
        else:
            thinking = self.query_one(Collapsible)
            thinking.collapsed = not thinking.collapsed

    async def append(self, pieces: Sequence[Piece]) -> None:
        """More of the reply; only the end of the Markdown is rendered again."""
        before = split_thinking(clean(self.text))[1]
        self.pieces += pieces
        self.text += "".join(piece.text for piece in pieces)
        thought, answer = split_thinking(clean(self.text))
        self._show_thought(thought)
        if self.screen.has_class("-tokens"):
            self.show_tokens()
        if answer.startswith(before):
            await self.query_one(Markdown).append(answer[len(before) :])
        else:
            await self.query_one(Markdown).update(answer)

    async def settle(self, facts: dict[str, Any] | None = None) -> None:
        """The reply is complete: all of it is rendered once more, with its numbers."""
        if facts is not None:
            self.facts = facts
        thought, answer = split_thinking(clean(self.text))
        self._show_thought(thought)
        await self.query_one(Markdown).update(answer)
        self.show_tokens()
        self._show_foot()

    def _show_thought(self, thought: str) -> None:
        thinking = self.query_one(Collapsible)
        thinking.set_class(bool(thought), "-any")
        if thought:
            thinking.title = f"Thinking, {len(thought.split())} words"
            thinking.query_one(".thought", Static).update(Content(thought))

    def show_tokens(self) -> None:
        """The reply as it was made, in the colours of who guessed it."""
        names = list(dict.fromkeys(piece.drafter for piece in self.pieces if piece.drafter))
        parts: list[Content | tuple[str, str]] = [(f"■ {name} ", color(name)) for name in names]
        parts += [("□ the target itself\n", "dim")] if self.pieces else []
        parts += [
            (piece.text, f"{color(piece.drafter)} underline") if piece.drafter else Content(piece.text)
            for piece in self.pieces
        ]
        self.query_one(".tokens", Static).update(Content.assemble(*parts))

    def marks(self) -> list[tuple[int, str]]:
        """How many characters in a row were guessed by whom, to be kept with the message."""
        return [
            (sum(len(piece.text) for piece in group), name)
            for name, group in groupby(self.pieces, lambda piece: piece.drafter)
        ]

    def code(self) -> str:
        """The last code block as raw text, or ""."""
        blocks = FENCE.findall(self.text)
        return str(blocks[-1][1]) if blocks else ""


def runs(said: Said) -> Iterable[tuple[str, str]]:
    """The text of a reply cut where another drafter's begins."""
    at = 0
    for n, name in said.facts.get("marks", []):
        yield said.content[at : at + n], name
        at += n
    if at < len(said.content):
        yield said.content[at:], ""


def color(drafter: str) -> str:
    """Of what that drafter guessed; several at once count as the first."""
    return COLORS.get(drafter.partition("+")[0], OTHER)
