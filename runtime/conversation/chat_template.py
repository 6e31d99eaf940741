"""Renders messages with a GGUF's own Jinja chat template, into the text format the model was trained on: in processes
of their own (template_sandbox.py), with limits of time and memory.

Knows text only, no ids.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum, auto
from typing import Any, NamedTuple

from runtime.core.errors import TemplateError, TemplateLimitError
from runtime.core.watched import LimitError, WatchedProcesses, WorkLimits

LONGEST = 2**26  # characters of a rendered conversation, at most
TOO_DEEP = "The conversation nests values too deeply. Send simpler ones."
SECONDS = 3.0  # for one rendering, at most
MEMORY = 2**30  # bytes of the process that renders, at most
PROCESSES = WatchedProcesses("runtime.conversation.template_sandbox")


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation."""

    role: str  # system, user, assistant; tool, where the template knows tools
    content: str
    # Other fields that a template with tools reads, such as tool_calls
    more: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TemplateForm:
    """The rendering options besides the messages; `variables` are values that the template may read by name."""

    variables: Mapping[str, Any] = field(default_factory=dict)
    begins_reply: bool = True  # whether the assistant's next turn is started


USUAL_FORM = TemplateForm()


class ChatTemplate:
    """Renders messages. Raises TemplateError for a template that is broken, or that refuses the messages."""

    def __init__(self, source: str, bos: str = "", eos: str = "") -> None:
        self._source, self._tokens = source, {"bos_token": bos, "eos_token": eos}
        self._in_parts: bool | None = None  # whether it reads a text as a list of parts; None: that was not tried
        text_of(RenderRequest(source))

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] = (),
        form: TemplateForm = USUAL_FORM,
        now: datetime | None = None,
    ) -> str:
        """Return the conversation up to the start of the assistant's reply; `tools` are as in OpenAI's interface.

        A template that leaves out a text, but writes it as a part of a list, gets all texts so. Those of models that
        see images are often of this kind.
        """
        now = now or datetime.now()
        if self._in_parts:
            return self._rendered(in_parts(messages), tools, form, now)
        text = self._rendered(messages, tools, form, now)
        if self._in_parts is None and not has_question(text, messages):
            self._in_parts = False
            with suppress(TemplateError):
                other = self._rendered(in_parts(messages), tools, form, now)
                self._in_parts = has_question(other, messages)
                return other if self._in_parts else text
        return text

    def _rendered(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], form: TemplateForm, now: datetime
    ) -> str:
        turns = [{"role": message.role, "content": message.content, **message.more} for message in messages]
        own = {"tools": list(tools) or None, "add_generation_prompt": form.begins_reply, "messages": turns}
        given = usual_variables(tools, now) | self._tokens | dict(form.variables) | own
        try:
            return self._written(given, now)
        except TemplateError as error:
            if tools or "NoneType" not in str(error):
                raise
        # the template loops over tools without checking that there are any
        return self._written(given | {"tools": []}, now)

    def _written(self, given: Mapping[str, Any], now: datetime) -> str:
        return text_of(RenderRequest(self._source, given, now.isoformat(), LONGEST))


def in_parts(messages: Sequence[Message]) -> list[Message]:
    """Return the messages with each text as a list of one part."""
    return [
        replace(each, more={**each.more, "content": [{"type": "text", "text": each.content}]}) if each.content else each
        for each in messages
    ]


def has_question(text: str, messages: Sequence[Message]) -> bool:
    """Return whether a rendered conversation has the text of its last question, if there is one."""
    asked = next((each.content for each in reversed(messages) if each.role == "user"), "")
    return asked.strip() in text


def text_of(request: RenderRequest) -> str:
    """Return the text that a template writes. Raises TemplateError."""
    try:
        outcome, text = render(request)
    except RecursionError as error:
        raise TemplateError(TOO_DEEP) from error
    if outcome == Outcome.WRITTEN:
        return text
    if outcome == Outcome.REFUSED:
        raise TemplateError(f"The model's chat template refuses these messages: {text}")
    what = "cannot be read" if outcome == Outcome.UNREADABLE or request.given is None else "failed"
    kind = TemplateLimitError if outcome == Outcome.LIMITED else TemplateError
    raise kind(f"The model's chat template {what} ({text}). Use `--raw` to send the prompt as it is.")


def usual_variables(tools: Sequence[Mapping[str, Any]], now: datetime) -> dict[str, Any]:
    """Return the variables that some templates read without checking: the date for Llama 3, and the time and the tools
    for Firefunction.
    """
    return {
        "date_string": now.strftime("%d %b %Y"),
        "datetime": now.strftime("%b %d %Y %H:%M:%S"),
        "functions": json.dumps(list(tools), indent=2, ensure_ascii=False) if tools else "",
        "enable_thinking": True,
        "documents": None,
    }


class RenderRequest(NamedTuple):
    """A template's source and its variables; without any it is only compiled. `now` is the time in ISO's format."""

    source: str
    given: Mapping[str, Any] | None = None
    now: str = ""
    longest: int = 0  # characters of the text, at most


class Outcome(Enum):
    """What became of a rendering."""

    WRITTEN = auto()
    UNREADABLE = auto()  # the template cannot be compiled
    REFUSED = auto()  # by the template, which says why
    FAILED = auto()
    LIMITED = auto()  # it takes too much


class Rendering(NamedTuple):
    """What became of a rendering, and its text or the reason."""

    outcome: Outcome
    text: str


def render(request: RenderRequest) -> Rendering:
    """Return what becomes of a request. Raises RecursionError for variables that nest too deeply."""
    try:
        rendering: Rendering = PROCESSES.ask(request, WorkLimits(SECONDS, MEMORY))
    except LimitError as error:
        return Rendering(Outcome.LIMITED, str(error))
    return rendering
