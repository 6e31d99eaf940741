"""Models are fetched from the hub in a thread.

Knows the hub's progress; opens no model, and knows no visible widget.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Event

from textual.message import Message

from app.tui.pace import Invisible, Latest, Post
from runtime.core.errors import SettingsError, SlipstreamError
from runtime.models.model_files import HUB
from runtime.models.registry import Pair, load_registry


@dataclass
class DownloadProgress(Latest):
    """`n_bytes` of all files are downloaded or checked."""

    what: str
    n_bytes: int
    total: int


class DownloadPaused(Exception):  # noqa: N818 (no error)
    """The download was paused."""


class Downloads(Invisible):
    """Fetches one model at a time. Posts DownloadProgress and, at the end, Ended."""

    @dataclass
    class Ended(Message):
        """A model is downloaded, or not, for a reason.

        `loads` is the name that loads it, `is_to_be_loaded` the argument of `fetch`.
        """

        name: str
        loads: str
        is_to_be_loaded: bool
        reason: str

    def __init__(self) -> None:
        super().__init__()
        self._unwanted: Event | None = None  # set to pause the current download

    def on_unmount(self) -> None:
        """Pause the download; the thread ends at the next block."""
        self.pause()

    def pause(self) -> None:
        """Pause the download; fetching the same model again resumes it."""
        if self._unwanted is not None:
            self._unwanted.set()

    def fetch(self, name: str, is_to_be_loaded: bool = False) -> None:
        """Fetch a pair or `owner/repo:file`. Raises SettingsError during another download."""
        if self._unwanted is not None:
            raise SettingsError("A model is being fetched already. Esc pauses that.")
        pair = load_registry().get(name)
        names = names_of(pair) if pair else [name.removeprefix(HUB)]
        loads = name if pair else f"{HUB}{names[0]}"
        self._unwanted = unwanted = Event()

        def work() -> None:
            reason = download(names, unwanted.is_set, self.post_message)
            self.post_message(self.Ended(name, loads, is_to_be_loaded, reason))

        self.run_worker(work, thread=True, group="downloads")

    def on_downloads_ended(self) -> None:
        """Allow the next download; the message goes on to the screen."""
        self._unwanted = None


def download(names: Sequence[str], is_unwanted: Callable[[], bool], post: Post) -> str:
    """Fetch models by their names on the hub, resuming partial downloads. Return why they are not here; "" if they
    are.
    """
    from runtime.models.hub.fetch import Hub  # slow to import, and seldom needed

    def show(what: str, file: str, n_bytes: int) -> None:
        if is_unwanted():
            raise DownloadPaused
        here[file] = n_bytes
        post(DownloadProgress(f"{what} {file.rpartition('/')[2]}", sum(here.values()), total))

    try:
        hub = Hub()
        plans = {name: hub.plan(name, with_encoder=len(names) == 1) for name in names}
        here = {file.name: file.n_here for files in plans.values() for file in files}
        total = sum(file.size for files in plans.values() for file in files)
        for name, files in plans.items():
            hub.pull(name, files, partial(show, "Fetching"), partial(show, "Checking"))
    except DownloadPaused:
        return "Paused. Enter in the list of models (Ctrl+L) or the same command resumes it."
    except SlipstreamError as error:
        return str(error)
    return ""


def names_of(pair: Pair) -> list[str]:
    """Return the names of the pair's files on the hub."""
    paths = [path.as_posix() for path in (pair.target, pair.draft, pair.mmproj) if path is not None]
    return [path.removeprefix(HUB) for path in paths if path.startswith(HUB)]
