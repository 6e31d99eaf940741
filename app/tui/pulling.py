"""A model is fetched from the hub in a thread, beside whatever the chat does.

Knows the hub's progress; opens no model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from threading import Event

from textual import on
from textual.message import Message

from app.tui.answering import Post
from app.tui.replying import Replying
from runtime.core.errors import SettingsError, SlipstreamError
from runtime.models.registry import HUB, Pair, find_pair, load_registry


class Fetching(Message):
    """So many bytes are here, or were checked."""

    def __init__(self, what: str, n_bytes: int, total: int) -> None:
        super().__init__()
        self.what, self.n_bytes, self.total = what, n_bytes, total

    def can_replace(self, message: Message) -> bool:
        """The latest says it all."""
        return isinstance(message, Fetching)


class FetchEnded(Message):
    """All is here, or not, for a reason."""

    def __init__(self, reason: str = "") -> None:
        super().__init__()
        self.reason = reason


class Paused(Exception):  # noqa: N818 (no error)
    """Nobody wants the rest now."""


def fetch(names: Sequence[str], is_unwanted: Callable[[], bool], post: Post) -> None:
    """Fetches models by their names on the hub; what was begun before goes on."""
    from runtime.models.hub.fetch import Hub  # slow to import, and seldom needed

    def show(what: str, file: str, n_bytes: int) -> None:
        if is_unwanted():
            raise Paused
        here[file] = n_bytes
        post(Fetching(f"{what} {file.rpartition('/')[2]}", sum(here.values()), total))

    try:
        hub = Hub()
        plans = {name: hub.plan(name) for name in names}
        here = {file.name: file.n_here for files in plans.values() for file in files}
        total = sum(file.size for files in plans.values() for file in files)
        for name, files in plans.items():
            hub.pull(name, files, partial(show, "Fetching"), partial(show, "Checking"))
    except Paused:
        post(FetchEnded("Paused. The same command goes on where it stopped."))
    except SlipstreamError as error:
        post(FetchEnded(str(error)))
    else:
        post(FetchEnded())


def names_of(pair: Pair) -> list[str]:
    """Its files on the hub."""
    paths = [path.as_posix() for path in (pair.target, pair.draft) if path is not None]
    return [path.removeprefix(HUB) for path in paths if path.startswith(HUB)]


class Pulling(Replying):
    """One model at a time."""

    unwanted: Event | None = None  # of what is being fetched
    fetched: Callable[[], None]  # what is done once it is here

    def fetch(self, name: str, then: Callable[[], None] | None = None) -> None:
        """Fetches a pair or `owner/repo:file`; without a `then` it only says that it is here. Raises SettingsError."""
        if self.unwanted is not None:
            raise SettingsError("A model is being fetched already. Esc pauses that.")
        pair = load_registry().get(name)
        names = names_of(pair) if pair else [name.removeprefix(HUB)]
        loads = name if pair else f"{HUB}{names[0]}"
        self.fetched = then or partial(self.notify, f"{name} is here. /model {loads} loads it.", markup=False)
        self.unwanted = unwanted = Event()
        self.status.show_fetched(f"Fetching {name}", 0.0)
        work = partial(fetch, names, lambda: unwanted.is_set() or self.closing.is_set(), self.post_message)
        self.run_worker(work, thread=True, group="fetching")

    @on(Fetching)
    def show_fetching(self, event: Fetching) -> None:
        """How much of all files is here."""
        self.status.show_fetched(event.what, event.n_bytes / event.total)

    @on(FetchEnded)
    def end_fetching(self, event: FetchEnded) -> None:
        """What is here is used."""
        self.unwanted = None
        self.status.end_fetching()
        self.session.note(event.reason or "a model was fetched")
        if event.reason:
            self.notify(event.reason, severity="warning", markup=False)
        else:
            self.fetched()

    def find(self, name: str) -> Pair | None:
        """The pair of that name; None where the hub has to be asked. Raises RegistryError."""
        from runtime.models.hub.names import HubError

        try:
            return find_pair(name, load_registry())
        except HubError:
            return None
