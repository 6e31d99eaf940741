"""Offers in an empty chat: lines to click or pick.

Knows lines; runs none of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option


@dataclass(frozen=True, slots=True)
class Offer:
    """A line, and the text that is sent when it is picked; "" for a heading."""

    line: str
    text: str = ""


class OfferList(OptionList):
    """A list of offers. Posts Taken."""

    class Taken(Message):
        """An offer was picked."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

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
