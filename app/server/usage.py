"""The numbers of a reply: usage as OpenAI names it, timings as llama.cpp does.

Must not know how they are sent.
"""

from __future__ import annotations

from pydantic import BaseModel

from app.server.wire import Event
from runtime.engine.stats import Stats


class PromptTokensDetails(BaseModel):
    """How many of the prompt's tokens the cache held."""

    cached_tokens: int


class CompletionTokensDetails(BaseModel):
    """How many of the reply's tokens were predicted by the client, and how many were reasoning."""

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
    """Counts and milliseconds, with llama.cpp's names where it has them. The body has more than is promised here."""

    prompt_n: int
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
    """The body of Usage; `n_reasoning` of the reply's tokens were reasoning."""
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
    """The body of Timings, with the rates that llama.cpp's clients read."""
    prompt_ms, predicted_ms = 1e3 * stats.prompt_seconds, 1e3 * stats.decode_seconds
    return stats.timings() | {
        "prompt_per_token_ms": round(prompt_ms / max(1, stats.prompt_n), 3),
        "prompt_per_second": round(1e3 * stats.prompt_n / prompt_ms, 2) if prompt_ms else 0.0,
        "predicted_per_token_ms": round(predicted_ms / max(1, stats.predicted_n), 3),
    }
