"""Settings for running a pair. Plain data."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.core.limits import UNLIMITED, Limits
from runtime.core.pressure import USUAL, Thresholds
from runtime.loading.footprint import DRAFT_WINDOW
from runtime.speculative.control.tuning import TUNING


@dataclass(frozen=True, slots=True)
class Options:
    """The settings; None and the defaults leave a choice to measurement."""

    n_ctx: int | None = None
    drafters: tuple[str, ...] | None = None  # () = plain decode
    max_k: int = 31  # longest draft, of copied text: with the token before it, two tiles of CPU kernels
    fixed_k: int | None = None
    threads: int | None = None
    exact: bool = False  # bit-identical kernels for K-quants as well
    is_exact_asked: bool = False  # by a user or a registry: then replies at temperature 0 have exact passes only
    fast: bool = False  # replies with a seed may use passes that round differently from plain decode
    without_gpu: bool = False  # compute on the processor alone, even if there is a GPU
    memory: Thresholds = USUAL  # levels at which drafters are closed
    reserved: int = 0  # bytes of free memory that other models will take
    is_whole: bool = False  # whether loading fails rather than leave out a part for lack of memory
    limits: Limits = UNLIMITED  # sequences that run and wait
    slots: int = 1  # conversations that are cached, so that several replies can take turns
    prompt_bytes: int = 0  # bytes of the prompt cache on disk; 0: none
    sees_images: bool = True  # whether a vision encoder is opened, if there is one
    reads_ahead: bool = True  # whether expected prompts are read while there is nothing else to do
    rpc: tuple[str, ...] | None = None  # workers that take layers of the target; None: those that the pair names
    worker_timeout: float = 0.0  # seconds to wait for missing workers; then the available ones are used, if any
    draft_window: int = DRAFT_WINDOW  # tokens of the context that the draft model reads

    @property
    def max_model_k(self) -> int:
        """Longest draft of a drafter that computes each token: a model, a head or a window."""
        return min(self.max_k, max(TUNING.policy_depth, self.fixed_k or 0))
