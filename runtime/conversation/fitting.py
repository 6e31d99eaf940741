"""Fits conversations to a chat template: messages that it refuses or drops are rewritten in a form that it accepts.

What a template accepts is found by rendering short conversations of probe words, each once. Knows text only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count, product
from operator import itemgetter
from typing import Any

from runtime.conversation import past_calls, turns
from runtime.conversation.chat_template import ChatTemplate, Message
from runtime.conversation.past_calls import CallFields
from runtime.conversation.turns import Messages, Repair, calls_of
from runtime.core.errors import TemplateError, TemplateLimitError

PARAMETERS = {"type": "object", "properties": {"probe": {"type": "string", "description": "probe"}}}
TOOL = {"type": "function", "function": {"name": "probe", "description": "probe", "parameters": PARAMETERS}}
ORDINARY = re.compile("s?(ua)*u")  # a pattern over the first letters of the roles
REFUSED = 10**6  # more than the number of words that any conversation loses
FORMS = [CallFields(*flags) for flags in sorted(product((False, True), repeat=3), key=sum)]
AFTER_RESULTS = "a reply put between a tool result and the user's message"
SYSTEM_MOVED = "system text moved into a user turn"
ALL_TEXT = "calls and their results written as text"
ROLES = {"S": "system", "U": "user", "T": "tool"}
N_CALLS = {"C": 1, "D": 2, "X": 1}
CALL_TURNS = frozenset("CDXT")


@dataclass(frozen=True, slots=True)
class Fitted:
    """A conversation changed to fit a template as far as possible, and a description of each change."""

    messages: tuple[Message, ...]
    changes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RepairStep:
    """A repair for templates that drop part of any of the `probes`, if they render the `other` conversation whole.

    Each letter is a turn: System, User, Assistant, Empty reply, one Call, Double call, teXt and call, Tool's result.
    """

    probes: tuple[str, ...]
    repair: Repair
    change: str
    other: str = "U"


STEPS = (
    RepairStep(("SSU",), turns.one_first_system, "system messages joined"),
    RepairStep(("SUASU",), turns.late_system_as_user, "a later system message moved into a user turn"),
    RepairStep(("UDTAU",), past_calls.single_calls, "each call given a message of its own"),
    RepairStep(("UCU",), past_calls.open_calls_as_text, "a call without a result written as text"),
    RepairStep(("UTAU",), past_calls.stray_results_as_text, "a result without a call written as text"),
    RepairStep(("UXTAU",), past_calls.text_before_calls, "text separated from the call after it", "UACTAU"),
    RepairStep(("UDTTAU",), past_calls.one_result, "tool results joined"),
    RepairStep(("UEU",), turns.without_empty_replies, "an empty reply left out"),
    RepairStep(("UCTU",), turns.reply_after_results(""), AFTER_RESULTS, "UCTEU"),
    RepairStep(("UCTU",), turns.reply_after_results("OK."), AFTER_RESULTS, "UCTAU"),
    RepairStep(("AU", "SAU", "A"), turns.user_first, "an empty user turn put before the first reply"),
    RepairStep(("SU",), turns.system_as_user, SYSTEM_MOVED),
    RepairStep(("UUAU",), turns.one_user_turn, "user messages in a row joined"),
    RepairStep(("UAAU",), turns.one_reply, "assistant messages in a row joined"),
)


class Fitting:
    """Fits conversations to one template, with or without tools offered."""

    def __init__(self, template: ChatTemplate, has_tools: bool) -> None:
        self._template, self._tools, self._taken = template, [TOOL] if has_tools else [], dict[str, bool]()

    def fit(self, messages: Messages) -> Fitted:
        """Return the messages, changed only where the template does not accept them as they are.

        If no repair helps, the messages are returned unchanged and the template's own error remains.
        """
        try:
            return self._fit(messages)
        except TemplateLimitError:  # this error does not show what the template accepts
            return Fitted(tuple(messages))

    def _fit(self, messages: Messages) -> Fitted:
        as_it_is = Fitted(tuple(messages))
        if self._takes_ordinary(messages) or not self._takes("U") or not (n_lost := self._n_lost(messages)):
            return as_it_is
        n_left, best = min([(n_lost, as_it_is), *self._attempts(as_it_is)], key=itemgetter(0))
        left_out = ("text left out that the template has no place for",) if 0 < n_left < REFUSED else ()
        return replace(best, changes=(*best.changes, *left_out))

    def _attempts(self, fitted: Fitted) -> Iterator[tuple[int, Fitted]]:
        """Yield (number of texts and calls lost, conversation) for the usual repairs, then for last resorts if those
        still lose something.
        """
        repaired = self._repaired(fitted)
        n_lost = self._n_lost(repaired.messages)
        yield n_lost, repaired
        resorts = [changed(repaired, turns.system_as_user, SYSTEM_MOVED)] * (n_lost > 0)
        if n_lost == REFUSED:
            resorts.append(self._repaired(changed(fitted, past_calls.calls_and_results_as_text, ALL_TEXT)))
        yield from ((self._n_lost(resort.messages), resort) for resort in resorts)

    def _repaired(self, fitted: Fitted) -> Fitted:
        """Return the conversation with repairs for every pattern that the template is known not to accept."""
        if any(calls_of(message) or message.role == "tool" for message in fitted.messages):
            fitted = changed(fitted, past_calls.with_ids, "ids given to calls without one")
            fitted = changed(fitted, *self._as_text)
        for step in STEPS:
            if not all(map(self._takes, step.probes)) and self._takes(step.other):
                fitted = changed(fitted, step.repair, step.change)
        return changed(fitted, self._form.apply, "calls written in the template's form")

    def _takes_ordinary(self, messages: Messages) -> bool:
        """Whether the conversation alternates plain user and assistant turns, which need no check of their own."""
        roles = "".join(message.role[0] if is_plain(message) else "?" for message in messages)
        return bool(ORDINARY.fullmatch(roles)) and self._takes("SUAU" if roles[0] == "s" else "UAU")

    def _takes(self, letters: str) -> bool:
        """Whether the template renders such a conversation whole, with calls in its own form."""
        if letters not in self._taken:
            messages: Messages = conversation(letters)
            if CALL_TURNS & set(letters):
                messages = self._form.apply(self._as_text[0](messages))
            self._taken[letters] = not self._n_lost(messages)
        return self._taken[letters]

    @cached_property
    def _form(self) -> CallFields:
        """The form of calls that needs the fewest changes for this template, or the usual one if it accepts none."""
        call = conversation("UCTAU")
        return next((form for form in FORMS if not self._n_lost(form.apply(call))), FORMS[0])

    @cached_property
    def _as_text(self) -> tuple[Repair, str]:
        """The repair that writes as much of calls as text as the template requires: nothing, the calls, or their
        results as well.
        """
        call = conversation("UCTAU")
        if not self._n_lost(self._form.apply(call)):
            return list, ""
        if not self._n_lost(past_calls.calls_as_text(call)):
            return past_calls.calls_as_text, "calls written as text"
        return past_calls.calls_and_results_as_text, ALL_TEXT

    def _n_lost(self, messages: Messages) -> int:
        """Return the number of texts and calls that the template leaves out, or REFUSED if it refuses the messages.

        Raises TemplateLimitError.
        """
        probes, words = shadow(messages)
        try:
            text = self._template.render(probes, self._tools)
        except TemplateLimitError:
            raise
        except TemplateError:
            return REFUSED
        return sum(not any(word in text for word in alternatives) for alternatives in words)


def is_plain(message: Message) -> bool:
    """Whether the message is text and nothing else."""
    return bool(message.content.strip()) and not message.more


def changed(fitted: Fitted, repair: Repair, change: str) -> Fitted:
    """Return the conversation after a repair, with `change` recorded if the repair changed anything."""
    messages = tuple(repair(fitted.messages))
    return fitted if messages == fitted.messages else Fitted(messages, (*fitted.changes, change))


def conversation(letters: str) -> list[Message]:
    """Return the conversation for the letters of a step."""
    found, ids = list[Message](), count()
    waiting = list[str]()
    for letter in letters:
        calls = [call(f"call_{next(ids):08}") for _ in range(N_CALLS.get(letter, 0))]
        waiting += [made["id"] for made in calls]
        more: dict[str, Any] = {"tool_calls": calls} if calls else {}
        if letter == "T":
            more = {"name": "probe", "tool_call_id": waiting.pop(0) if waiting else "call_stray"}
        found.append(Message(ROLES.get(letter, "assistant"), "" if letter in "ECD" else "probe", more))
    return found


def call(name: str) -> dict[str, Any]:
    """Return a call with this id."""
    return {"id": name, "type": "function", "function": {"name": "probe", "arguments": {"probe": "probe"}}}


def shadow(messages: Messages) -> tuple[list[Message], list[tuple[str, ...]]]:
    """Return a conversation of the same turns with unique probe words instead of texts, and for each text and call its
    words, of which at least one should be rendered.
    """
    words, found, numbers = list[tuple[str, ...]](), list[Message](), count()
    for message in messages:
        more = dict(message.more)
        if "reasoning_content" in more:
            more["reasoning_content"] = "probe"
        text = f"probe{next(numbers)}q" if message.content.strip() else ""
        names = [(f"probe{next(numbers)}q", f"probe{next(numbers)}q") for _ in calls_of(message)]
        if names:
            more["tool_calls"] = [shadow_call(call, *name) for call, name in zip(calls_of(message), names, strict=True)]
        words += [(text,), *names]
        found.append(Message(message.role, text, more))
    return found, words


def shadow_call(call: dict[str, Any], name: str, argument: str) -> dict[str, Any]:
    """Return a call of another function with another argument, in the same format."""
    given = call["function"]["arguments"]
    keys = given if isinstance(given, dict) else {"probe": ""} if given.strip("{} ") else {}
    arguments = dict.fromkeys(keys, argument)
    written = arguments if isinstance(given, dict) else json.dumps(arguments)
    return call | {"function": call["function"] | {"name": name, "arguments": written}}
