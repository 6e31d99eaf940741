"""Generates chat titles with the model that answered, while the engine is idle.

Knows engines and gives way to other requests; renames nothing itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from textual.message import Message as Event

from app.chats.branch import ChatBranch
from app.chats.titles import request_for, title_from, title_of
from app.tui.background import Invisible
from app.tui.session import Session
from runtime.core.errors import SlipstreamError
from runtime.engine import Engine, Sampling

QUIET = 4.0  # seconds after a reply before a title is generated
TITLE_TOKENS = 24  # maximal tokens of a title


@dataclass(frozen=True, slots=True)
class TitleRequest:
    """A chat that is titled by the first line of its question."""

    chat: int
    title: str
    question: str


class Titles(Invisible):
    """Generates a title for one chat at a time; `cancel` gives way. Posts Found."""

    @dataclass
    class Found(Event):
        """The model's title for a chat that had the title `before`."""

        chat: int
        before: str
        title: str

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session
        self._request: TitleRequest | None = None

    def plan(self, branch: ChatBranch) -> None:
        """Plan a title for a chat that has just begun, unless there is another request in the next few seconds."""
        self.cancel()
        messages = branch.messages()
        if branch.id is None or len(messages) != 2 or not messages[1].content:
            return
        if branch.typed and branch.title == title_of(branch.typed):
            self._request = request = TitleRequest(branch.id, branch.title, branch.typed)
            self.set_timer(QUIET, partial(self._begin, request))

    def cancel(self) -> None:
        """Cancel the title, planned or being generated."""
        self._request = None

    def on_unmount(self) -> None:
        """Cancel; the thread ends within a step."""
        self.cancel()

    def _begin(self, request: TitleRequest) -> None:
        engine = self._session.engine
        if request is self._request and engine is not None:
            self.run_worker(partial(self._find, engine, request), thread=True, group="engine")

    def _find(self, engine: Engine, request: TitleRequest) -> None:
        """Generate the title. Runs in the thread."""
        ask, is_unwanted = request_for(request.question), lambda: request is not self._request
        try:
            chunks = engine.reply(ask, Sampling(temperature=0), TITLE_TOKENS, cancel=is_unwanted)
            title = title_from("".join(chunk.text for chunk in chunks), request.question)
        except SlipstreamError:  # no room, no chat template, or the engine is being closed
            return
        if title and request is self._request:
            self.post_message(self.Found(request.chat, request.title, title))
