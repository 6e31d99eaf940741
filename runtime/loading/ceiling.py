"""The most that a draft model could save here: where even drafts that are always right would not pay, it is not loaded.

Knows seconds and what earlier starts measured; knows no model.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

from runtime.loading.profile_cache import ProfileCache
from runtime.speculative.control.costs import PassCosts
from runtime.speculative.control.policy import best_case

# Starts in a row that find it cannot pay, after which it is not even opened: one may have been held up. In one of so
# many it is measured again: both may have been
AGREED, AGAIN = 2, 16


@dataclass(frozen=True, slots=True)
class Finding:
    """What starts have found: a draft token's seconds as a share of a plain pass's, and how many starts in a row found
    that this cannot pay.
    """

    share: float
    n_agreed: int


def why_never(costs: PassCosts, draft_seconds: float, max_k: int) -> str:
    """Return why drafts of up to `max_k` tokens, of `draft_seconds` each, cannot pay beside passes of these `costs`
    even if all were accepted; "" where they can.
    """
    if not {1, 2, min(4, max_k + 1)} <= costs.widths(0).keys():
        return ""  # too little was measured, as of a model whose passes take long
    passes = costs.up_to(max_k + 1, 0)
    k, times = best_case(draft_seconds, draft_seconds, passes)
    if times > 1:
        return ""
    draft, check, plain = (1e3 * each for each in (draft_seconds, (passes[k] - passes[0]) / k, passes[0]))
    return (
        f"it cannot pay here, however often it is right: a draft token takes {draft:.3g} ms and checking one "
        f"{check:.3g} ms more, a plain token {plain:.3g} ms"
    )


def known_never(cache: ProfileCache, costs: PassCosts, max_k: int) -> str:
    """Return why it cannot pay by what earlier starts agreed upon, at what passes take now, and count this start with
    them; "" where that is open, or is to be measured again.
    """
    found = cache.read_as(Finding)
    if found is None or found.n_agreed < AGREED or found.n_agreed % AGAIN == 0 or not found.share > 0:
        return ""
    why = why_never(costs, found.share * costs.seconds(1, 0), max_k)
    if why:
        cache.write(asdict(replace(found, n_agreed=found.n_agreed + 1)))
    return why


def found_never(cache: ProfileCache, costs: PassCosts, draft_seconds: float, max_k: int) -> str:
    """Return why it cannot pay by what this start measured, and keep that for the next; "" where it can."""
    why, before = why_never(costs, draft_seconds, max_k), cache.read_as(Finding)
    n_agreed = 1 + (before.n_agreed if before else 0) if why else 0
    cache.write(asdict(Finding(draft_seconds / costs.seconds(1, 0), n_agreed)))
    return why
