"""What can go wrong for a person: one base class whose text is shown as written, remedy included.

Imports nothing of ours.
"""

from __future__ import annotations

NO_MEMORY = "Memory ran out. Close other programs, or choose a smaller model or a smaller context."


class SlipstreamError(Exception):
    """One clear sentence about what is wrong and what to do; never shown with a traceback."""


class ModelError(SlipstreamError):
    """A model file is missing, damaged, or of a kind that cannot be run."""


class NoMemoryError(ModelError):
    """A sound model for which, or for whose context, there is no memory."""


class UnknownKindError(ModelError):
    """A file of an architecture that the library does not know."""


class DraftError(ModelError):
    """A draft cannot be had for this target, which answers without it."""


class HeadError(DraftError):
    """A head cannot draft for this target."""


class VocabError(SlipstreamError):
    """A draft model does not speak the target's tokens."""


class ContextError(SlipstreamError):
    """A prompt of `n_prompt` tokens does not fit the context of `n_ctx`; 0: that is not what is wrong with it."""

    def __init__(self, message: str, n_prompt: int = 0, n_ctx: int = 0) -> None:
        super().__init__(message)
        self.n_prompt, self.n_ctx = n_prompt, n_ctx


class RegistryError(SlipstreamError):
    """A pair or a registry file is wrong or unknown."""


class SettingsError(SlipstreamError):
    """A setting's value makes no sense; the text names the setting."""


class TemplateError(SlipstreamError):
    """A chat template cannot be read or refuses the messages."""


class TemplateLimitError(TemplateError):
    """A chat template takes too long for these messages, or makes too much of them: no other form of them helps."""


class StoppedError(Exception):
    """A pass was ended by whoever had asked for it; nothing is wrong."""
