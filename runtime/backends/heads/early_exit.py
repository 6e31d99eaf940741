"""LayerSkip inside a target's own context (Elhoushi et al., arXiv 2404.16710): drafts with its first layers and cache.

Knows tokens and logits: early_passes.py runs the passes. They are compared with others that skip nothing, because they
rely on the inside of llama.cpp's graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from runtime.backends.heads.early_passes import EarlyPasses, Steer
from runtime.backends.heads.graph import EarlyExitError
from runtime.backends.heads.trail import OnTarget
from runtime.backends.model import LlamaModel
from runtime.core.draft import NO_DRAFT, Draft, Logits, Tokens
from runtime.core.errors import ModelError

CHECKED = 16  # tokens before the rows that are compared
SEED = 20


@dataclass(frozen=True, slots=True)
class ExitCheck:
    """Result of the check at load: why early exit cannot draft ("": it can), and whether hidden rows can be reused."""

    problem: str = ""
    reuses: bool = False


class EarlyExitBackend(EarlyPasses):
    """A target whose first `exit_layer` layers also draft, through `early`.

    Raises EarlyExitError where that is impossible.
    """

    def __init__(self, model: LlamaModel, n_ctx: int, n_rows: int = 17, n_batch: int = 512) -> None:
        super().__init__(model, n_ctx, n_rows, n_batch)
        self.early = EarlyExit(self)

    def check(self) -> ExitCheck:
        """Compare early passes that skip layers with some that do not, and full passes before and after them.

        Runs a few passes of each kind.
        """
        k = self.n_rows - 1
        tokens = self._sample(k)
        self.reuses = False
        before = self._around(tokens, k, None)
        skipping, in_vain = (
            self._around(tokens, k, self.nodes.early),
            self._around(tokens, k, partial(self.nodes.early, skips=False)),
        )
        self.reuses = True
        reusing = self._around(tokens, k, self.nodes.early)
        self._clear()
        self.reuses = np.array_equal(reusing, skipping)
        is_right = np.array_equal(skipping, in_vain) and np.array_equal(skipping[k:], before)
        return ExitCheck(
            "" if is_right else "passes that skip layers give wrong results with this build of llama.cpp",
            self.reuses,
        )

    def narrow(self, n_words: int) -> None:
        """Compute only the first `n_words` in early passes from now on; the others become practically impossible.

        With 0, compute all words again. Raises EarlyExitError where the logits of those words would change.
        """
        self.nodes.head, k = None, self.n_rows - 1
        if not n_words:
            return
        tokens = self._sample(k)
        wide = self._around(tokens, k, self.nodes.early)
        self.nodes.head = self.nodes.head_of(n_words)
        try:
            few = self._around(tokens, k, self.nodes.early)
        except ModelError:
            few = wide[:0]
        self._clear()
        is_same = few.shape == wide.shape and np.array_equal(few[:k, :n_words], wide[:k, :n_words])
        if not is_same or not np.array_equal(few[k:], wide[k:]):
            self.nodes.head = None
            raise EarlyExitError("its head cannot be narrowed with this build of llama.cpp")

    def _sample(self, k: int) -> Tokens:
        """Return tokens for comparing passes: a context, `k` draft tokens and one more."""
        n = min(CHECKED, self.n_ctx - k - 1)
        return np.random.default_rng(SEED).integers(0, self.n_vocab, n + k + 1).astype(np.int32)

    def _around(self, tokens: Tokens, k: int, steer: Steer | None) -> Logits:
        """Return the logits of `k` early passes, if there is a `steer`, then of the draft, and of a pass after it.

        The draft is `k` of the `tokens`, all but the last.
        """
        n = len(tokens) - k - 1
        self._clear()
        self.forward(tokens[: n - 1])
        early = [self.forward_early(tokens[: n + i], steer=steer).copy() for i in range(k if steer else 0)]
        full = self.forward(tokens[:n], Draft(tuple(tokens[n:-1].tolist()))).copy()
        return np.concatenate([*early, full, self.forward(tokens)])


class EarlyExit(OnTarget):
    """The first layers as a model of their own, for a drafter: implements Backend.

    Its context and threads are the target's, which may continue without it.
    """

    def __init__(self, backend: EarlyExitBackend) -> None:
        self.backend, self.n_ctx, self.n_vocab = backend, backend.n_ctx, backend.n_vocab
        self.n_rewindable = backend.n_ctx

    def forward(self, context: Tokens, draft: Draft = NO_DRAFT, exact: bool = True) -> Logits:
        """See Backend."""
        return self.backend.forward_early(context, draft)

    def n_cached(self, context: Tokens, exact: bool = True) -> int:
        """See Backend."""
        return self.backend.n_cached_early(context)
