"""`slipstream run`: one prompt, one reply, streamed to standard output.

Knows the terminal; leaves options to choices.py.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from app.cli.report import describe
from app.terminal import Interrupt, LoadProgress, inert, marked
from runtime.engine import Chunk, Engine, Grammar, Message, Options, Sampling, TokenLogprobs
from runtime.models.registry import Pair


@dataclass(frozen=True, slots=True)
class OneshotRequest:
    """The prompt, and the settings for its reply."""

    prompt: str
    system: str
    raw: bool
    max_tokens: int | None
    stops: tuple[str, ...]
    sampling: Sampling
    grammar: Grammar | None
    n_logprobs: int | None
    prediction: str = ""

    def text(self) -> str | list[Message]:
        """Return the raw prompt, or the conversation."""
        if self.raw:
            return self.prompt
        return [Message("system", self.system)] * bool(self.system) + [Message("user", self.prompt)]


@dataclass(frozen=True, slots=True)
class Printed:
    """The output besides the text, or instead of it."""

    stats: bool
    as_json: bool
    color: bool


def run(
    pair: Pair,
    options: Options,
    request: OneshotRequest,
    output: Printed,
    open_engine: Callable[..., Engine] = Engine,
) -> int:
    """Load the model, answer and print. Returns the exit code."""
    interrupt = Interrupt()
    with interrupt.watching():
        with LoadProgress() as progress:
            engine = open_engine(
                pair, options, lambda what, share: progress.update(what, share, keep_loading=not interrupt.pressed)
            )
        if engine.facts.left_out:
            print(f"slipstream: {engine.facts.left_out}.", file=sys.stderr)
        try:
            chunks = engine.reply(
                request.text(), request.sampling, request.max_tokens, request.stops, lambda: interrupt.pressed,
                grammar=request.grammar, n_logprobs=request.n_logprobs, prediction=request.prediction,
            )  # fmt: skip
            last = show_json(engine, chunks) if output.as_json else show_text(chunks, output.color)
        finally:
            engine.close()
    if last.notice:
        print(f"slipstream: {last.notice}", file=sys.stderr)
    if output.stats and last.stats is not None:
        print(describe(last.stats, engine.facts.fit, engine.status.learning), file=sys.stderr)
    return 130 if last.finish_reason == "cancelled" else 0


def show_text(chunks: Iterator[Chunk], color: bool) -> Chunk:
    """Print the reply as it is generated. With `color`, accepted draft tokens are marked on a terminal."""
    out, on_terminal = sys.stdout, sys.stdout.isatty()
    chunk, ends = Chunk(""), "\n"
    for chunk in chunks:
        text = chunk.text
        if on_terminal:
            text = marked(chunk.pieces, chunk.drafted) if color else inert(text)
        out.write(text)
        out.flush()
        ends = chunk.text[-1:] or ends
    if ends != "\n" or chunk.finish_reason == "cancelled":
        print(flush=True)  # before anything on standard error
    return chunk


def show_json(engine: Engine, chunks: Iterator[Chunk]) -> Chunk:
    """Print one JSON object when the reply is complete."""
    parts = list(chunks)
    last, text = parts[-1], "".join(part.text for part in parts)
    if (stats := last.stats) is not None:
        usage = {
            "prompt_tokens": stats.prompt_n,
            "completion_tokens": stats.predicted_n,
            "total_tokens": stats.prompt_n + stats.predicted_n,
        }
        reply: dict[str, object] = {
            "model": engine.pair.name,
            "text": text,
            "finish_reason": last.finish_reason,
            "usage": usage,
            "timings": stats.timings(),
            "memory": describe_memory(engine),
        }
        if likely := [entry for part in parts for entry in part.logprobs]:
            reply["logprobs"] = [describe_logprobs(engine, entry) for entry in likely]
        print(json.dumps(reply, ensure_ascii=False))
    return last


def describe_memory(engine: Engine) -> dict[str, object]:
    """Return the level of memory pressure, what was given up because of it, and what was loaded in the free memory.
    Absent values are null.
    """
    status = engine.status
    return {"level": status.memory_level, "given_up": status.given_up or None, "fit": engine.facts.fit or None}


def describe_logprobs(engine: Engine, entry: TokenLogprobs) -> dict[str, object]:
    """Return log probabilities in the format of OpenAI's API."""
    top = [{"token": engine.token_text(token), "logprob": round(value, 6)} for token, value in entry.top]
    return {"token": engine.token_text(entry.token), "logprob": round(entry.logprob, 6), "top_logprobs": top}
