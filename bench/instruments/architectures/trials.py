"""Replies of a family with various drafters, and random rewinds of its cache; both are compared with what is plain.

Replies with plain decode, logits after rewinds with those of a fresh context.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from runtime.backends.contexts import open_backend
from runtime.backends.llama import LlamaBackend
from runtime.backends.model import LlamaModel
from runtime.core.draft import NO_DRAFT, Draft, Logits, Tokens, common_prefix
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


MAX_DRAFT, MAX_CUT, MAX_GROWTH = 12, 30, 60
N_BATCH = 512
ROUNDING = 0.1  # of the logits' standard deviation; a wrong token in the cache makes several times that
FIRST_WORD = 4  # token ids below are special in some vocabularies


@dataclass(slots=True)
class Rewinds:
    """The results of a walk. Differences are of logits, as shares of their standard deviation."""

    differences: list[float] = field(default_factory=list)  # of each row compared
    n_flips: int = 0  # rows with another likeliest token
    n_miscounted: int = 0  # passes whose number of decoded rows did not match `n_cached`
    n_again: int = 0  # rows decoded again, although the context shares them with the previous one
    n_passes: int = 0
    longest: int = 0  # most tokens of context and draft

    @property
    def worst(self) -> float:
        """The largest difference."""
        return max(self.differences)

    @property
    def again(self) -> float:
        """Rows decoded again, per pass."""
        return self.n_again / self.n_passes

    @property
    def is_right(self) -> bool:
        """Whether no trace of dropped tokens is left, and all decoded rows were predicted by `n_cached`."""
        return self.worst <= ROUNDING and not self.n_miscounted


def random_rewinds(path: Path, n_passes: int, n_ctx: int, n_first: int = 20, seed: int = 3) -> Rewinds:
    """Return the results of a walk from a context of `n_first` tokens; all contexts stay shorter than `n_ctx`."""
    model = LlamaModel(path)
    live, fresh = (open_backend(model, n_ctx, MAX_DRAFT + 1, N_BATCH) for _ in range(2))
    try:
        return Walk(live, fresh, n_first, seed).over(n_passes)
    finally:
        for each in (fresh, live, model):
            each.close()


class Walk:
    """A walk: `live` is rewound, `fresh` is emptied before every comparison."""

    def __init__(self, live: LlamaBackend, fresh: LlamaBackend, n_first: int, seed: int) -> None:
        self.live, self.fresh, self.rng, self.seen = live, fresh, np.random.default_rng(seed), Rewinds()
        self.held: Tokens = np.zeros(0, dtype=np.int32)  # tokens cached by the last pass
        self.context = self._tokens(n_first)
        for backend in (live, fresh):
            backend.set_threads(1, 1)

    def over(self, n_passes: int) -> Rewinds:
        """Run `n_passes` passes and return the results."""
        for _ in range(n_passes):
            draft, context = self._draft(), self.context
            logits = self._pass(context, draft)
            self._compare(context, draft, logits)
            self.context = self._next(draft, int(logits[0].argmax()))
        return self.seen

    def _tokens(self, n: int) -> Tokens:
        return self.rng.integers(FIRST_WORD, self.live.n_vocab, n).astype(np.int32)

    def _draft(self) -> Draft:
        """Return a random draft; none in every other pass, and for models that cannot reject drafts."""
        if not self.live.n_rewindable or self.rng.random() < 0.5:
            return NO_DRAFT
        return Draft(tuple(self._tokens(int(self.rng.integers(1, MAX_DRAFT + 1))).tolist()))

    def _pass(self, context: Tokens, draft: Draft) -> Logits:
        """Return the logits of a pass, and count its rows."""
        seen, before, n_cached = self.seen, self.live.n_decoded, self.live.n_cached(context)
        logits = self.live.forward(context, draft).copy()
        n_decoded = self.live.n_decoded - before
        n_shared = common_prefix(self.held, context[:-1])
        seen.n_passes += 1
        seen.n_miscounted += n_decoded != len(context) + len(draft) - n_cached
        seen.n_again += n_decoded - (len(context) + len(draft) - n_shared)
        self.held = np.concatenate([context, np.array(draft.tokens, dtype=np.int32)])
        seen.longest = max(seen.longest, len(self.held))
        return logits

    def _compare(self, context: Tokens, draft: Draft, logits: Logits) -> None:
        """Compare the row after the context, and the row after the draft."""
        for row in {0, len(draft)}:
            self.fresh.forward(self._tokens(1))  # drops the context from the cache
            expected = self.fresh.forward(self.held[: len(context) + row])[0]
            self.seen.differences.append(float(np.abs(logits[row] - expected).max() / expected.std()))
            self.seen.n_flips += int(logits[row].argmax() != expected.argmax())

    def _next(self, draft: Draft, likeliest: int) -> Tokens:
        """Return the context of the next pass: part of the draft and another token, or an edited context."""
        if draft.tokens:
            n_taken = int(self.rng.integers(0, len(draft) + 1))
            return np.concatenate([self.held[: len(self.context) + n_taken], self._tokens(1)])
        context = self._edited(likeliest)
        return context if len(context) < self.live.n_ctx - MAX_DRAFT else context[: self.live.n_ctx // 2]

    def _edited(self, likeliest: int) -> Tokens:
        """Return the context with one more token, with many more, cut, or with another token in its second half."""
        context, rng = self.context, self.rng
        match rng.integers(4):
            case 0:
                return np.append(context, np.int32(likeliest))
            case 1:
                return np.concatenate([context, self._tokens(int(rng.integers(1, MAX_GROWTH)))])
            case 2:
                return context[: max(2, len(context) - int(rng.integers(1, MAX_CUT)))]
        place = int(rng.integers(len(context) // 2, len(context)))
        return np.concatenate([context[:place], self._tokens(1), context[place + 1 :]])
