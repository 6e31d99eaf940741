"""A GGUF's own Jinja chat template: messages to the text that the model was trained on. Knows text only, no ids."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError as JinjaError
from jinja2.exceptions import SecurityError
from jinja2.ext import loopcontrols
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from runtime.core.errors import TemplateError

LARGEST = 1e9  # number that a template may multiply


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation."""

    role: str  # system, user, assistant; tool, where the template knows tools
    content: str
    # What a template that knows tools reads besides, such as tool_calls
    more: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TemplateForm:
    """How a conversation is written besides its messages: `variables` are what the template may ask for by name."""

    variables: Mapping[str, Any] = field(default_factory=dict)
    begins_reply: bool = True  # is the assistant's next turn begun?


USUAL_FORM = TemplateForm()


def _refuse(text: str) -> NoReturn:
    raise TemplateError(f"The model's chat template refuses these messages: {text}")


class Sandbox(ImmutableSandboxedEnvironment):
    """Jinja's own sandbox, without arithmetic that a hostile template could keep the machine busy with."""

    intercepted_binops = frozenset({"**", "*"})

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Powers are refused, and products that are not of small numbers."""
        if operator == "**" or not all(
            isinstance(value, int | float) and abs(value) < LARGEST for value in (left, right)
        ):
            raise SecurityError(f"'{operator}' may not be used with these values")
        return super().call_binop(context, operator, left, right)


class ChatTemplate:
    """Renders messages. Raises TemplateError for a template that is broken, or that refuses the messages."""

    def __init__(self, source: str, bos: str = "", eos: str = "") -> None:
        environment = Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        # Jinja's own is for HTML
        environment.filters["tojson"] = lambda value, **form: json.dumps(value, ensure_ascii=False, **form)
        environment.globals.update(raise_exception=_refuse, strftime_now=lambda form: datetime.now().strftime(form))
        self._tokens: dict[str, Any] = {"bos_token": bos, "eos_token": eos}
        try:
            self._template = environment.from_string(source)
        except JinjaError as error:
            raise TemplateError(
                f"The model's chat template cannot be read ({error}). Use `--raw` to send the prompt as it is."
            ) from error

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] = (),
        form: TemplateForm = USUAL_FORM,
    ) -> str:
        """The conversation up to where the assistant begins to speak; `tools` are as in OpenAI's interface."""
        turns = [{"role": message.role, "content": message.content, **message.more} for message in messages]
        try:
            return self._template.render(
                usual_variables(tools)
                | self._tokens
                | dict(form.variables)
                | {"messages": turns, "tools": tools or None, "add_generation_prompt": form.begins_reply}
            )
        except JinjaError as error:
            raise TemplateError(
                f"The model's chat template failed ({error}). Use `--raw` to send the prompt as it is."
            ) from error


def usual_variables(tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What some templates read without asking whether it is there: the day as Llama 3 has it, and the time and the
    tools as Firefunction has them.
    """
    now = datetime.now()
    return {
        "date_string": now.strftime("%d %b %Y"),
        "datetime": now.strftime("%b %d %Y %H:%M:%S"),
        "functions": json.dumps(list(tools), indent=2, ensure_ascii=False) if tools else "",
        "enable_thinking": True,
    }
