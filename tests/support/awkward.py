"""Conversations that clients send and templates refuse, written as letters of turns, with a text of its own in each.

S system, U user, A assistant, E an empty reply, C a call, D two calls, X text and a call, T a tool's result.
"""

from __future__ import annotations

from typing import Any

from runtime.conversation.chat_template import Message

ROLES = {"S": "system", "U": "user", "T": "tool"}
N_CALLS = {"C": 1, "D": 2, "X": 1}
AWKWARD = (
    "S", "SU", "SA", "SAU", "AU", "SUAU", "SSU", "SSUASU", "SUASU", "SUAS", "US", "USU", "UAS", "UUAU", "UAAU", "UEU",
    "SUUUAAU", "UCTAU", "UCT", "SUCT", "SUCTCT", "UXTAU", "SUXT", "UDTTAU", "UDTT", "UDTTU", "UCTU", "SUCTCTU", "UCTSU",
    "UCTSAU", "UCSTAU", "UACTAU", "UCAU", "UCU", "UTAU", "SUDTTXTUASU",
)  # fmt: skip


def conversation(letters: str, arguments: Any = None) -> list[Message]:
    """Return the messages, whose texts are `text0.`, `text1.` and so on; arguments are `city` with `town0.` unless
    they are given.
    """
    found, n_calls, waiting = list[Message](), 0, list[str]()
    for i, letter in enumerate(letters):
        more: dict[str, Any] = {}
        if n := N_CALLS.get(letter):
            more["tool_calls"] = [call(n_calls + k, arguments) for k in range(n)]
            waiting += [made["id"] for made in more["tool_calls"]]
            n_calls += n
        if letter == "T":
            more = {"tool_call_id": waiting.pop(0) if waiting else "call_lost"}
        found.append(Message(ROLES.get(letter, "assistant"), "" if letter in "ECD" else f"text{i}.", more))
    return found


def call(n: int, arguments: Any = None) -> dict[str, Any]:
    """Return a call as OpenAI's clients send it, with a longer id than some templates take."""
    given = {"city": f"town{n}."} if arguments is None else arguments
    return {"id": f"call_{n:024}", "type": "function", "function": {"name": "get_weather", "arguments": given}}


def texts(messages: list[Message]) -> list[str]:
    """Return what must be found of a conversation in a prompt: its texts, and its calls' arguments."""
    calls = [call["function"]["arguments"] for message in messages for call in message.more.get("tool_calls", ())]
    return [*(message.content for message in messages), *(given["city"] for given in calls if "city" in given)]
