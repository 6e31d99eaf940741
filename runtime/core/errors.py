"""Errors shown to users: one base class whose message is shown as written and includes the remedy.

Imports no other module of this project.
"""

from __future__ import annotations

from difflib import get_close_matches

NO_MEMORY = "Memory ran out. Close other programs, or choose a smaller model or a smaller context."
MAX_NAMED = 12  # names in a sentence


class SlipstreamError(Exception):
    """An error whose message states the problem and the remedy; never shown with a traceback."""


class ModelError(SlipstreamError):
    """A model file is missing, damaged, or of a kind that cannot be run."""


class NoMemoryError(ModelError):
    """There is not enough memory for a valid model or its context."""


class UnknownKindError(ModelError):
    """A file of an architecture that the library does not know."""


class DraftError(ModelError):
    """No draft model or head can be used with this target, which runs without it."""


class HeadError(DraftError):
    """A head cannot draft for this target."""


class VocabError(SlipstreamError):
    """A draft model has a vocabulary other than the target's."""


class ContextError(SlipstreamError):
    """A prompt of `n_prompt` tokens does not fit the context of `n_ctx`; both are 0 if the cause is another one."""

    def __init__(self, message: str, n_prompt: int = 0, n_ctx: int = 0) -> None:
        super().__init__(message)
        self.n_prompt, self.n_ctx = n_prompt, n_ctx


class RegistryError(SlipstreamError):
    """A pair or a registry file is wrong or unknown."""


class SettingsError(SlipstreamError):
    """A setting has an invalid value; the message names the setting."""


class PictureError(SettingsError):
    """A picture cannot be read, or exceeds a limit."""


class TemplateError(SlipstreamError):
    """A chat template cannot be read or refuses the messages."""


class TemplateLimitError(TemplateError):
    """A chat template takes too long or produces too much for these messages; reformatting them does not help."""


class BusyError(SlipstreamError):
    """A request is refused, because `n_waiting` wait already."""

    def __init__(self, n_waiting: int) -> None:
        super().__init__(n_waiting)
        self.n_waiting = n_waiting

    def __str__(self) -> str:
        return f"The queue is full ({self.n_waiting} waiting). Try again later."


class StoppedError(Exception):
    """A pass was stopped by its caller; nothing is wrong."""


def listed(names: list[str]) -> str:
    """Return names for a sentence; of many the first, and the number of the others."""
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return ", ".join(names[:MAX_NAMED]) + more


def nearest(word: str, known: list[str]) -> str:
    """Return `Did you mean 'x'?`, or the known names."""
    close = get_close_matches(word[:64], known, n=1, cutoff=0.5)
    if close:
        return f"Did you mean '{close[0]}'?"
    return f"Known: {listed(known)}."


def check(field: str, value: float | None, good: bool, wanted: str) -> None:
    """Raise SettingsError unless `good` (a comparison with NaN is not)."""
    if not good:
        raise SettingsError(f"{field} is {f'{value}':.32}: it must be {wanted}.")


def is_lack_of_memory(error: BaseException) -> bool:
    """Whether an error is one of those that Python's parser, imports, threads and the loader raise without memory."""
    if isinstance(error, ImportError | RuntimeError):
        return any(sign in str(error) for sign in ("failed to map segment", "can't start new thread"))
    return True
