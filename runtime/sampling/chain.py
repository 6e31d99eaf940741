"""The samplers of a reply in their order: each changes the logits of the tokens that are left, or leaves some out.

Knows a row and the place of the token; knows no drafts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from runtime.core.draft import Distribution, Logits, Path, Tokens, certain
from runtime.core.rare_sampling import RareSampling
from runtime.sampling import candidates
from runtime.sampling.candidates import Candidates
from runtime.sampling.logits import Row, lead
from runtime.sampling.settings import Sampling

SURE = 0.99  # share of a token from which on it is the most typical one in any vocabulary
LOGIT_STEPS = ("penalties", "dry")  # samplers that change logits by the tokens before

Change = Callable[[Logits, "TokenPlace"], None]  # changes logits [n_vocab] in place


@dataclass(frozen=True, slots=True)
class TokenPlace:
    """The place of the token to be chosen: after `path`, which follows the text tokens of a `context` [n]."""

    context: Tokens
    path: Path
    coin: Callable[[], float]  # returns the place's random number from 0 to 1
    limit: float = math.inf  # on the token's surprise, in bits

    def recent(self, n: int) -> Tokens:
        """Return the last `n` tokens; all of them for -1."""
        n = len(self.context) + len(self.path) if n < 0 else n
        before = self.context[max(0, len(self.context) + len(self.path) - n) :]
        return np.concatenate([before, np.array(self.path, dtype=np.int32)])[-n:] if self.path else before


Step = Callable[[Candidates, TokenPlace], None]


class Chain:
    """The samplers of one reply, in their order."""

    def __init__(self, sampling: Sampling, changes: dict[str, Change]) -> None:
        """`changes` has those of the penalties that are on, by the name of their sampler."""
        names = sampling.rare.order
        n_first = next((i for i, name in enumerate(names) if name not in LOGIT_STEPS), len(names))
        self.first = [changes[name] for name in names[:n_first] if name in changes]  # before all that leaves out
        steps = [step_of(name, sampling, changes) for name in names[n_first:]]
        self._steps = [step for step in steps if step]
        self._lead = sure_lead(sampling)

    def distribution(self, row: Row, place: TokenPlace) -> Distribution:
        """Return the distribution of the token at a place, by its row after the changes in `first`."""
        if self._lead is not None and (token := row.lone(lead(self._lead, len(row.logits)))) is not None:
            return certain(token)
        left = Candidates(row)
        for step in self._steps:
            step(left, place)
        return left.distribution()


def sure_lead(sampling: Sampling) -> Sampling | None:
    """Return settings by whose `lead` a token is the only one left; None if it may not be, for all its lead."""
    rare = sampling.rare
    if rare.mirostat or rare.samplers is not None:
        return None
    if rare.typical_p < 1:
        return Sampling(1.0, sampling.top_k, max(rare.typical_p, SURE), 0.0)
    return replace(sampling, temperature=1.0)  # which is applied last


def step_of(name: str, sampling: Sampling, changes: dict[str, Change]) -> Step | None:
    """Return what the sampler of this name does; None if it is off."""
    if name in LOGIT_STEPS:
        return partial(change_left, changes[name]) if name in changes else None
    if name == "mirostat":
        return lambda left, place: candidates.mirostat(left, place.limit)
    if name == "temperature":
        return temperature_step(sampling.temperature, sampling.rare)
    return cutting_step(name, sampling)


def temperature_step(temperature: float, rare: RareSampling) -> Step | None:
    """Return the step for a temperature, dynamic or not; None if it is off."""
    if rare.dynatemp_range > 0 and not rare.mirostat:
        least, most = max(0.0, temperature - rare.dynatemp_range), temperature + rare.dynatemp_range
        return lambda left, _: candidates.heat(
            left, candidates.dynamic(left.weights, least, most, rare.dynatemp_exponent)
        )
    return None if temperature == 1 else lambda left, _: candidates.heat(left, temperature)


def cutting_step(name: str, sampling: Sampling) -> Step | None:
    """Return the step of a sampler that leaves tokens out; None if it is off."""
    rare = sampling.rare
    steps: dict[str, tuple[bool, Step]] = {
        "top_n_sigma": (rare.top_n_sigma > 0, lambda left, _: candidates.top_n_sigma(left, rare.top_n_sigma)),
        "top_k": (sampling.top_k > 0, lambda left, _: candidates.top_k(left, sampling.top_k)),
        "typ_p": (rare.typical_p < 1, lambda left, _: candidates.typical(left, rare.typical_p)),
        "top_p": (sampling.top_p < 1, lambda left, _: candidates.top_p(left, sampling.top_p)),
        "min_p": (sampling.min_p > 0, lambda left, _: candidates.min_p(left, sampling.min_p)),
        "xtc": (rare.has_xtc, partial(toss, rare)),
    }
    is_on, step = steps[name]
    return step if is_on else None


def toss(rare: RareSampling, left: Candidates, place: TokenPlace) -> None:
    """Exclude the top choices if the place's coin says so."""
    if place.coin() <= rare.xtc_probability:
        candidates.xtc(left, rare.xtc_threshold)


def change_left(change: Change, left: Candidates, place: TokenPlace) -> None:
    """Change the logits of what is left by the tokens before."""
    left.cut()
    ids = np.arange(len(left.logits)) if left.ids is None else left.ids
    whole = np.zeros(int(ids.max()) + 1, dtype=left.logits.dtype)
    whole[ids] = left.logits
    change(whole, place)
    left.change(whole[ids])
    left.is_sorted = False
