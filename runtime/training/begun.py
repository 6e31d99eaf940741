"""What a training was begun with, kept in its folder: the kind of draft and the prompts. So the same command goes on
with it though passes cost something else by now, or more was said in chats. One process at a time.

The folder is for the user alone, since prompts may be from chats; `slipstream forget` wipes it.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter

from runtime.drafters.reply_store import make_private_folder
from runtime.learning.place import ABOUT, LOCK, Place
from runtime.tools.made_drafts import TRAINED
from runtime.tools.made_drafts import folder as made_here
from runtime.training.extra import TrainingError
from runtime.training.job import KINDS, Job
from runtime.training.samples import not_written


@dataclass(frozen=True, slots=True)
class Begun:
    """One training."""

    number: str  # that one begun after it in the same folder does not have
    kind: str
    prompts: tuple[str, ...]
    apart: tuple[str, ...]


@contextmanager
def alone(job: Job) -> Iterator[None]:
    """While this is the only process that trains there. Raises TrainingError."""
    place = Place(job.folder)
    with ExitStack() as stack:
        try:
            make_private_folder(place.path.parent)
            make_private_folder(place.path)
            is_ours = stack.enter_context(place.locked())
        except OSError as error:
            raise not_written(place.path, error) from error
        if not is_ours:
            raise TrainingError("Another process is training this draft. Wait until it is done, or end it.")
        yield


def read(folder: Path) -> Begun | None:
    """What the training in that folder was begun with; None where none was, or that cannot be read."""
    try:
        found = TypeAdapter(Begun).validate_python(Place(folder).read(ABOUT))
    except ValueError:
        return None
    is_sound = found.number.isalnum() and found.kind in KINDS and found.prompts
    return found if is_sound and Place(folder).work.is_dir() else None


def resumed(job: Job, choose: Callable[[], str]) -> tuple[Job, Path]:
    """The job with the kind and the prompts that it was begun with, and its folder for everything else.

    Begins it where it was not, with the kind that `choose` says if the job has none. Raises TrainingError.
    """
    place = Place(job.folder)
    begun = read(place.path)
    if begun is None:
        begun = Begun(secrets.token_hex(8), job.kind or choose(), job.prompts, job.apart)
        try:
            clear(place.path)
            place.write(ABOUT, asdict(begun))
            place.work.mkdir(0o700)  # last: what ended this before begins it anew
        except OSError as error:
            raise not_written(place.path, error) from error
    return replace(job, kind=begun.kind, prompts=begun.prompts, apart=begun.apart), place.work


def clear(folder: Path) -> None:
    """Removes what another training left there. Raises OSError."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != LOCK:
            path.unlink()


def moved(job: Job, draft: Path) -> Path:
    """Moves a draft that is kept out of the training's folder, to the place of the one before. Raises TrainingError."""
    path = made_here(job.target) / f"{job.target.stem}-{job.kind}{TRAINED}"
    try:
        make_private_folder(path.parent)
        draft.replace(path)
    except OSError as error:
        raise not_written(draft.parent, error) from error
    return path


def end(job: Job) -> None:
    """Removes what a training that is done needs no longer; the next one begins anew."""
    shutil.rmtree(job.folder, ignore_errors=True)
