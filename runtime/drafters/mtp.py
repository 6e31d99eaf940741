"""Drafts from the MTP layers in the target's own file, which only draft (DeepSeek-V3, arXiv 2412.19437)."""

from __future__ import annotations

from runtime.drafters.head import HeadDrafter
from runtime.drafters.registry import Cost, Needs, Registered


@Registered("mtp", Cost.PASS, Needs.HEAD, label="the model's own head", place=6)
class MtpDrafter(HeadDrafter):
    """A head that reads the target's last hidden state."""
