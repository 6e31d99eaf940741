"""Drafts from the target's own first layers (Elhoushi et al., arXiv 2404.16710): no second model, no second cache.

How a target exits early is its backend's, after which layer is measured at load. Most models were not trained to: of
those the controller finds out that their drafts do not pay.
"""

from __future__ import annotations

from runtime.drafters.model import ModelDrafter
from runtime.drafters.registry import Cost, Needs, Registered


@Registered("layerskip", Cost.TARGET, Needs.EARLY_EXIT, label="the model's first layers", colour="warning", place=8)
class LayerSkipDrafter(ModelDrafter):
    """A draft model that happens to be part of the target."""

    spares_work = True
