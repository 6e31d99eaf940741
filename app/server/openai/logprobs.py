"""Log probabilities in the words of OpenAI's two interfaces. Leaves out tokens that end a turn: they are no text."""

from __future__ import annotations

from collections.abc import Iterable

from runtime.engine import Chunk, Engine, TokenLogprobs


def entries(engine: Engine, chunks: Iterable[Chunk]) -> list[TokenLogprobs]:
    """Of the tokens that are text."""
    return [entry for chunk in chunks for entry in chunk.logprobs if not engine.is_end(entry.token)]


def one(engine: Engine, token: int, logprob: float) -> dict[str, object]:
    """A token; `bytes` tells what a part of a character cannot."""
    return {
        "id": token,
        "token": engine.token_text(token),
        "logprob": logprob,
        "bytes": list(engine.token_bytes(token)),
    }


def for_chat(engine: Engine, chunks: Iterable[Chunk]) -> dict[str, object]:
    """As chat completions say it."""
    found = entries(engine, chunks)
    content = [
        one(engine, entry.token, entry.logprob) | {"top_logprobs": [one(engine, *other) for other in entry.top]}
        for entry in found
    ]
    return {"content": content, "refusal": None}


def for_text(engine: Engine, chunks: Iterable[Chunk], offset: int = 0) -> dict[str, object]:
    """As text completions say it; `offset` is the place of the first token in the text."""
    found = entries(engine, chunks)
    tokens, offsets = [engine.token_text(entry.token) for entry in found], []
    for token in tokens:
        offsets.append(offset)
        offset += len(token)
    top = [{engine.token_text(token): logprob for token, logprob in entry.top} for entry in found]
    return {
        "tokens": tokens,
        "token_logprobs": [entry.logprob for entry in found],
        "top_logprobs": top,
        "text_offset": offsets,
    }
