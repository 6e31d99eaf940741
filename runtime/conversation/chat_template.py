"""Renders messages with a GGUF's own Jinja chat template, into the text format the model was trained on.

Knows text only, no ids.
"""

from __future__ import annotations

import ctypes
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NoReturn, TypeVar

from jinja2 import TemplateError as JinjaError

from runtime.conversation.template_bounds import TooMuchError
from runtime.conversation.template_sandbox import Sandbox
from runtime.core.errors import TemplateError, TemplateLimitError

SECONDS = 3.0
REPEAT_SECONDS = 0.01  # until the error is raised again
Result = TypeVar("Result")
MAX_RENDERED = 2**26  # characters of a rendered conversation, at most
MAX_MESSAGE = 1000  # characters of a template's error message, at most
TOO_DEEP = "The conversation nests values too deeply. Send simpler ones."


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


def _refuse(text: str) -> NoReturn:
    raise TemplateError(f"The model's chat template refuses these messages: {str(text)[:MAX_MESSAGE]}")


class ChatTemplate:
    """Renders messages. Raises TemplateError for a template that is broken, or that refuses the messages."""

    def __init__(self, source: str, bos: str = "", eos: str = "") -> None:
        self._tokens: dict[str, Any] = {"bos_token": bos, "eos_token": eos}
        try:
            self._code = run_limited(SECONDS, lambda: Sandbox().compile(source))
        except (JinjaError, RecursionError, TemplateTooSlowError) as error:
            raise unusable("cannot be read", error) from error

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] = (),
        form: TemplateForm = USUAL_FORM,
        now: datetime | None = None,
    ) -> str:
        """Return the conversation up to the start of the assistant's reply; `tools` are as in OpenAI's interface."""
        now = now or datetime.now()
        given = self._given(messages, tools, form, now)
        try:
            return self._written(given, now)
        except TemplateError as error:
            if tools or "NoneType" not in str(error):
                raise
        # the template loops over tools without checking that there are any
        return self._written(given | {"tools": []}, now)

    def _written(self, given: dict[str, Any], now: datetime) -> str:
        try:
            template = Sandbox(now, raise_exception=_refuse).loaded(self._code)
            return run_limited(SECONDS, lambda: "".join(within(MAX_RENDERED, template.generate(given))))
        except TemplateError:
            raise
        except TemplateTooSlowError as error:
            raise unusable("failed", f"it takes more than {SECONDS:g} s", TemplateLimitError) from error
        except TooMuchError as error:
            raise unusable("failed", error, TemplateLimitError) from error
        except Exception as error:  # a template may raise nearly anything
            raise unusable("failed", error) from error

    def _given(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], form: TemplateForm, now: datetime
    ) -> dict[str, Any]:
        """Return the template's variables, as copies that it may change. Raises TemplateError."""
        turns = [{"role": message.role, "content": message.content, **message.more} for message in messages]
        own = {"tools": list(tools) or None, "add_generation_prompt": form.begins_reply, "messages": turns}
        try:
            found: dict[str, Any] = copied(usual_variables(tools, now) | self._tokens | dict(form.variables) | own)
        except RecursionError as error:
            raise TemplateError(TOO_DEEP) from error
        return found


def copied(value: Any) -> Any:
    """Return a copy whose lists and dicts a template may change."""
    if isinstance(value, dict):
        return {key: copied(part) for key, part in value.items()}
    return [copied(part) for part in value] if isinstance(value, list) else value


def unusable(what: str, why: object, kind: type[TemplateError] = TemplateError) -> TemplateError:
    """Return the error for a template that cannot be used, with the reason in its message."""
    text = " ".join(str(why)[:MAX_MESSAGE].split()) or type(why).__name__
    named = text if not isinstance(why, Exception) or isinstance(why, JinjaError) else f"{type(why).__name__}: {text}"
    return kind(f"The model's chat template {what} ({named}). Use `--raw` to send the prompt as it is.")


def within(most: int, pieces: Iterable[str]) -> Iterator[str]:
    """Yield the pieces while their total is at most `most` characters. Raises TemplateLimitError."""
    for piece in pieces:
        if (most := most - len(piece)) < 0:
            raise unusable("failed", "it writes too much text", TemplateLimitError)
        yield piece


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


class TemplateTooSlowError(BaseException):
    """A template ran past its time limit. A BaseException, so that no `except Exception` in Jinja catches it."""


class Alarm:
    """Raises TemplateTooSlowError in the thread that created it after `seconds`, and again until `is_over`.

    Python drops an error raised in a destructor or a garbage collector's callback, and a template that creates much
    garbage spends nearly all its time there.
    """

    def __init__(self, seconds: float) -> None:
        self.is_over = False
        self._thread, self._lock, self._ended = threading.get_ident(), threading.Lock(), threading.Event()
        threading.Thread(target=self._ring, args=(seconds,), name="template clock", daemon=True).start()

    def stop(self) -> None:
        """Stop the alarm, and raise an error that is already pending."""
        with self._lock:
            self._ended.set()
        for _ in range(2):  # Python checks for asynchronous errors at backward jumps
            pass

    def _ring(self, delay: float) -> None:
        while not self._ended.wait(delay) and not self.is_over:
            with self._lock:
                if not self.is_over:
                    error = ctypes.py_object(TemplateTooSlowError)
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread), error)
            delay = REPEAT_SECONDS


def run_limited(seconds: float, work: Callable[[], Result]) -> Result:
    """Return the result of `work`. Raises TemplateTooSlowError after `seconds`, whatever Python code it runs."""
    alarm = Alarm(seconds)
    try:
        return work()
    finally:
        alarm.is_over = True  # set before any call, so that no error can come between
        alarm.stop()
