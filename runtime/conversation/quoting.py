"""Keeps the names of control tokens in messages as text, so that they do not become those tokens.

A guard, a character that the conversation does not contain, is inserted into such names before the template renders
them, and removed from the output. So names in messages differ from names that the template writes. Knows text, no
ids.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import accumulate, chain
from typing import Any

from runtime.conversation.chat_template import TOO_DEEP, USUAL_FORM, ChatTemplate, Message, TemplateForm
from runtime.conversation.marks import MarkNames, Span
from runtime.core.errors import TemplateError, TemplateLimitError

# Noncharacters, which no text should contain, then private-use characters if all of those occur
GUARDS = (*range(0xFDD0, 0xFDF0), *range(0xF0000, 0xF1000))
REASONING = re.compile("think|reason", re.IGNORECASE)
# A text that a template searches for in messages
SEARCH = re.compile(
    r"(?:split|startswith|endswith|r?find|r?index|replace|r?partition|remove(?:pre|suf)fix|count)\(\s*(['\"])(.*?)\1"
    r"|(['\"])((?:(?!\3).)*)\3\s+(?:not\s+)?in\b"
)
ROLES = ("system", "user", "assistant", "tool")


@dataclass(frozen=True, slots=True)
class Rendered:
    """A conversation as the model reads it. Names in the `quoted` spans of its text are text, not control tokens.

    `changes` describes the changes that made the conversation fit the template.
    """

    text: str
    quoted: tuple[Span, ...] = ()
    changes: tuple[str, ...] = ()

    def plus(self, text: str, *, is_quoted: bool = False) -> Rendered:
        """Return a copy with more text at its end, from a template or, if `is_quoted`, from a message."""
        end = len(self.text) + len(text)
        more = ((len(self.text), end),) if is_quoted and text else ()
        return replace(self, text=self.text + text, quoted=self.quoted + more)


class QuotingTemplate:
    """A chat template that separates its own text from that of messages.

    If it changes the messages too much to separate them, nothing is quoted.
    """

    def __init__(self, template: ChatTemplate, source: str, names: MarkNames) -> None:
        self.names, self.template, self._source = names, template, source
        self._searched = searched(source, names.names)

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] = (),
        form: TemplateForm = USUAL_FORM,
    ) -> Rendered:
        """Return the conversation with the spans of the names that its messages contain. Raises TemplateError."""
        now = datetime.now()
        text = self.template.render(messages, tools, form, now)
        if not any(map(self.names.occur_in, strings([[m.content, m.more] for m in messages], tools, form.variables))):
            return Rendered(text)
        guard = guard_for(text + self._source)
        for kept in ((), self._searched):
            try:
                guarded = self._guarded(messages, tools, form, guard, kept)
            except RecursionError as error:
                raise TemplateError(TOO_DEEP) from error
            found = self._rendered(guarded, guard, now)
            if found is not None and found.text == text:
                return found
        return Rendered(text)

    def _guarded(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]],
        form: TemplateForm,
        guard: str,
        kept: Collection[str],
    ) -> tuple[list[Message], Any, TemplateForm]:
        """Return all of a client's text with guards in its names, except for the `kept` ones.

        Templates split past replies at some marks, so these are kept in replies.
        """

        def guarded(value: Any, kept: Collection[str] = kept) -> Any:
            return with_strings(value, lambda text: self.names.guarded(text, guard, kept))

        def turn(message: Message) -> Message:
            but = self._searched if message.role == "assistant" else kept
            return replace(message, content=guarded(message.content, but), more=guarded(message.more))

        return list(map(turn, messages)), guarded(tools), replace(form, variables=guarded(form.variables))

    def _rendered(self, given: tuple[list[Message], Any, TemplateForm], guard: str, now: datetime) -> Rendered | None:
        """Return a guarded conversation rendered and without its guards, or None if the template refuses it.

        Raises TemplateLimitError: guards take room and time, and a text near the limits is not left unquoted for that.
        """
        try:
            parts = re.split(forms_of(guard), self.template.render(*given, now))
        except TemplateLimitError:
            raise
        except TemplateError:
            return None
        text, cuts = "".join(parts), list(accumulate(map(len, parts[:-1])))
        # A guard inside no name was in a name that the template split
        quoted = (
            span for span in self.names.spans(text) if bisect_right(cuts, span[0]) < bisect_right(cuts, span[1] - 1)
        )
        return Rendered(text, tuple(quoted))

    def unquoted_roles(self) -> list[str]:
        """Return the roles whose messages the template changes too much to tell their names from its own."""
        return [role for role in ROLES if self._is_lost(role)]

    def _is_lost(self, role: str) -> bool:
        """Whether a name in a message of that role is not quoted. False for a role that the template refuses."""
        names = sorted(self.names.names - self._searched, key=lambda name: (name not in self._source, name))
        if not names:
            return False
        probe = f"A{names[0]}B"
        turns = [Message("user", "Q")] if role in ("assistant", "tool") else []
        after = [Message("user", "Q")] if role == "system" else []
        try:
            found = self.render([*turns, Message(role, probe), *after])
        except TemplateError:
            return False
        return probe in found.text and not found.quoted


def searched(source: str, names: Collection[str]) -> frozenset[str]:
    """Return the names that a template searches for in messages, and those of marks around reasoning."""
    literals = {(found[2] or found[4] or "").strip() for found in SEARCH.finditer(source)}
    return frozenset(name for name in names if REASONING.search(name) or name in literals)


def strings(*values: object) -> Iterator[str]:
    """Yield all text in plain data, keys included."""
    left: list[object] = [*values]
    while left:
        value = left.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, Mapping):
            left += chain(value.keys(), value.values())
        elif isinstance(value, list | tuple):
            left += value


def with_strings(value: Any, change: Callable[[str], str]) -> Any:
    """Return plain data with all of its text changed, keys included."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {with_strings(key, change): with_strings(each, change) for key, each in value.items()}
    return [with_strings(each, change) for each in value] if isinstance(value, list | tuple) else value


def guard_for(text: str) -> str:
    """Return a character that the text does not contain, as it is or escaped in JSON. Raises TemplateError."""
    has = set(text)
    found = (chr(code) for code in GUARDS if chr(code) not in has)
    guard = next((each for each in found if not re.search(forms_of(each), text)), None)
    if guard is None:
        raise TemplateError("The conversation uses all characters that are for private use. Leave some out.")
    return guard


def forms_of(guard: str) -> str:
    """Return a pattern of the guard as it is, and as ASCII JSON escapes it."""
    return f"{guard}|{re.escape(json.dumps(guard)[1:-1])}"


def dangerous(source: str, controls: Iterable[str], own: Iterable[str]) -> MarkNames:
    """Return the names that must not become tokens when a message contains them, for a template of that source.

    A model's `own` tokens may be turn marks, or words and HTML tags that people write. Only those that look like marks
    and occur in the template are included.
    """
    return MarkNames([*controls, *(name for name in own if re.fullmatch(r"<.+>|\[.+\]", name) and name in source)])
