"""A random model whole and cut, in backends with every kind of cache, and a random walk that compares them."""

from __future__ import annotations

import llama_cpp.llama_cpp as lib
import numpy as np

from bench.instruments.shapes import Shape
from runtime.backends.heads.early_exit import EarlyExitBackend
from runtime.backends.llama import LlamaBackend
from runtime.backends.model import GGML_TYPES, LlamaModel
from runtime.core.draft import Draft, Logits

SHAPE = Shape(width=64, layers=6, heads=2, kv_heads=1, ffn=128, vocab=512)
EXITS, MOST, N_CTX = (2, 4), 8, 600
Q8, F16, BF16 = lib.GGML_TYPE_Q8_0, lib.GGML_TYPE_F16, GGML_TYPES["BF16"]
FLASH, PLAIN = lib.LLAMA_FLASH_ATTN_TYPE_ENABLED, lib.LLAMA_FLASH_ATTN_TYPE_DISABLED
# At any length of context, for every width
EXACT = {"Q8_0, flash": (Q8, Q8, FLASH), "BF16, flash": (BF16, BF16, FLASH)}
CACHES = {
    **EXACT,
    "F16, flash": (F16, F16, FLASH),
    "BF16": (BF16, BF16, PLAIN),
    "F16": (F16, F16, PLAIN),
    "Q8_0 keys": (Q8, F16, PLAIN),
}
# By which a plain target differs from itself at another width (BF16: where the processor multiplies it); confused rows
# differ by more than 1.
ROUNDING = {"BF16": 0.3, "F16": 0.3, "Q8_0 keys": 0.3}
# Tokens, up to which the other caches do not round otherwise in prefill
SHORT = 48


class WithCache:
    """Chooses the kind of cache, in front of a backend's class."""

    def __init__(self, model: LlamaModel, cache: str) -> None:
        self.cache = CACHES[cache]
        super().__init__(model, N_CTX, n_rows=MOST + 1, n_batch=64)  # type: ignore[call-arg]
        self.set_threads(1, 1)  # type: ignore[attr-defined]

    def _params(self, n_ctx: int) -> lib.llama_context_params:
        params = super()._params(n_ctx)  # type: ignore[misc]
        params.type_k, params.type_v, params.flash_attn_type = self.cache
        return params


class Full(WithCache, LlamaBackend):
    pass


class Early(WithCache, EarlyExitBackend):
    pass


class Backends:
    """A target that exits early, the same without, and its first layers alone, all with one kind of cache."""

    def __init__(self, models: dict[int, LlamaModel], cache: str) -> None:
        self.early, self.full = Early(models[SHAPE.layers], cache), Full(models[SHAPE.layers], cache)
        self.pruned = {layers: Full(models[layers], cache) for layers in EXITS}
        self.early.exit_at(EXITS[0])
        self.early.reuses, self.rounding = True, ROUNDING.get(cache, 0.0)

    def close(self) -> None:
        for backend in (self.early, self.full, *self.pruned.values()):
            backend.close()


def some(rng: np.random.Generator, n: int) -> list[int]:
    return rng.integers(0, SHAPE.vocab, n).tolist()


def array(tokens: list[int]) -> np.ndarray:
    return np.array(tokens, dtype=np.int32)


class Walk:
    """A random conversation with a target that is asked early and fully in any order; every answer is compared."""

    def __init__(self, backends: Backends, seed: int, longest: int) -> None:
        self.all, self.rng, self.longest = backends, np.random.default_rng(seed), longest
        self.context = some(self.rng, int(self.rng.integers(1, longest)))

    def step(self) -> None:
        drafted = self.draft_early()
        kinds = (
            drafted,
            drafted[:-1],
            [*drafted, *some(self.rng, 1)],
            [*drafted[:-1], *some(self.rng, 1)],
            some(self.rng, 2),
            [],
        )
        draft = kinds[int(self.rng.choice(len(kinds), p=[0.5, 0.1, 0.1, 0.1, 0.1, 0.1]))][:MOST]
        self.verify(Draft(tuple(draft)))
        self.context += [*draft[: int(self.rng.integers(0, len(draft) + 1))], *some(self.rng, 1)]
        if self.rng.random() < 0.2 or len(self.context) > self.longest:
            self.context = [*self.context[: int(self.rng.integers(1, self.longest))], *some(self.rng, 3)]
        if self.rng.random() < 0.1:
            self.all.early.exit_at(EXITS[int(self.rng.integers(0, len(EXITS)))])

    def draft_early(self) -> list[int]:
        """Token by token as a drafter asks, or several at once."""
        drafted = list[int]()
        for _ in range(int(self.rng.integers(0, MOST + 1))):
            more = Draft(tuple(some(self.rng, int(self.rng.random() < 0.1))))
            self.same(
                self.all.early.early.forward(array(self.context + drafted), more),
                self.all.pruned[self.all.early.exit_layer],
                drafted,
                more,
            )
            drafted += some(self.rng, 1)
        return drafted

    def verify(self, draft: Draft) -> None:
        self.same(self.all.early.forward(array(self.context), draft), self.all.full, [], draft)

    def same(self, got: Logits, reference: LlamaBackend, drafted: list[int], draft: Draft) -> None:
        difference = np.abs(got - reference.forward(array(self.context + drafted), draft)).max()
        assert difference <= self.all.rounding
