"""Drafts from the target's own first layers (Elhoushi et al., arXiv 2404.16710): no second model, no second cache.

The backend implements the early exit, and the exit layer is measured at load. Most models were not trained for early
exit: the controller then measures that their drafts do not pay.
"""

from __future__ import annotations

from runtime.drafters.model import ModelDrafter
from runtime.drafters.registry import Cost, Needs, Registered


@Registered("layerskip", Cost.TARGET, Needs.EARLY_EXIT, label="the model's first layers", colour="warning", place=8)
class LayerSkipDrafter(ModelDrafter):
    """A draft model that consists of the target's first layers."""

    spares_work = True
