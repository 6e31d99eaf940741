"""What is known of a loaded pair, and does not change. Plain data; knows no model."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.engine.pooling import Pooling
from runtime.loading.exactness import Exactness


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """Constant facts of a loaded pair."""

    n_ctx: int
    n_ctx_train: int  # tokens of context that the model was trained on
    n_vocab: int
    n_embd: int  # dimension of an embedding
    n_bytes: int  # size of the target's weights
    template: str  # the chat template's source; "" when the model has none
    fit: str  # the configuration loaded into the free memory, in a sentence; "" if unknown
    left_out: str  # missing parts of the pair or options, and why, without a full stop; "": none
    exactness: Exactness
    is_reproducible: bool  # whether a reply with a seed has the same text with any drafter
    can_draft: bool  # whether this kind of model supports drafts
    # Whether to measure here if the layout of weights with which all passes round alike costs speed
    could_be_exact: bool
    has_gpu: bool  # whether there are devices with their own memory
    can_infill: bool  # whether the model was trained to fill in the middle
    n_needed: int = 0  # bytes of memory that the models and their contexts take by plan; 0: unknown
    is_short: bool = False  # whether memory was too short for all requested options
    shares_passes: bool = False  # whether several sequences can share a pass
    reads_ahead: bool = False  # whether expected prompts are read while there is nothing else to do
    upstream: str = ""  # the server that runs the model and has its tokenizer; "": the model is on this machine
    content: str = ""  # key of the content of the target's files; "" where another server has them
    tool_template: str = ""  # the source of the chat template for conversations with tools; "": the same one
    pooling: Pooling | None = None  # of an embedding or a reranking model; None: it writes text
    vision: str = ""  # the kind of its vision encoder; "": it cannot see images
    remark: str = ""  # what is no fault: a draft model that cannot pay, also in `left_out`, or has other words

    @property
    def template_with_tools(self) -> str:
        """The source of the chat template for conversations with tools."""
        return self.tool_template or self.template

    @property
    def faults(self) -> str:
        """`left_out` without its remark."""
        return self.left_out.replace(self.remark, "").strip("; ") if self.remark else self.left_out
