"""The most that a draft model could save here: if even fully accepted drafts would not pay, it is not loaded.

Knows seconds and the measurements of earlier starts; knows no model.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

from runtime.loading.profile_cache import ProfileCache
from runtime.speculative.control.costs import PassCosts
from runtime.speculative.control.policy import best_case

# Number of starts in a row that must find it cannot pay before it is no longer opened, because one may have been slowed
# down. Every AGAIN-th start measures it again, because both may have been
AGREED, AGAIN = 2, 16


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of past starts: a draft token's time as a share of a plain pass's.

    `n_agreed` is the number of starts in a row that found it cannot pay.
    """

    share: float
    n_agreed: int
    why: str = ""  # in a sentence, with the times that the last of these starts measured


def why_never(costs: PassCosts, draft_seconds: float, max_k: int) -> str:
    """Return why drafts of up to `max_k` tokens cannot pay even if all were accepted; "" where they can.

    `draft_seconds` is the time of a draft token, `costs` those of the target's passes.
    """
    if not {1, 2, min(4, max_k + 1)} <= costs.widths(0).keys():
        return ""  # too little was measured, as for a model with long passes
    passes = costs.up_to(max_k + 1, 0)
    k, times = best_case(draft_seconds, draft_seconds, passes)
    if times > 1:
        return ""
    draft, check, plain = (1e3 * each for each in (draft_seconds, (passes[k] - passes[0]) / k, passes[0]))
    return (
        f"it cannot pay here at any acceptance rate: a draft token takes {draft:.3g} ms and checking one "
        f"{check:.3g} ms more, a plain token {plain:.3g} ms"
    )


def known_never(cache: ProfileCache, costs: PassCosts, max_k: int) -> str:
    """Return why it cannot pay by the agreed result of earlier starts and the present costs, and count this start.

    The reason has the times that were measured then. Return "" where that is open or must be measured again.
    """
    found = cache.read_as(Finding)
    if found is None or found.n_agreed < AGREED or found.n_agreed % AGAIN == 0 or not found.share > 0:
        return ""
    why = why_never(costs, found.share * costs.seconds(1, 0), max_k)
    if why:
        cache.write(asdict(replace(found, n_agreed=found.n_agreed + 1)))
    return found.why if why and found.why else why


def found_never(cache: ProfileCache, costs: PassCosts, draft_seconds: float, max_k: int) -> str:
    """Return why it cannot pay by this start's measurement, and cache the result; "" where it can."""
    why, before = why_never(costs, draft_seconds, max_k), cache.read_as(Finding)
    n_agreed = 1 + (before.n_agreed if before else 0) if why else 0
    cache.write(asdict(Finding(draft_seconds / costs.seconds(1, 0), n_agreed, why)))
    return why
