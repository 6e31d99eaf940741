"""Drafts from an EAGLE-3 head in a file of its own (Li et al., arXiv 2503.01840)."""

from __future__ import annotations

from runtime.drafters.head import HeadDrafter


class EagleDrafter(HeadDrafter):
    """A head on the inputs of three of the target's layers."""

    name = "eagle"
