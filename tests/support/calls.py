"""Functions to call, replies that are read as they come, and replies made at random within a grammar."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
from llguidance import LLMatcher, LLTokenizer

from runtime.conversation.calls import CallForm, CallParser, Function, ReplyPart
from runtime.conversation.calls.form import TaggedArguments, filled
from runtime.conversation.chat_template import ChatTemplate, Message, TemplateForm

Calls = list[tuple[str, Any]]
WEATHER: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "description": "d"},
        "days": {"type": "integer", "maximum": 50, "description": "d"},
        "unit": {"type": "string", "enum": ["C", "F"], "description": "d"},
        "wind": {"type": "boolean", "description": "d"},
        "hours": {"type": "array", "items": {"type": "integer"}, "maxItems": 2, "description": "d"},
    },
    "required": ["city"],
}
FUNCTIONS = [
    Function("get_weather", WEATHER),
    Function("get", WEATHER),
    Function("now", {"type": "object", "properties": {}}),
]
# Without free text, which a reply at random does not end
CITIES = WEATHER["properties"] | {"city": {"enum": ["Oslo", "Rome"]}}
CLOSED = [Function("get_weather", WEATHER | {"properties": CITIES}), FUNCTIONS[2]]
CALLS: dict[str, Calls] = {
    "one argument": [("get_weather", {"city": "Oslo"})],
    "two arguments": [("get_weather", {"city": "Oslo", "days": 3})],
    "text with anything in it": [("get", {"city": "a\n\n <b> {x} \"q\" 'q' \\n </"})],
    "no arguments": [("now", {})],
    "values of all kinds": [("get", {"city": "", "days": -1, "wind": True, "hours": [1, 2]})],
    "two calls": [("get", {"city": "a"}), ("get_weather", {"city": "b"})],
}


def tools() -> list[dict[str, Any]]:
    """The functions as a template takes them."""
    return [
        {
            "type": "function",
            "function": {"name": each.name, "description": "d", "parameters": dict(each.parameters or {})},
        }
        for each in FUNCTIONS
    ]


def turn(calls: Calls) -> Message:
    """An assistant's turn with these calls, as a client sends it."""
    sent = [
        {"id": f"call_0123456789abcde{i}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for i, (name, arguments) in enumerate(calls)
    ]
    return Message("assistant", "", {"tool_calls": sent})


def rendered_turn(template: ChatTemplate, form: CallForm, calls: Calls) -> str:
    """What a template writes of a turn with these calls, from the end of the question on. Raises TemplateError."""
    question, plain = Message("user", "Q?"), TemplateForm({"enable_thinking": False}, begins_reply=False)
    assert form.past is not None
    (past,) = form.past.apply([turn(calls)])
    return template.render([question, past], tools(), plain).rpartition("Q?")[2]


def read(form: CallForm, text: str, sizes: Sequence[int]) -> tuple[str, Calls]:
    """The text and the calls of a reply that comes in pieces of these sizes, again and again."""
    parser, parts, at = CallParser(form, FUNCTIONS), list[ReplyPart](), 0
    while at < len(text):
        size = sizes[at % len(sizes)]
        parts += parser.feed(text[at : at + size])
        at += size
    return folded([*parts, *parser.finish(is_cut=False)])


def folded(parts: Sequence[ReplyPart]) -> tuple[str, Calls]:
    """The text and the calls that parts of a reply add up to."""
    words, calls = gathered(parts)
    return words, [(name, json.loads(arguments)) for name, arguments in calls]


def gathered(parts: Sequence[ReplyPart]) -> tuple[str, list[list[str]]]:
    """The same, with the arguments as text, which may be incomplete."""
    words, calls = "", list[list[str]]()
    for kind, text in parts:
        if kind == "call":
            calls.append([text, ""])
        elif kind == "arguments":
            calls[-1][1] += text
        else:
            words += text
    return words, calls


def random_reply(
    matcher: LLMatcher, tokenizer: LLTokenizer, seed: int, endings: Sequence[Sequence[int]] = (), longest: int = 900
) -> list[int] | None:
    """Tokens that a grammar allows, chosen at random with a liking for those that close something, and for these
    endings; None where that did not come to an end.
    """
    rng, reply = random.Random(seed), list[int]()
    closing = {token for token in range(256) if chr(token) in '"}]<)|'}
    for _ in range(longest):
        allowed = np.flatnonzero(np.unpackbits(np.frombuffer(matcher.compute_bitmask(), np.uint8), bitorder="little"))
        others = [int(token) for token in allowed if token not in tokenizer.eos_tokens]
        if not others or (len(others) < len(allowed) and rng.random() < 0.3):
            return reply
        liked = [token for token in others if token in closing]
        tokens = [rng.choice(liked if liked and rng.random() < 0.5 else others)]
        whole = [list(ending) for ending in endings if matcher.validate_tokens(list(ending)) == len(ending)]
        if whole and len(others) > 1 and rng.random() < 0.2:
            tokens = rng.choice(whole)
        assert matcher.consume_tokens(tokens), matcher.get_error()
        reply += tokens
    return None


def endings_of(form: CallForm) -> list[bytes]:
    """What ends an argument where arguments are written between literals."""
    styles = form.arguments.styles.values() if isinstance(form.arguments, TaggedArguments) else ()
    return list({filled(style.after, key="city").encode() for style in styles if style.after})
