"""Log probabilities in the formats of OpenAI's two interfaces. Leaves out end-of-turn tokens, which are not text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel

from app.reply_text import ShownToken
from app.server.wire import Event
from runtime.engine import Engine


class TopLogprob(BaseModel):
    """A token and the logarithm of its probability; `bytes` is exact also for a part of a character."""

    id: int
    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(TopLogprob):
    """A token of the reply, and the most likely ones in its place."""

    top_logprobs: list[TopLogprob]


class ChatLogprobs(BaseModel):
    """The log probabilities of a chat's reply."""

    content: list[TokenLogprob]


class TextLogprobs(BaseModel):
    """The log probabilities of a text's tokens; each list is as long as the others."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


def text_tokens(engine: Engine, shown: Iterable[ShownToken]) -> list[ShownToken]:
    """Return the tokens that are text."""
    return [token for token in shown if not engine.is_end(token.entry.token)]


def top_logprob(engine: Engine, token: int, logprob: float) -> Event:
    """Return the body of TopLogprob."""
    text, as_bytes = engine.token_text(token), list(engine.token_bytes(token))
    return {"id": token, "token": text, "logprob": logprob, "bytes": as_bytes}


def token_logprobs(engine: Engine, shown: Iterable[ShownToken]) -> list[dict[str, Any]]:
    """Return the bodies of TokenLogprob."""
    return [
        top_logprob(engine, entry.token, entry.logprob)
        | {"top_logprobs": [top_logprob(engine, *other) for other in entry.top]}
        for _, entry in text_tokens(engine, shown)
    ]


def token_probs(engine: Engine, shown: Iterable[ShownToken]) -> list[Event]:
    """Return the bodies of TokenLogprob with probabilities, under llama.cpp's names for them."""
    return [
        as_prob(entry) | {"top_probs": [as_prob(other) for other in entry["top_logprobs"]]}
        for entry in token_logprobs(engine, shown)
    ]


def as_prob(entry: Mapping[str, Any]) -> Event:
    """Return an entry with a probability instead of its logarithm."""
    return {name: entry[name] for name in ("id", "token", "bytes")} | {"prob": math.exp(entry["logprob"])}


def chat_logprobs(engine: Engine, shown: Iterable[ShownToken]) -> Event:
    """Return the body of ChatLogprobs."""
    return {"content": token_logprobs(engine, shown), "refusal": None}


def token_name(engine: Engine, token: int) -> str:
    """Return a token's text. Where that is incomplete UTF-8, return its bytes in OpenAI's notation."""
    data = engine.token_bytes(token)
    try:
        data.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)
    return engine.token_text(token)


def text_logprobs(engine: Engine, shown: Iterable[ShownToken]) -> Event:
    """Return the body of TextLogprobs."""
    found = text_tokens(engine, shown)
    return {
        "tokens": [token_name(engine, entry.token) for _, entry in found],
        "token_logprobs": [entry.logprob for _, entry in found],
        "top_logprobs": [{token_name(engine, token): logprob for token, logprob in entry.top} for _, entry in found],
        "text_offset": [offset for offset, _ in found],
    }
