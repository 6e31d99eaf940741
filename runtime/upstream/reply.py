"""Converts another server's reply into chunks: text as it arrives, stop strings, reasoning, tool calls, statistics.

Reasoning and tool calls are written in the form that readers of replies expect. Knows events of OpenAI's interface;
knows no HTTP.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from typing import Any

from runtime.engine.output import Chunk
from runtime.engine.stats import ELSEWHERE, RemoteCounts, Stats
from runtime.engine.text import TextStream
from runtime.sampling.logits import TokenLogprobs
from runtime.speculative.control.explain import Pass
from runtime.upstream.words import PIECE, Words

BEGIN, END = "<think>\n", "\n</think>\n\n"
CALL, CALL_END = '<tool_call>\n{"name": %s, "arguments": ', "}\n</tool_call>"
ENDS = {"length": "length", "content_filter": "stop"}
FILTERED = "The server left out the rest of the reply because of its content filter."


def number(value: object) -> float:
    """Return a number that a server reports; 0 for anything else."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e15 else 0.0


def table(value: object) -> dict[str, Any]:
    """Return an object that a server reports; an empty one for anything else."""
    return value if isinstance(value, dict) else {}


class UpstreamReply:
    """One reply, built from its events; `passes` has an entry for each event with text."""

    def __init__(self, words: Words, stops: Iterable[str]) -> None:
        self._words, self._text = words, TextStream([*stops])
        self._is_thinking = False
        self._n_calls, self._is_calling = 0, False
        self._last = time.perf_counter()  # when the latest text arrived, at first that of the beginning
        self._usage: dict[str, Any] = {}
        self._timings: dict[str, Any] = {}
        self._prompt_seconds: float | None = None  # until the first text
        self.passes: list[Pass] = []
        self.finish_reason: str | None = None
        self.notice = ""

    @property
    def has_begun(self) -> bool:
        """Whether any of it has arrived."""
        return self._prompt_seconds is not None

    @property
    def is_over(self) -> bool:
        """Whether a stop string ended it. After an end that the server reports, statistics may follow."""
        return self._text.stopped

    def _progress(self, event: dict[str, Any]) -> tuple[int, int] | None:
        """Return the prompt's tokens read so far and in total, if the event reports them."""
        found = table(event.get("prompt_progress"))
        total = int(number(found.get("total")))
        return (min(int(number(found.get("processed"))), total), total) if total else None

    def chunks(self, event: dict[str, Any]) -> Iterator[Chunk]:
        """Yield the progress of the prompt and the chunk of an event. The prompt counts as read when text arrives."""
        if progress := self._progress(event):
            done, total = progress
            yield read_so_far(max(0, min(done, total - 2)), total - 1)
        for chunk in self._take(event):
            if len(self.passes) == 1:
                yield read_so_far(*([progress[1] - 1] * 2 if progress else (0, 0)))
            yield chunk

    def _take(self, event: dict[str, Any]) -> Iterator[Chunk]:
        """Yield the chunk of an event, if it has text or log probabilities."""
        self._usage = table(event.get("usage")) or self._usage
        self._timings |= table(event.get("timings"))
        choices = event.get("choices")
        choice = table(choices[0]) if isinstance(choices, list) and choices else {}
        text = self._written(table(choice.get("delta") or choice.get("message")), choice.get("text"))
        if reason := choice.get("finish_reason"):
            text += self._closed()
            self.finish_reason = ENDS.get(str(reason), "stop")
            self.notice = FILTERED if reason == "content_filter" else self.notice
        entries = [*self._logprobs(table(choice.get("logprobs")))]
        if text or entries:
            yield self._chunk(text, entries)

    def _chunk(self, text: str, entries: list[TokenLogprobs]) -> Chunk:
        now = time.perf_counter()
        if self._prompt_seconds is None:
            self._prompt_seconds, self._last = now - self._last, now
        made = Pass(now - self._last, ELSEWHERE, 0, 0, max(1, len(entries)))
        self._last = now
        self.passes.append(made)
        shown = self._text.feed(text.encode("utf8", "replace"))
        if self._text.stopped:
            self.finish_reason = "stop"
        tokens = tuple(entry.token for entry in entries) or (PIECE,)
        pieces = (shown, *[""] * (len(tokens) - 1))
        return Chunk(shown, tokens, (False,) * len(tokens), pieces, tuple(entries), made=made)

    def _written(self, delta: dict[str, Any], text: object) -> str:
        """Return the text of a piece: of the reply, of its reasoning between marks, of tool calls."""
        parts = [text] if isinstance(text, str) else []
        reasoning = delta.get("reasoning_content") or delta.get("reasoning")
        if isinstance(reasoning, str) and reasoning:
            parts += [BEGIN] * (not self._is_thinking) + [reasoning]
            self._is_thinking = True
        content, calls = delta.get("content"), delta.get("tool_calls")
        if isinstance(content, str) and content:
            parts += [self._end_of_thought(), content]
        for call in calls if isinstance(calls, list) else ():
            parts += [self._end_of_thought(), *self._call(table(call))]
        return "".join(parts)

    def _end_of_thought(self) -> str:
        was_thinking, self._is_thinking = self._is_thinking, False
        return END if was_thinking else ""

    def _call(self, call: dict[str, Any]) -> Iterator[str]:
        """Yield the text of a piece of a call: a name begins one, and its arguments follow as they arrive."""
        function = table(call.get("function"))
        if isinstance(name := function.get("name"), str) and name:
            yield self._closed() + "\n" * bool(self._n_calls)
            yield CALL % json.dumps(name)
            self._n_calls, self._is_calling = self._n_calls + 1, True
        if isinstance(arguments := function.get("arguments"), str) and self._is_calling:
            yield arguments

    def _closed(self) -> str:
        """Return the text that ends an open thought or call."""
        was_calling, self._is_calling = self._is_calling, False
        return self._end_of_thought() + (CALL_END if was_calling else "")

    def _logprobs(self, found: dict[str, Any]) -> Iterator[TokenLogprobs]:
        """Yield log probabilities with ids for the server's tokens: of chats, and of texts in the older form."""
        content = found.get("content")
        for entry in map(table, content if isinstance(content, list) else older(found)):
            top = entry.get("top_logprobs")
            likely = [self._likely(table(each)) for each in top] if isinstance(top, list) else []
            yield TokenLogprobs(*self._likely(entry), tuple(likely))

    def _likely(self, entry: dict[str, Any]) -> tuple[int, float]:
        value = entry.get("logprob", entry.get("prob"))
        return self._words.name(str(entry.get("token", ""))), float(value) if isinstance(value, int | float) else 0.0

    def end(self) -> Chunk:
        """Return the last chunk: text that was held back, the reason for the end, and the statistics."""
        tail = self._text.finish()
        return Chunk(
            tail, pieces=(tail,), finish_reason=self.finish_reason, notice=self.notice, stats=self.stats(),
            stop=self._text.stop,
        )  # fmt: skip

    def stats(self) -> Stats:
        """Return the statistics reported by the server, and measurements made here for those it lacks."""
        usage, timings, seen = self._usage, self._timings, sum(each.seconds for each in self.passes)
        details = table(usage.get("prompt_tokens_details"))
        n_tokens = int(number(usage.get("completion_tokens")) or number(timings.get("predicted_n"))) or len(self.passes)
        cached = number(details.get("cached_tokens")) or number(timings.get("cache_n"))
        n_drafted, n_accepted = (int(number(timings.get(name))) for name in ("draft_n", "draft_n_accepted"))
        seconds = number(timings.get("predicted_ms")) / 1e3 or seen
        own_seconds = seconds * (1 - min(1.0, number(timings.get("held_up"))))
        return Stats(
            prompt_n=int(number(usage.get("prompt_tokens")) or number(timings.get("prompt_n")) + cached),
            cached_n=int(cached),
            prompt_seconds=number(timings.get("prompt_ms")) / 1e3 or self._prompt_seconds or 0.0,
            decode_seconds=seconds,
            plain_per_second=number(timings.get("plain_per_second")),
            told=(RemoteCounts(n_tokens, n_drafted, min(n_accepted, n_tokens), own_seconds),),
        )


def read_so_far(done: int, total: int) -> Chunk:
    """Return a chunk that reports tokens of the prompt, all but its last one; that comes with the end of the others."""
    return Chunk("", n_read=done + (done == total), stats=Stats(prompt_n=total + 1))


def older(found: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield log probabilities of a text, in the form of OpenAI's first interface, in the newer form."""
    columns = [found.get(name) or [] for name in ("tokens", "token_logprobs", "top_logprobs")]
    tokens, values, tops = (column if isinstance(column, list) else [] for column in columns)
    for i, (token, value) in enumerate(zip(tokens, values, strict=False)):
        top = table(tops[i]) if i < len(tops) else {}
        yield {
            "token": token, "logprob": value,
            "top_logprobs": [{"token": word, "logprob": chance} for word, chance in top.items()],
        }  # fmt: skip
