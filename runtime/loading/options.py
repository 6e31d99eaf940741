"""How a pair is to be run. Plain data."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.memory.footprint import DRAFT_WINDOW
from runtime.memory.pressure import USUAL, Thresholds
from runtime.speculative.control.tuning import TUNING


@dataclass(frozen=True, slots=True)
class Options:
    """None and the defaults leave it to measurement."""

    n_ctx: int | None = None
    drafters: tuple[str, ...] | None = None  # () = plain decode
    max_k: int = 31  # copies of a known text are as long: with the token before them two tiles of CPU kernels
    fixed_k: int | None = None
    threads: int | None = None
    exact: bool = False  # bit-identical kernels for K-quants as well
    is_exact_asked: bool = False  # by a person or a registry: then replies at temperature 0 have exact passes only
    fast: bool = False  # replies with a seed may use passes that round otherwise than plain decode
    without_gpu: bool = False  # compute on the processor alone, whatever else there is
    branches: int = 0  # side branches per draft token; all drafters' proposals then go to the target as one tree
    memory: Thresholds = USUAL  # when drafters are given up
    slots: int = 1  # conversations that are held, so that several replies can be made in turns
    prompt_bytes: int = 0  # of states of prompts that are kept on disk; 0: none
    rpc: tuple[str, ...] | None = None  # workers that take layers of the target; None: those that the pair names
    patience: float = 0.0  # seconds that workers may be away; then those that are there must do, if there are any
    draft_window: int = DRAFT_WINDOW  # tokens of the context that the draft model looks at

    @property
    def max_model_k(self) -> int:
        """Most draft tokens of what has to make each of them: a model, a head or a window."""
        return min(self.max_k, max(TUNING.policy_depth, self.fixed_k or 0))
