"""Rewrites past calls and their results for templates: other ids, one call per message, or plain text.

Every function returns the messages, changed where its pattern occurs. Knows messages, no template.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import count, takewhile
from typing import Any

from runtime.conversation.chat_template import Message
from runtime.conversation.turns import Messages, calls_of, joined_runs, paragraphs, with_calls

ID_LENGTH = 9  # characters of Mistral's ids


def written_call(name: str, arguments: Any) -> str:
    """Return a call as text, for a model whose template has no form for it."""
    call = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    return f"<tool_call>\n{call}\n</tool_call>"


def written_result(text: str) -> str:
    """Return a tool's result as text for a user message."""
    return f"<tool_response>\n{text}\n</tool_response>"


@dataclass(frozen=True, slots=True)
class CallFields:
    """The format of calls' fields that a template requires.

    Ids may be nine letters and digits, or the function's name and a number. Arguments may be JSON text. The content
    next to calls may be null.
    """

    short_ids: bool = False
    text_arguments: bool = False
    null_content: bool = False
    numbered_ids: bool = False

    def apply(self, messages: Messages) -> list[Message]:
        """Return the messages with their calls and results in this format, all with ids."""
        messages = with_ids(messages)
        calls = [call for message in messages for call in calls_of(message)]
        ids = {call["id"]: self.id_of(call["id"], call["function"]["name"], i) for i, call in enumerate(calls)}
        return [self._applied(message, ids) for message in messages]

    def id_of(self, given: str, name: str, number: int) -> str:
        """Return the id of a call, which is the same in every request so that the prompt cache matches."""
        if self.numbered_ids:
            return f"functions.{name}:{number}"
        if not self.short_ids or (len(given) == ID_LENGTH and given.isalnum() and given.isascii()):
            return given
        return blake2b(given.encode("utf8", "replace")).hexdigest()[:ID_LENGTH]

    def _applied(self, message: Message, ids: Mapping[str, str]) -> Message:
        more = dict(message.more)
        if "tool_call_id" in more:
            more["tool_call_id"] = ids.get(more["tool_call_id"]) or self.id_of(more["tool_call_id"], "call", len(ids))
        if calls := calls_of(message):
            more["tool_calls"] = [self._call(call, ids) for call in calls]
            if self.null_content and not message.content:
                more["content"] = None
        return replace(message, more=more)

    def _call(self, call: dict[str, Any], ids: Mapping[str, str]) -> dict[str, Any]:
        function = call["function"]
        if self.text_arguments and not isinstance(function["arguments"], str):
            function = function | {"arguments": json.dumps(function["arguments"], ensure_ascii=False)}
        return call | {"id": ids[call["id"]], "function": function}


USUAL_FIELDS = CallFields()


def with_ids(messages: Messages) -> list[Message]:
    """Give each call without an id, or with a duplicate one, an id by its position.

    Results get the ids of the preceding calls, in order where nothing else identifies them.
    """
    used, waiting = set[str](), list[tuple[str, str]]()  # (given id, new id)

    def unused(given: str) -> str:
        names = (f"call_{n}" for n in count(len(used)))
        found = given if given and given not in used else next(name for name in names if name not in used)
        used.add(found)
        return found

    def named(message: Message) -> Message:
        nonlocal waiting
        if calls := calls_of(message):
            given = [str(call.get("id") or "") for call in calls]
            waiting = [(name, unused(name)) for name in given]
            return with_calls(message, [call | {"id": new} for call, (_, new) in zip(calls, waiting, strict=True)])
        if message.role != "tool":
            return message
        name = str(message.more.get("tool_call_id") or "")
        found = next((pair for pair in waiting if not name or pair[0] == name), (name, name or f"call_{len(used)}"))
        waiting = [pair for pair in waiting if pair is not found]
        return replace(message, more={**message.more, "tool_call_id": found[1]})

    return [named(message) for message in messages]


def call_as_text(message: Message) -> Message:
    """Return a message with its calls as text."""
    functions = [call["function"] for call in calls_of(message)]
    written = [written_call(function["name"], function["arguments"]) for function in functions]
    return with_calls(replace(message, content="\n".join([message.content] * bool(message.content) + written)), ())


def result_as_text(message: Message) -> Message:
    """Return a tool's result as a user's message."""
    return Message("user", written_result(message.content))


def calls_as_text(messages: Messages) -> list[Message]:
    """Write every call as text."""
    return [call_as_text(message) if calls_of(message) else message for message in messages]


def calls_and_results_as_text(messages: Messages) -> list[Message]:
    """Write every call and result as text."""
    return [result_as_text(message) if message.role == "tool" else message for message in calls_as_text(messages)]


def runs(messages: Messages) -> Iterator[tuple[int, int]]:
    """Yield (begin, end) of each message with calls and the results that follow it."""
    for i, message in enumerate(messages):
        if calls_of(message):
            results = takewhile(lambda other: other.role == "tool", messages[i + 1 :])
            yield i, i + 1 + sum(1 for _ in results)


def single_calls(messages: Messages) -> list[Message]:
    """Split messages with several calls: one message per call, each followed by its own results."""
    found, done = list[Message](), 0
    messages = list(messages)
    for begin, end in runs(messages):
        found += [*messages[done:begin], *one_by_one(messages[begin], messages[begin + 1 : end])]
        done = end
    return [*found, *messages[done:]]


def one_by_one(message: Message, results: Messages) -> list[Message]:
    """Return one message per call, each followed by its results; results without a call come last."""
    calls, left, found = calls_of(message), list(results), list[Message]()
    for i, call in enumerate(calls):
        first = message if not i else Message("assistant", "")
        own = [result for result in left if result.more.get("tool_call_id") == call.get("id")]
        left = [result for result in left if result not in own]
        found += [with_calls(first, [call]), *own]
    return found + left


def open_calls_as_text(messages: Messages) -> list[Message]:
    """Write calls as text if no result follows them but another message does."""
    begins = {begin for begin, end in runs(messages) if begin + 1 == end < len(messages)}
    return [call_as_text(message) if i in begins else message for i, message in enumerate(messages)]


def stray_results_as_text(messages: Messages) -> list[Message]:
    """Write results as text if they follow no call."""
    answered = {i for begin, end in runs(messages) for i in range(begin, end)}
    return [
        result_as_text(message) if message.role == "tool" and i not in answered else message
        for i, message in enumerate(messages)
    ]


def text_before_calls(messages: Messages) -> list[Message]:
    """Split each message with text and calls into two."""

    def parted(message: Message) -> list[Message]:
        calls = calls_of(message)
        if not calls or not message.content.strip():
            return [message]
        return [with_calls(message, ()), with_calls(Message("assistant", ""), calls)]

    return [part for message in messages for part in parted(message)]


def one_result(messages: Messages) -> list[Message]:
    """Join consecutive results, each after the name of its call."""
    names = {call.get("id"): call["function"]["name"] for message in messages for call in calls_of(message)}

    def join(results: list[Message]) -> Message:
        titled = [
            paragraphs(f"Result of {names.get(key, 'call')} ({key}):" if key else "Result:", result.content)
            for result in results
            for key in [result.more.get("tool_call_id")]
        ]
        return replace(results[0], content=paragraphs(*titled))

    return joined_runs(messages, "tool", join)
