"""A draft model of another vocabulary, over the target's token ids: TranslatedBackend, TranslatedSharedBackend.

Contexts are translated, and the logits of shared words are put where the target has them; words that the draft model
lacks are practically impossible (TLI, arXiv 2502.05202). Knows the Backend protocol.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from runtime.backends.llama import LlamaBackend
from runtime.backends.shared import SharedBackend
from runtime.backends.translation import SharedWords, Translator
from runtime.backends.trimmed import NEVER
from runtime.backends.vocab import Vocab
from runtime.core.backend import Backend, Flag
from runtime.core.draft import NO_DRAFT, Adapters, Draft, Logits, PassInput, Tokens, seen
from runtime.core.errors import VocabError

LEAST = 0.25  # share of usual text below which a draft model is refused: few drafts would have two tokens


class TranslatedBackend:
    """A draft model's context over the tokens of a target: implements Backend.

    `room` is the number of tokens of the draft model's context that are reserved for draft tokens. Raises VocabError
    where the vocabularies share too few words.
    """

    def __init__(self, inner: LlamaBackend, target: Vocab, room: int) -> None:
        self.inner, self.n_vocab, self._n_seen = inner, target.n_vocab, inner.n_ctx - room
        self.n_ctx, self.n_rewindable = inner.n_ctx, inner.n_rewindable
        self.words = SharedWords(target, inner.model.vocab)
        if self.words.share < LEAST:
            raise VocabError(f"only {self.words.share:.0%} of the words of usual text are in both vocabularies")
        self.translate = Translator(self.words, target, inner.model.vocab)
        self._wide: Logits = np.full((1, self.n_vocab), NEVER, dtype=np.float32)

    def in_draft(self, context: Tokens) -> Tokens:
        """Return the draft model's tokens [1 or more] for a `context` of the target's [n]."""
        found = self.translate(context).draft
        return seen(found, self._n_seen) if len(found) else np.array([max(0, self.inner.model.vocab.eos)], np.int32)

    def forward(self, context: Tokens, draft: Draft = NO_DRAFT, exact: bool = True) -> Logits:
        """Return the logits [1 + len(draft), n_vocab], one pass for each row, as drafts are made token by token."""
        contexts = [context, *(np.append(context, draft.tokens[: i + 1]).astype(np.int32) for i in range(len(draft)))]
        for row, each in enumerate(contexts):
            self._put(row, self.inner.forward(self.in_draft(each), exact=exact))
        return self._wide[: len(contexts)]

    def _put(self, row: int, logits: Logits) -> None:
        """Put the draft model's logits [1, its words] into a row over the target's words."""
        if row >= len(self._wide):
            self._wide = np.concatenate([self._wide, np.full_like(self._wide[:1], NEVER)])
        self._wide[row, self.words.targets] = logits[0, self.words.drafts]

    def n_cached(self, context: Tokens, exact: bool = True) -> int:
        """Return the number of cached leading tokens of `context`, if words are as long in both vocabularies."""
        ids = self.in_draft(context)
        return max(0, len(context) - len(ids) + self.inner.n_cached(ids, exact))

    def resume(self, context: Tokens, exact: bool = True) -> None:
        """See Backend."""
        self.inner.resume(self.in_draft(context), exact)

    def set_slots(self, n: int) -> None:
        """See Backend."""
        self.inner.set_slots(n)

    def set_threads(self, one: int, many: int) -> None:
        """See Backend."""
        self.inner.set_threads(one, many)

    def close(self) -> None:
        """Free the context."""
        self.inner.close()


class TranslatedSharedBackend(TranslatedBackend):
    """A draft model's context that several conversations share: implements SharedPasses."""

    inner: SharedBackend

    def __init__(self, inner: SharedBackend, target: Vocab, room: int) -> None:
        super().__init__(inner, target, room)
        self.n_seats = inner.n_seats

    @property
    def slots(self) -> int:
        """See TargetBackend."""
        return self.inner.slots

    @property
    def stop_flag(self) -> Flag:
        """See TargetBackend."""
        return self.inner.stop_flag

    def use(self, adapters: Adapters) -> None:
        """See TargetBackend; adapters are the target's."""

    def fits(self, lengths: Iterable[int]) -> bool:
        """Return whether conversations of these lengths fit together, if words are as long in both vocabularies."""
        return self.inner.fits(lengths)

    def forward_all(self, asked: Sequence[PassInput]) -> list[Logits]:
        """Return the logits [1, n_vocab] after each of several contexts without drafts, from one pass if they fit."""
        contexts = [PassInput(self.in_draft(each.context), exact=each.exact) for each in asked]
        if self.inner.fits(len(each.context) for each in contexts):
            for row, logits in enumerate(self.inner.forward_all(contexts)):
                self._put(row, logits)
        else:
            for row, each in enumerate(contexts):
                self._put(row, self.inner.forward(each.context, exact=each.exact))
        return [self._wide[row : row + 1] for row in range(len(asked))]


def translated(draft: LlamaBackend, target: Vocab, room: int) -> TranslatedBackend:
    """Return a draft model's context over the target's tokens. Raises VocabError."""
    if isinstance(draft, SharedBackend):
        return TranslatedSharedBackend(draft, target, room)
    return TranslatedBackend(draft, target, room)


def own_context(backend: Backend) -> LlamaBackend:
    """Return the context in which a draft model's tokens are decoded."""
    found = backend.inner if isinstance(backend, TranslatedBackend) else backend
    assert isinstance(found, LlamaBackend)
    return found


def writable_share(backend: Backend) -> float:
    """Return the share of the target's usual text that a draft model can write, 0 to 1: the highest acceptance rate."""
    return backend.words.share if isinstance(backend, TranslatedBackend) else 1.0
