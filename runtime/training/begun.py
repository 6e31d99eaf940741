"""Stores the settings that a training was started with in its folder: the kind of draft and the prompts.

So the same command resumes it even if passes now cost something else, or there are more chats. One process at a time.
The folder is for the user alone, since prompts may be from chats; `slipstream forget` wipes it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter

from runtime.training.conditions import TrainingError
from runtime.training.job import HEAD, MODEL, OWN_KINDS, Job
from runtime.training.place import ABOUT, Place, clear
from runtime.training.samples import not_written


@dataclass(frozen=True, slots=True)
class Begun:
    """The settings of one training."""

    kind: str
    prompts: tuple[str, ...]
    apart: tuple[str, ...]


@contextmanager
def alone(job: Job) -> Iterator[None]:
    """Hold the lock of the training's folder, so that no other process trains there. Raises TrainingError."""
    place = Place(job.folder)
    with ExitStack() as stack:
        try:
            place.make_folder()
            is_ours = stack.enter_context(place.locked())
        except OSError as error:
            raise not_written(place.path, error) from error
        if not is_ours:
            raise TrainingError("Another process is training this draft. Wait until it is done, or end it.")
        yield


def read(folder: Path) -> Begun | None:
    """Return the settings of the training in that folder, or None if there is none or it is invalid."""
    place = Place(folder)
    try:
        found = TypeAdapter(Begun).validate_python(place.read(ABOUT))
    except ValueError:
        return None
    is_sound = place.number.isalnum() and found.kind in (HEAD, MODEL, *OWN_KINDS) and found.prompts
    return found if is_sound and place.work.is_dir() else None


def resumed(job: Job, choose: Callable[[], str]) -> tuple[Job, Path]:
    """Return the job with the kind and the prompts that it was started with, and its folder for all other files.

    A new training is started if there is none, with the kind from `choose` if the job has none. Raises TrainingError.
    """
    place = Place(job.folder)
    begun = read(place.path)
    if begun is None:
        begun = Begun(job.kind or choose(), job.prompts, job.apart)
        try:
            clear(place.path)
            place.make(asdict(begun))
        except OSError as error:
            raise not_written(place.path, error) from error
    return replace(job, kind=begun.kind, prompts=begun.prompts, apart=begun.apart), place.work


def end(job: Job) -> None:
    """Remove the files of a finished training; the next one starts from scratch."""
    shutil.rmtree(job.folder, ignore_errors=True)
