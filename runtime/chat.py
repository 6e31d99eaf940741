"""A GGUF's own Jinja chat template: messages to the text that the model was trained on. Knows text only, no ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError as JinjaError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from runtime.errors import TemplateError


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation."""

    role: str  # system, user, assistant
    content: str


def _refuse(text: str) -> NoReturn:
    raise TemplateError(f"The model's chat template refuses these messages: {text}")


class ChatTemplate:
    """Renders messages. Raises TemplateError for a template that is broken, or that refuses the messages."""

    def __init__(self, source: str, bos: str = "", eos: str = "") -> None:
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        environment.globals.update(raise_exception=_refuse, strftime_now=lambda form: datetime.now().strftime(form))
        self._tokens: dict[str, Any] = {"bos_token": bos, "eos_token": eos}
        try:
            self._template = environment.from_string(source)
        except JinjaError as error:
            raise TemplateError(f"The model's chat template cannot be read ({error}). Use `--raw` to send the prompt as it is.") from error

    def render(self, messages: Sequence[Message]) -> str:
        """The conversation up to where the assistant begins to speak."""
        turns = [{"role": message.role, "content": message.content} for message in messages]
        try:
            return self._template.render(messages=turns, add_generation_prompt=True, tools=None, **self._tokens)
        except JinjaError as error:
            raise TemplateError(f"The model's chat template failed ({error}). Use `--raw` to send the prompt as it is.") from error
