"""Drafts from a DFlash head in a file of its own (Chen et al., arXiv 2602.06036): a block of tokens from one pass."""

from __future__ import annotations

from runtime.drafters.head import BlockHeadDrafter
from runtime.drafters.registry import Cost, Needs, Registered


@Registered("dflash", Cost.PASS, Needs.HEAD, label="a trained head", place=7, file="a DFlash head")
class DflashDrafter(BlockHeadDrafter):
    """A head whose layers see the whole block at once."""
