"""The numbers of a reply: usage under OpenAI's names, timings under llama.cpp's.

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
