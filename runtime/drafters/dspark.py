"""Drafts from a DSpark head: a DFlash block (arXiv 2602.06036) whose tokens also depend on the one before.

The head adds to each row of logits what usually follows the likeliest token of the row before (a Markov chain of low
rank). The library does so within the pass, so the rows depend on the context alone, as those of DFlash do.
"""

from __future__ import annotations

from runtime.drafters.head import BlockHeadDrafter
from runtime.drafters.registry import Cost, Needs, Registered


@Registered("dspark", Cost.PASS, Needs.HEAD, label="a trained head", place=7, file="a DSpark head")
class DsparkDrafter(BlockHeadDrafter):
    """A DFlash head with a Markov head, in one file."""
