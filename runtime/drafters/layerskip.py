"""Drafts from the target's own first layers (Elhoushi et al., arXiv 2404.16710): no second model, no second cache.

Knows a target that can exit early; how it does that is its backend's. Most models were not trained to: of those the
controller finds out that their drafts do not pay.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from runtime.core.backend import Backend
from runtime.core.draft import NO_DRAFT, Draft, Logits, Tokens
from runtime.drafters.model import ModelDrafter

SAMPLE = 32  # tokens of the target's own on which exit layers are compared
CANDIDATES = 6  # exit layers that are compared
DRAFTED = 3  # tokens of the drafts by which they are


class LayerSkipDrafter(ModelDrafter):
    """A draft model that happens to be part of the target."""

    name = "layerskip"


class Check(Protocol):
    """What a target found out about its early passes."""

    @property
    def problem(self) -> str:
        """Why nothing may be drafted; "" when all is well."""

    @property
    def reuses(self) -> bool:
        """Can what an early pass computed be used again to verify?"""


class ExitsEarly(Protocol):
    """A target that can exit early; `early` is its first layers with the head."""

    n_ctx: int
    n_rows: int
    n_layers: int
    reuses: bool

    @property
    def early(self) -> Backend:
        """Its first layers with the head."""

    def forward(self, context: Tokens, draft: Draft = NO_DRAFT) -> Logits:
        """See Backend."""

    def exit_at(self, layer: int) -> None:
        """Drafts from the first `layer` layers from now on."""

    def check(self) -> Check:
        """Are early passes right, and verifying after them?"""


class Memo(Protocol):
    """What was found the last time."""

    def read(self) -> dict[str, Any]:
        """Empty when nothing was."""

    def write(self, values: dict[str, Any]) -> None:
        """Keeps it."""


def settle(target: ExitsEarly, layer: int, memo: Memo) -> str:
    """Has the target exit after `layer` layers, or where it pays best if that is 0; returns why it must not, or ""."""
    known = memo.read()
    if not known.keys() >= {"layer", "problem", "reuses"}:
        found = layer or best_exit(target)
        target.exit_at(found)
        check = target.check()
        known = {"layer": found, "problem": check.problem, "reuses": check.reuses}
        memo.write(known)
    target.exit_at(int(known["layer"]))
    target.reuses = bool(known["reuses"])
    return str(known["problem"])


def best_exit(target: ExitsEarly) -> int:
    """The exit layer whose drafts pay best on a text of the target's own, by agreement and by seconds."""
    text = own_text(target)
    layers = sorted({max(1, round(target.n_layers * i / (2 * CANDIDATES))) for i in range(1, CANDIDATES + 1)})
    verify = seconds(lambda: target.forward(text[:1], Draft((0,) * min(DRAFTED, target.n_rows - 1))))
    worth: dict[int, float] = {}
    for layer in layers:
        target.exit_at(layer)
        agreement = agreement_with(text, target)
        tokens = sum(agreement**i for i in range(DRAFTED + 1))
        worth[layer] = tokens / (DRAFTED * seconds(lambda: target.early.forward(text[:2])) + verify)
    return max(layers, key=worth.__getitem__)


def own_text(target: ExitsEarly) -> Tokens:
    """What the target says, greedily, after token 0."""
    text: Tokens = np.zeros(min(SAMPLE, target.n_ctx), dtype=np.int32)
    for n in range(1, len(text)):
        text[n] = target.forward(text[:n])[0].argmax()
    return text


def agreement_with(text: Tokens, target: ExitsEarly) -> float:
    """The share of the target's own tokens that its first layers would have said."""
    right = 0
    for start in range(1, len(text), target.n_rows):
        said = text[start : start + target.n_rows]
        early = target.early.forward(text[:start], Draft(tuple(said[:-1].tolist())))
        right += int((early.argmax(axis=1) == said).sum())
    return right / (len(text) - 1)


def seconds(run: Callable[[], object]) -> float:
    """Of the fastest of a few runs."""
    taken = []
    for _ in range(4):
        began = time.perf_counter()
        run()
        taken.append(time.perf_counter() - began)
    return min(taken)
