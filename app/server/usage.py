"""The numbers of a reply: usage under OpenAI's names, timings under llama.cpp's, and progress within a stream.

Must not know how they are sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pydantic import BaseModel

from app.server.wire import Event
from runtime.engine import Chunk
from runtime.engine.stats import Stats


class PromptTokensDetails(BaseModel):
    """The number of the prompt's tokens that were cached."""

    cached_tokens: int


class CompletionTokensDetails(BaseModel):
    """The numbers of the reply's tokens that were predicted by the client, and that were reasoning."""

    accepted_prediction_tokens: int
    rejected_prediction_tokens: int
    reasoning_tokens: int


class Usage(BaseModel):
    """The tokens of a request and of its reply, as OpenAI names them."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails


class Timings(BaseModel):
    """Counts and milliseconds, with llama.cpp's names where it has them. The body may have more fields."""

    prompt_n: int  # without cached tokens
    cache_n: int
    prompt_ms: float
    predicted_n: int
    predicted_ms: float
    predicted_per_second: float
    draft_n: int
    draft_n_accepted: int
    draft_ms: float
    verify_ms: float
    tokens_per_target_pass: float
    drafter: str
    fallback_reason: str | None


def usage(stats: Stats, n_reasoning: int = 0) -> Event:
    """Return the body of Usage. `n_reasoning` is the number of reasoning tokens in the reply."""
    predicted = stats.by_drafter.get("prediction", {"drafted": 0, "accepted": 0})
    return {
        "prompt_tokens": stats.prompt_n,
        "completion_tokens": stats.predicted_n,
        "total_tokens": stats.prompt_n + stats.predicted_n,
        "prompt_tokens_details": {"cached_tokens": stats.cached_n},
        "completion_tokens_details": {
            "accepted_prediction_tokens": predicted["accepted"],
            "rejected_prediction_tokens": predicted["drafted"] - predicted["accepted"],
            "reasoning_tokens": n_reasoning,
        },
    }


def timings(stats: Stats) -> Event:
    """Return the body of Timings, with the rates that llama.cpp's clients read."""
    n_read = stats.prompt_n - stats.cached_n
    prompt_ms, predicted_ms = 1e3 * stats.prompt_seconds, 1e3 * stats.decode_seconds
    return stats.timings() | {
        "prompt_per_token_ms": round(prompt_ms / max(1, n_read), 3),
        "prompt_per_second": round(1e3 * n_read / prompt_ms, 2) if prompt_ms else 0.0,
        "predicted_per_token_ms": round(predicted_ms / max(1, stats.predicted_n), 3),
    }


class Tally:
    """The numbers of a request's finished replies, `n_choices` for each prompt. The replies to one prompt come
    together.
    """

    def __init__(self, n_prompts: int = 1, n_choices: int = 1) -> None:
        self._n, self._n_choices, self._stats = n_prompts * n_choices, n_choices, list[Stats]()
        self.n_ended = 0

    @property
    def is_complete(self) -> bool:
        """Whether all replies have ended."""
        return self.n_ended == self._n

    def add(self, last: Chunk) -> None:
        """Count a reply that has ended, by its last chunk."""
        self.n_ended += 1
        if last.stats:
            self._stats.append(last.stats)

    def usage(self, n_reasoning: int = 0) -> Event:
        """Return the body's `usage`. A prompt counts once, however many replies it has."""
        if not self._stats:
            return {}
        return {"usage": usage(total(self._stats, self._stats[:: self._n_choices]), n_reasoning)}

    def timings(self) -> Event:
        """Return the body's `timings`."""
        return {"timings": timings(total(self._stats, self._stats))} if self._stats else {}


def total(replies: Sequence[Stats], prompts: Sequence[Stats]) -> Stats:
    """Return the sums over all replies, with the tokens of these prompts."""
    return replace(
        replies[-1],
        prompt_n=sum(each.prompt_n for each in prompts),
        cached_n=sum(each.cached_n for each in prompts),
        prompt_seconds=sum(each.prompt_seconds for each in replies),
        decode_seconds=sum(each.decode_seconds for each in replies),
        n_near_ties=sum(each.n_near_ties for each in replies),
        steps=[step for each in replies for step in each.steps],
        told=tuple(told for each in replies for told in each.told),
    )


class ReplyProgress:
    """The progress of one reply. `tells_reading`: events during the prefill; `tells_time`: timings in every event."""

    def __init__(self, tells_reading: bool | None = None, tells_time: bool | None = None) -> None:
        self.tells_reading, self.tells_time = tells_reading, tells_time
        self._stats, self._n_tokens, self._n_accepted, self._seconds = Stats(), 0, 0, 0.0

    def again(self) -> ReplyProgress:
        """Return the progress of another reply to the same request."""
        return ReplyProgress(self.tells_reading, self.tells_time)

    def see(self, chunk: Chunk) -> None:
        """Count a chunk. To be called for every chunk but the last."""
        self._stats = chunk.stats or self._stats
        self._n_tokens += len(chunk.tokens)
        self._n_accepted += sum(chunk.drafted)
        self._seconds += chunk.made.seconds if chunk.made else 0.0

    def reading(self, chunk: Chunk) -> Event:
        """Return the prefill progress in the chunk, or {} if there is none or it was not requested."""
        stats = chunk.stats
        if not self.tells_reading or stats is None or chunk.finish_reason:
            return {}
        return {
            "prompt_progress": {
                "total": stats.prompt_n,
                "cache": stats.cached_n,
                "processed": chunk.n_read,
                "time_ms": round(1e3 * stats.prompt_seconds),
            }
        }

    def time(self, n_read: int | None = None) -> Event:
        """Return the timings so far, or {} if not requested. `n_read`: prompt tokens read; None: all."""
        if not self.tells_time:
            return {}
        n_prompt = (self._stats.prompt_n if n_read is None else n_read) - self._stats.cached_n
        reading = timings(Stats(prompt_n=n_prompt, prompt_seconds=self._stats.prompt_seconds))
        return {
            "timings": {name: reading[name] for name in reading if name.startswith("prompt_")}
            | {"cache_n": self._stats.cached_n, "draft_n_accepted": self._n_accepted}
            | {"predicted_n": self._n_tokens, "predicted_ms": round(1e3 * self._seconds, 3)}
            | {"predicted_per_second": round(self._n_tokens / self._seconds, 2) if self._seconds else 0.0}
        }
