"""MTP (DeepSeek-V3, arXiv 2412.19437, section 2.2): layers at the end of the target's own file that only draft.

They take the target's last hidden state and the token after it, in a second context over the same weights.
"""

from __future__ import annotations

import llama_cpp.llama_cpp as lib

from runtime.backends.heads.head import HeadBackend
from runtime.backends.llama import LlamaBackend
from runtime.models.heads import FEW_ROWS


class MtpBackend(HeadBackend):
    """The drafting layer of a target that was loaded with it."""

    offset = 1
    few_rows = FEW_ROWS
    context_type = lib.LLAMA_CONTEXT_TYPE_MTP

    def __init__(self, target: LlamaBackend, n_trails: int, room: int) -> None:
        super().__init__(target.model, target, target.model.n_embd, n_trails, room)
        target.shown.show((), self.feed)
