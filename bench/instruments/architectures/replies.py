"""Replies of a model with various drafters, for comparison with plain decode."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from runtime.engine import Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.models.registry import Pair

PROMPTS = ("hello", "hello world one two three. " * 12)  # the second is longer than any sliding window here


@dataclass(frozen=True, slots=True)
class Asked:
    """A request; `prediction` is for the drafter of that name."""

    prompt: str
    sampling: Sampling
    max_tokens: int
    prediction: str = ""


@dataclass(frozen=True, slots=True)
class FamilyReply:
    """A reply."""

    tokens: tuple[int, ...]
    text: str
    n_drafted: int
    n_accepted: int
    why_plain: str  # the code of the reason for plain decode; "" if there were drafts

    def is_as(self, other: FamilyReply) -> bool:
        """Return whether both replies are the same."""
        return (self.tokens, self.text) == (other.tokens, other.text)


def replies(path: Path, draft: Path | None, options: Options, asked: Iterable[Asked]) -> list[FamilyReply]:
    """Return the replies of a fresh engine, one after the other."""
    engine = LoadedEngine(Pair(path.stem, path, draft), options)
    try:
        return [reply(engine, each) for each in asked]
    finally:
        engine.close()


def reply(engine: LoadedEngine, asked: Asked) -> FamilyReply:
    """Return one whole reply."""
    chunks = list(engine.reply(asked.prompt, asked.sampling, asked.max_tokens, prediction=asked.prediction))
    stats = chunks[-1].stats
    assert stats is not None
    return FamilyReply(
        tuple(token for chunk in chunks for token in chunk.tokens),
        "".join(chunk.text for chunk in chunks),
        stats.draft_n,
        stats.draft_n_accepted,
        stats.reason.code if stats.reason else "",
    )


def requests(temperatures_and_seeds: Iterable[tuple[float, int]], max_tokens: int) -> list[Asked]:
    """Return every prompt with each temperature and seed."""
    samplings = [Sampling(temperature, seed=seed) for temperature, seed in temperatures_and_seeds]
    return [Asked(prompt, sampling, max_tokens) for prompt in PROMPTS for sampling in samplings]
