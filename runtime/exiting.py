"""Opens a target in a context that can exit early, after the layer where that pays.

Knows the pair's wishes and what was found at earlier starts; how a pass exits early is its backend's.
"""

from __future__ import annotations

from runtime.backends.early_exit import EarlyExitBackend
from runtime.backends.gguf import LlamaModel
from runtime.backends.nodes import EarlyExitError
from runtime.drafters.layerskip import settle
from runtime.options import Options
from runtime.registry import Pair
from runtime.remembered import Remembered


def open_early_exit(target: LlamaModel, pair: Pair, options: Options, n_ctx: int) -> EarlyExitBackend:
    """It exits after the pair's layer, the file's, or the one that pays best here. Raises EarlyExitError."""
    if options.branches:
        raise EarlyExitError("token trees leave the cache out of order")
    backend = EarlyExitBackend(target, n_ctx, options.max_k + 1)
    said = target.metadata("slipstream.exit_layer")
    layer = pair.exit_layer or (int(said) if said.isdigit() else 0)
    try:
        if problem := settle(backend, layer, Remembered(pair.target, backend, options).memo("early exit", options.max_k, layer)):
            raise EarlyExitError(problem)
    except BaseException:
        backend.close()
        raise
    return backend
