"""Joins, moves and adds turns of a conversation for templates that do not accept them where they are.

Every function returns the messages, changed where its pattern occurs. Knows messages, no template.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby, takewhile
from typing import Any

from runtime.conversation.chat_template import Message

Messages = Sequence[Message]
Repair = Callable[[Messages], list[Message]]


def calls_of(message: Message) -> list[dict[str, Any]]:
    """Return the calls of a message."""
    return list(message.more.get("tool_calls") or ())


def paragraphs(*texts: str) -> str:
    """Return the non-empty texts, joined with a blank line between them."""
    return "\n\n".join(text for text in texts if text.strip())


def with_calls(message: Message, calls: Sequence[dict[str, Any]]) -> Message:
    """Return a message with these calls instead of its own."""
    more = {key: value for key, value in message.more.items() if key != "tool_calls"}
    return replace(message, more=more | ({"tool_calls": list(calls)} if calls else {}))


def joined_runs(messages: Messages, role: str, join: Callable[[list[Message]], Message]) -> list[Message]:
    """Join consecutive messages of one role."""
    found = list[Message]()
    for is_role, group in groupby(messages, lambda message: message.role == role):
        run = list(group)
        found += [join(run)] if is_role and len(run) > 1 else run
    return found


def join_messages(run: list[Message]) -> Message:
    """Return one message with the content, reasoning and calls of several."""
    more = {key: value for message in reversed(run) for key, value in message.more.items()}
    if calls := [call for message in run for call in calls_of(message)]:
        more["tool_calls"] = calls
    if thoughts := paragraphs(*(str(message.more.get("reasoning_content") or "") for message in run)):
        more["reasoning_content"] = thoughts
    return Message(run[0].role, paragraphs(*(message.content for message in run)), more)


def one_user_turn(messages: Messages) -> list[Message]:
    """Join consecutive user messages."""
    return joined_runs(messages, "user", join_messages)


def one_reply(messages: Messages) -> list[Message]:
    """Join consecutive assistant messages."""
    return joined_runs(messages, "assistant", join_messages)


def n_leading(messages: Messages) -> int:
    """Return the number of system messages at the start of the conversation."""
    return sum(1 for _ in takewhile(lambda message: message.role == "system", messages))


def one_first_system(messages: Messages) -> list[Message]:
    """Join the system messages at the start of the conversation."""
    n = n_leading(messages)
    return [join_messages(list(messages[:n])), *messages[n:]] if n > 1 else list(messages)


def late_system_as_user(messages: Messages) -> list[Message]:
    """Turn system messages after the leading ones into user turns in their place."""
    n = n_leading(messages)
    return [*messages[:n], *system_as_user(messages[n:])]


def system_as_user(messages: Messages) -> list[Message]:
    """Turn system messages into user text: joined with the next user message, or else with the one before.

    Nothing comes between a call and its results.
    """
    found, waiting = list[Message](), list[Message]()
    for message in messages:
        if message.role == "system":
            waiting.append(replace(message, role="user"))
        elif not waiting or message.role == "tool":
            found.append(message)
        elif message.role == "user":
            found, waiting = [*found, join_messages([*waiting, message])], []
        else:
            found, waiting = [*user_says(found, waiting), message], []
    return user_says(found, waiting) if waiting else found


def user_says(found: list[Message], more: list[Message]) -> list[Message]:
    """Return the messages with user text appended, joined with a user turn at the end if there is one."""
    if found and found[-1].role == "user":
        return [*found[:-1], join_messages([found[-1], *more])]
    return [*found, join_messages(more)]


def user_first(messages: Messages) -> list[Message]:
    """Put an empty user turn before a reply that starts the conversation."""
    n = n_leading(messages)
    is_reply = n < len(messages) and messages[n].role == "assistant"
    return [*messages[:n], *[Message("user", "")] * is_reply, *messages[n:]]


def without_empty_replies(messages: Messages) -> list[Message]:
    """Leave out replies without text and without calls."""
    return [m for m in messages if m.role != "assistant" or m.content.strip() or calls_of(m)]


def reply_after_results(text: str) -> Repair:
    """Return a repair that puts a reply between results and the user's next message."""

    def repair(messages: Messages) -> list[Message]:
        found = list[Message]()
        for message in messages:
            if message.role == "user" and found and found[-1].role == "tool":
                found.append(Message("assistant", text))
            found.append(message)
        return found

    return repair
