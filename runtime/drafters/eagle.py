"""Drafts from an EAGLE-3 head in a file of its own (Li et al., arXiv 2503.01840)."""

from __future__ import annotations

from runtime.drafters.head import HeadDrafter
from runtime.drafters.registry import Cost, Needs, Registered


@Registered("eagle", Cost.PASS, Needs.HEAD, label="a trained head", place=5, file="an EAGLE-3 head")
class EagleDrafter(HeadDrafter):
    """A head that reads the inputs of three of the target's layers."""
