"""What a person may begin with where there is nothing to go on from: lines to click or pick in an empty chat.

Knows lines; does nothing of what they stand for.
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
    """A line, and what is written and sent when it is picked; "" for a heading."""

    line: str
    text: str = ""


class OfferList(OptionList):
    """Offers below one another. Posts Taken."""

    class Taken(Message):
        """One was picked."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def __init__(self, offers: Sequence[Offer]) -> None:
        super().__init__(*map(option, offers), markup=False, compact=True)
        self._offers = offers

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Says which."""
        event.stop()
        self.post_message(self.Taken(self._offers[event.option_index].text))


def option(offer: Offer) -> Option:
    """The line as it is listed; a heading cannot be picked."""
    return Option(Content.styled(offer.line, "" if offer.text else "bold"), disabled=not offer.text)


class Welcome(Vertical):
    """What is seen in an empty chat: how to begin, and what there is to begin with."""

    def __init__(self, words: str, offers: Sequence[Offer]) -> None:
        super().__init__()
        self._words, self._offers = words, offers

    def compose(self) -> ComposeResult:
        """The words, then the offers if there are any."""
        yield Static(Content(self._words), id="welcome")
        if self._offers:
            yield OfferList(self._offers)
