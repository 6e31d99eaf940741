"""Opens models, and the target's contexts that need more than a size: for early exit or for token trees.

Knows the pair's settings and the results of earlier starts; the backends run the passes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from runtime.backends import library
from runtime.backends.contexts import open_backend
from runtime.backends.heads.early_exit import EarlyExitBackend
from runtime.backends.heads.graph import EarlyExitError
from runtime.backends.llama import LlamaBackend
from runtime.backends.model import IdsOnly, LlamaModel
from runtime.core.backend import OnProgress
from runtime.core.errors import ModelError, SettingsError
from runtime.drafters.lookahead import MIN_ROWS, WindowShape, best_shape
from runtime.drafters.registry import described
from runtime.loading.exit_layer import settle
from runtime.loading.footprint import ALL_LAYERS
from runtime.loading.options import Options
from runtime.loading.planning import TARGET_BATCH
from runtime.loading.profile import PADDED, TargetProfile
from runtime.models.facts import ModelFacts
from runtime.models.registry import Pair
from runtime.speculative.control.costs import PassCosts
from runtime.speculative.control.reasons import Code, Reason


def open_target(
    target: LlamaModel, pair: Pair, options: Options, exits_early: bool, is_frugal: bool
) -> tuple[LlamaBackend, Reason | None]:
    """Open the target's context, with early exit if that is requested and possible; return it with the reason if not.

    Raises SettingsError where early exit was requested by name and is impossible.
    """
    lacking: Reason | None = None
    if exits_early and not is_frugal:
        try:
            return open_early_exit(target, pair, options), None
        except EarlyExitError as why:
            if "layerskip" not in pair.drafters:
                raise SettingsError(
                    f"The drafter 'layerskip' cannot run on {pair.target.name}, because {why}. Leave it out of "
                    "`--drafters`."
                ) from why
            lacking = Reason("architecture", f"guesses from {described('layerskip')} are left out, because {why}")
    return open_context(target, options, is_frugal), lacking


def open_context(
    target: LlamaModel, options: Options, is_frugal: bool = False, can_branch: bool = False
) -> LlamaBackend:
    """Open an ordinary context of the target; it has room for token trees only if needed, as that slows passes down."""
    n_ctx, n_rows = options.n_ctx or target.n_ctx_train, options.max_k + 1
    if library.has_gpu() and not target.is_recurrent:
        n_rows = max(n_rows, PADDED[0])
    return open_backend(target, n_ctx, n_rows, TARGET_BATCH, can_branch, is_frugal, options.slots)


def open_early_exit(target: LlamaModel, pair: Pair, options: Options) -> EarlyExitBackend:
    """Open a target that exits after the pair's layer, the file's, or the best-paying one. Raises EarlyExitError."""
    if target.adapters:
        raise EarlyExitError("its first layers cannot be used with LoRA adapters")
    backend = EarlyExitBackend(target, options.n_ctx or target.n_ctx_train, options.max_k + 1)
    named = target.metadata("slipstream.exit_layer")
    layer = pair.exit_layer or (int(named) if named.isdigit() else 0)
    try:
        cache = TargetProfile(pair.target, backend, options).cache("early exit", options.max_k, layer)
        if problem := settle(backend, layer, cache):
            raise EarlyExitError(problem)
    except BaseException:
        backend.close()
        raise
    return backend


def window_shape(costs: PassCosts, options: Options, backend: LlamaBackend) -> WindowShape | Reason:
    """Return the best window of the lookahead drafter for the costs of passes here, or why there is none.

    A fixed draft length gets the shape with the most tokens, at any cost.
    """
    if options.max_model_k < MIN_ROWS:
        return left_out("user", f"it needs a draft length of {MIN_ROWS} or more (`--max-k`)")
    if not backend.takes_trees:
        return left_out("architecture", "its trees need a cache that can be cut anywhere")
    if isinstance(backend, EarlyExitBackend):
        return left_out("user", f"its trees leave the cache out of order, which {described('layerskip')} need")
    if backend.shown.listener is not None:
        return left_out("user", "its trees leave the target's states out of order, which a head drafts from")
    n_rows = options.max_model_k + 1
    shape, gain = best_shape(costs.up_to(n_rows, 0) if options.fixed_k is None else [1.0] * n_rows)
    if gain > 1:
        return shape
    return left_out("cost", f"rows cost too much here: it would reach {gain:.2f} times plain decode at best")


def left_out(code: Code, why: str) -> Reason:
    """Return the reason why the lookahead drafter is unavailable."""
    return Reason(code, f"{described('lookahead')} is left out, because {why}")


def load(
    path: Path,
    what: str,
    on_progress: OnProgress,
    exact: bool,
    gpu_layers: int = ALL_LAYERS,
    ids: IdsOnly | None = None,
    facts: ModelFacts | None = None,
    is_head: bool = False,
    with_mtp: bool = False,
    workers: Sequence[str] = (),
) -> LlamaModel:
    """Load a model that writes text, or drafts. Raises as `stoppable` does, and ModelError for an embedding model."""
    rest = gpu_layers, exact, ids, facts, is_head, with_mtp, workers
    model = stoppable(what, on_progress, lambda report: LlamaModel(path, report, *rest))
    if model.pooling.is_pooled and not is_head:
        model.close()
        raise ModelError(
            f"{path.name} is an embedding model: Slipstream runs models that write text. Choose another GGUF here, and "
            "use this one with `slipstream serve`."
        )
    return model


def stoppable(what: str, on_progress: OnProgress, make: Callable[[Callable[[float], bool]], LlamaModel]) -> LlamaModel:
    """Return the model that `make` loads, given what reports its progress. Raises KeyboardInterrupt if `on_progress`
    returned False.
    """
    stopped = False

    def report(share: float) -> bool:
        nonlocal stopped
        stopped = not on_progress(what, share)
        return not stopped

    try:
        return make(report)
    except ModelError:
        if stopped:
            raise KeyboardInterrupt from None
        raise
