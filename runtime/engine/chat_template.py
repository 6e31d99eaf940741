"""A GGUF's own Jinja chat template: messages to the text that the model was trained on. Knows text only, no ids."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, NoReturn

from jinja2 import TemplateError as JinjaError

from runtime.core.errors import TemplateError
from runtime.engine.template_sandbox import SECONDS, Sandbox, TemplateTooSlowError, bounded, time_limit

MOST = 2**26  # characters that a conversation may become


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


class ChatTemplate:
    """Renders messages. Raises TemplateError for a template that is broken, or that refuses the messages."""

    def __init__(self, source: str, bos: str = "", eos: str = "") -> None:
        environment = Sandbox()
        # Jinja's own is for HTML
        environment.filters["tojson"] = bounded("tojson", partial(json.dumps, ensure_ascii=False))
        environment.globals.update(raise_exception=_refuse)
        self._tokens: dict[str, Any] = {"bos_token": bos, "eos_token": eos}
        try:
            with time_limit(SECONDS):
                self._template = environment.from_string(source)
        except (JinjaError, RecursionError, TemplateTooSlowError) as error:
            raise unusable("cannot be read", error) from error

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] = (),
        form: TemplateForm = USUAL_FORM,
        now: datetime | None = None,
    ) -> str:
        """The conversation up to where the assistant begins to speak; `tools` are as in OpenAI's interface."""
        turns = [{"role": message.role, "content": message.content, **message.more} for message in messages]
        variables = usual_variables(tools, now or datetime.now()) | self._tokens | dict(form.variables)
        variables |= {"messages": turns, "tools": tools or None, "add_generation_prompt": form.begins_reply}
        try:
            with time_limit(SECONDS):
                return "".join(within(MOST, self._template.generate(variables)))
        except TemplateError:
            raise
        except TemplateTooSlowError as error:
            raise unusable("failed", f"it takes more than {SECONDS:g} s") from error
        except Exception as error:  # it may do nearly anything
            raise unusable("failed", error) from error


def unusable(what: str, why: object) -> TemplateError:
    """What is wrong with a template, in a sentence."""
    text = " ".join(str(why).split()) or type(why).__name__
    named = text if not isinstance(why, Exception) or isinstance(why, JinjaError) else f"{type(why).__name__}: {text}"
    return TemplateError(f"The model's chat template {what} ({named}). Use `--raw` to send the prompt as it is.")


def within(most: int, pieces: Iterable[str]) -> Iterator[str]:
    """The pieces, as long as they are no more than so many characters. Raises TemplateError."""
    for piece in pieces:
        if (most := most - len(piece)) < 0:
            raise unusable("failed", "it writes without end")
        yield piece


def usual_variables(tools: Sequence[Mapping[str, Any]], now: datetime) -> dict[str, Any]:
    """What some templates read without asking whether it is there: the day as Llama 3 has it, and the time and the
    tools as Firefunction has them.
    """
    return {
        "strftime_now": bounded("format", now.strftime),
        "date_string": now.strftime("%d %b %Y"),
        "datetime": now.strftime("%b %d %Y %H:%M:%S"),
        "functions": json.dumps(list(tools), indent=2, ensure_ascii=False) if tools else "",
        "enable_thinking": True,
    }
