"""Turns of a conversation joined, moved and added for templates that do not take them where they are.

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
    """Return the calls that a message makes."""
    return list(message.more.get("tool_calls") or ())


def paragraphs(*texts: str) -> str:
    """Return texts with a blank line between them, empty ones left out."""
    return "\n\n".join(text for text in texts if text.strip())


def with_calls(message: Message, calls: Sequence[dict[str, Any]]) -> Message:
    """Return a message that makes these calls instead of its own."""
    more = {key: value for key, value in message.more.items() if key != "tool_calls"}
    return replace(message, more=more | ({"tool_calls": list(calls)} if calls else {}))


def joined_runs(messages: Messages, role: str, join: Callable[[list[Message]], Message]) -> list[Message]:
    """Joins messages of one role that follow each other."""
    found = list[Message]()
    for is_role, group in groupby(messages, lambda message: message.role == role):
        run = list(group)
        found += [join(run)] if is_role and len(run) > 1 else run
    return found


def join_messages(run: list[Message]) -> Message:
    """Return one message with what several say, think and call."""
    more = {key: value for message in reversed(run) for key, value in message.more.items()}
    if calls := [call for message in run for call in calls_of(message)]:
        more["tool_calls"] = calls
    if thoughts := paragraphs(*(str(message.more.get("reasoning_content") or "") for message in run)):
        more["reasoning_content"] = thoughts
    return Message(run[0].role, paragraphs(*(message.content for message in run)), more)


def one_user_turn(messages: Messages) -> list[Message]:
    """Joins the user's messages in a row."""
    return joined_runs(messages, "user", join_messages)


def one_reply(messages: Messages) -> list[Message]:
    """Joins the assistant's messages in a row."""
    return joined_runs(messages, "assistant", join_messages)


def n_leading(messages: Messages) -> int:
    """Return how many system messages the conversation begins with."""
    return sum(1 for _ in takewhile(lambda message: message.role == "system", messages))


def one_first_system(messages: Messages) -> list[Message]:
    """Joins the system messages that the conversation begins with."""
    n = n_leading(messages)
    return [join_messages(list(messages[:n])), *messages[n:]] if n > 1 else list(messages)


def late_system_as_user(messages: Messages) -> list[Message]:
    """Has the user say in its place what a system message says later than first."""
    n = n_leading(messages)
    return [*messages[:n], *system_as_user(messages[n:])]


def system_as_user(messages: Messages) -> list[Message]:
    """Has the user say what system messages say: with the message that follows, else with the one before.

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
    """Return the messages with more of the user's at the end: one turn with a turn of the user's before."""
    if found and found[-1].role == "user":
        return [*found[:-1], join_messages([found[-1], *more])]
    return [*found, join_messages(more)]


def user_first(messages: Messages) -> list[Message]:
    """Puts an empty turn of the user's before a reply that nothing came before."""
    n = n_leading(messages)
    is_reply = n < len(messages) and messages[n].role == "assistant"
    return [*messages[:n], *[Message("user", "")] * is_reply, *messages[n:]]


def without_empty_replies(messages: Messages) -> list[Message]:
    """Leaves out replies of no text and no calls."""
    return [m for m in messages if m.role != "assistant" or m.content.strip() or calls_of(m)]


def reply_after_results(text: str) -> Repair:
    """Return what puts a reply between results and the user's next message."""

    def repair(messages: Messages) -> list[Message]:
        found = list[Message]()
        for message in messages:
            if message.role == "user" and found and found[-1].role == "tool":
                found.append(Message("assistant", text))
            found.append(message)
        return found

    return repair
