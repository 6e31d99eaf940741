"""The messages of a chat on screen, and the reply that grows at the end; offers in an empty chat.

Reads the branch that it shows; generates no replies and changes no chat.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from app.chats.authors import Facts, is_other, label_of
from app.chats.branch import CONTINUE_HINT, ChatBranch
from app.chats.store import StoredMessage
from app.reply_text import Piece, text_of
from app.terminal import clean
from app.tui.numbers import reasons_of, stats_of
from app.tui.widgets.message_scroll import MessageScroll
from app.tui.widgets.message_view import MessageView
from app.tui.widgets.shown_part import ShownPart
from runtime.engine.stats import merged
from runtime.speculative.control.explain import Pass

WELCOME = (
    "Ask something. Enter sends, Ctrl+J starts a line, F1 shows every key.\nA / starts a command, an @ attaches a file."
)


class Transcript(MessageScroll, can_focus=False):
    """A part of a branch, and the current reply."""

    def __init__(self, branch: ChatBranch, id: str | None = None) -> None:
        super().__init__(id=id)
        self._branch = branch
        self._offers: Sequence[Offer] = ()

    async def show(self, branch: ChatBranch, at: int | None = None) -> None:
        """Show a branch at its end, or focus one of its messages. The views of messages in common with the previous
        branch stay.
        """
        if branch is not self._branch:
            self._branch, self._part, self._coming, self._owed = branch, ShownPart(), None, 0.0
        part, was_last = self._part, self._part.is_last
        n_same = part.take(branch.messages())
        if part.first < n_same and was_last:
            await self._replace_from(n_same)
        else:
            await self._put(*part.around(at))
        if at is None:
            self.anchor()
        elif (view := self._find(at)) is not None:
            if self.max_scroll_y > 0:  # a short chat is entirely visible
                self.release_anchor()
            view.focus()

    async def offer(self, offers: Sequence[Offer]) -> None:
        """Show these offers in every empty chat."""
        self._offers = offers
        if self.query(Welcome):
            await self.show(self._branch)

    async def _replace_from(self, n_same: int) -> None:
        """Replace the messages after the first `n_same`."""
        stay = {each.id for each in self._part.messages[:n_same]}
        with self.app.batch_update():
            await self.remove_children([view for view in self.query(MessageView) if view.message_id not in stay])
            await self.mount_all(self._views_of(n_same, self._part.n))
            self._part.last = self._part.n
            await self._trim_top()
        await self._end_offers()

    async def add(self, message: StoredMessage) -> None:
        """Show a new message at the end."""
        if not self._part.is_last:
            await self._put(*self._part.around())
        self._coming = message.id if message.role == "assistant" else None
        self._part.messages.append(message)
        await self.remove_children("#welcome")
        await self.mount(self._view(message))
        self._part.last += 1
        self.anchor()

    async def append(self, message_id: int, pieces: Sequence[Piece]) -> None:
        """Show more of a reply, if it is on screen."""
        self._coming = message_id
        self._tell()
        if (message := self._part.find(message_id)) is not None:
            self._part.replace(replace(message, content=message.content + text_of(pieces)))
        if (view := self._find(message_id)) is not None:
            await view.append(pieces)
            if self.has_class("-tokens"):
                view.show_tokens()

    async def settle(self, message_id: int, pieces: Sequence[Piece], facts: dict[str, Any]) -> None:
        """Show a complete reply with its numbers, if it is on screen."""
        was_coming, self._coming = self._coming, None
        self._tell(was_coming is not None)
        if (message := self._part.find(message_id)) is not None:
            self._part.replace(replace(message, content=text_of(pieces), facts=facts))
        if (view := self._find(message_id)) is not None:
            await view.settle(pieces, facts)

    def tell(self, message: StoredMessage) -> None:
        """Show other facts of a reply, now or when it comes on screen."""
        self._part.replace(message)
        if (view := self._find(message.id)) is not None:
            view.tell(message.facts)

    async def _end_offers(self) -> None:
        """Remove the offer to continue from all replies but the last."""
        last = self._part.messages[-1].id
        for view in self.views("assistant"):
            end = view.facts.get("end", "")
            if view.message_id != last and end.endswith(CONTINUE_HINT):
                await view.settle(view.pieces, {**view.facts, "end": end.removesuffix(CONTINUE_HINT)})

    def toggle_tokens(self) -> None:
        """Show replies in the colors of their drafters, or as Markdown again."""
        self.toggle_class("-tokens")
        for view in self.views("assistant"):
            view.show_tokens()

    def views(self, role: str) -> list[MessageView]:
        """Return the views of one role that are on screen."""
        return [view for view in self.query(MessageView) if view.role == role]

    def passes(self, signature: Facts) -> list[Pass]:
        """Return the stored passes of the replies on screen by the model of this signature."""
        return [each for facts in self._facts_of(signature) for each in stats_of(facts).steps]

    def reasons(self, signature: Facts) -> list[tuple[str, int]]:
        """Return why passes of these replies had no guess, with counts."""
        return merged(each for facts in self._facts_of(signature) for each in reasons_of(facts))

    def _facts_of(self, signature: Facts) -> list[Facts]:
        return [view.facts for view in self.views("assistant") if not is_other(view.facts, signature)]

    def _find(self, message_id: int) -> MessageView | None:
        return next((view for view in self.query(MessageView) if view.message_id == message_id), None)

    def _nothing(self) -> Welcome:
        """Return the content of an empty chat."""
        branch = self._branch
        latest = [] if branch.id is not None else branch.store.chats(most=1)
        return Welcome(WELCOME, self._offers, "".join(clean(each.title) for each in latest))

    def _view(self, message: StoredMessage) -> MessageView:
        """Return the view of a message; the offer to continue is only on the last one."""
        facts = dict(message.facts)
        if message.id == self._coming:  # its stored "end" is only for a crash of the chat
            facts.pop("end", None)
        elif message.id != self._part.messages[-1].id and "end" in facts:
            facts["end"] = facts["end"].removesuffix(CONTINUE_HINT)
        label = label_of(self._part.messages, message)
        return MessageView(replace(message, facts=facts), self._branch.version(message.id), label)


@dataclass(frozen=True, slots=True)
class Offer:
    """A line, and the text that is sent when it is picked; "" for a heading."""

    line: str
    text: str = ""


class OfferList(OptionList):
    """A list of offers. Posts Taken."""

    @dataclass
    class Taken(Message):
        """An offer was picked."""

        text: str

    def __init__(self, offers: Sequence[Offer]) -> None:
        super().__init__(*map(option, offers), markup=False, compact=True)
        self._offers = offers

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Post the text of the picked offer."""
        event.stop()
        self.post_message(self.Taken(self._offers[event.option_index].text))


def option(offer: Offer) -> Option:
    """Return the line as an option; a heading cannot be picked."""
    return Option(Content.styled(offer.line, "" if offer.text else "bold"), disabled=not offer.text)


class Welcome(Vertical):
    """The content of an empty chat: the last chat, how to begin, and the offers."""

    def __init__(self, words: str, offers: Sequence[Offer], latest: str = "") -> None:
        super().__init__()
        self._words, self._offers, self._latest = words, offers, latest

    def compose(self) -> ComposeResult:
        """Yield the title of the last chat, the words, then the offers, as far as there are any."""
        if self._latest:
            yield OfferList([Offer(f"Continue: {self._latest} (Enter)", "/continue")])
        yield Static(self._words, id="welcome", markup=False)
        if self._offers:
            yield OfferList(self._offers)
