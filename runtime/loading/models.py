"""Opens models and the contexts that need more than a size: a target that can exit early, a draft model whose memory
can be given up.

Knows the pair's wishes and what was found at earlier starts; how passes are made is the backends'.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from runtime.backends.early_exit import EarlyExitBackend
from runtime.backends.llama import LlamaBackend
from runtime.backends.model import IdsOnly, LlamaModel
from runtime.backends.nodes import EarlyExitError
from runtime.backends.reloadable import Releasable
from runtime.backends.vocab import HeaderVocab, compare_vocabularies
from runtime.core.errors import ModelError, RoomError
from runtime.drafters.layerskip import settle
from runtime.loading.options import OnProgress, Options
from runtime.loading.profile import Remembered
from runtime.memory.footprint import ALL_LAYERS, DRAFT_BATCH, Wish, draft_context
from runtime.models.facts import ModelFacts
from runtime.models.header import read_model_header
from runtime.models.registry import Pair


def open_early_exit(target: LlamaModel, pair: Pair, options: Options, n_ctx: int) -> EarlyExitBackend:
    """It exits after the pair's layer, the file's, or the one that pays best here. Raises EarlyExitError."""
    if options.branches:
        raise EarlyExitError("token trees leave the cache out of order")
    backend = EarlyExitBackend(target, n_ctx, options.max_k + 1)
    said = target.metadata("slipstream.exit_layer")
    layer = pair.exit_layer or (int(said) if said.isdigit() else 0)
    try:
        if problem := settle(
            backend, layer, Remembered(pair.target, backend, options).memo("early exit", options.max_k, layer)
        ):
            raise EarlyExitError(problem)
    except BaseException:
        backend.close()
        raise
    return backend


def open_draft(
    target: LlamaModel, path: Path, wish: Wish | None, n_ctx: int, options: Options, on_progress: OnProgress
) -> Releasable:
    """A draft model in a context that need not grow with the target's of `n_ctx` tokens.

    Raises VocabError, RoomError, ModelError.
    """
    # Read already; opened again, the file may be another
    headers = [(wish.target, wish.draft)] if wish and wish.draft else []

    def opens(stack: ExitStack, report: OnProgress) -> LlamaBackend:
        ids = shared_ids(target.path, path, headers.pop() if headers else None)
        draft = load(path, "draft", report, exact=False, ids=ids)
        stack.callback(draft.close)
        if ids is None:
            compare_vocabularies(target.vocab, draft.vocab, target.path.name, path.name)
        try:
            backend = LlamaBackend(
                draft, draft_context(n_ctx, options.draft_window, options.max_k, draft.n_ctx_train), 1, DRAFT_BATCH
            )
        except ModelError as error:
            raise RoomError(str(error)) from error
        stack.callback(backend.close)
        return backend

    return Releasable(opens, on_progress)


def shared_ids(target: Path, draft: Path, facts: tuple[ModelFacts, ModelFacts] | None = None) -> IdsOnly | None:
    """The draft's ids, which by the headers mean what the target's do; None where headers do not tell.

    Raises VocabError.
    """
    try:
        ours, theirs = facts or (ModelFacts(read_model_header(target)), ModelFacts(read_model_header(draft)))
    except (ModelError, OSError):
        return None  # the library will say more when it loads them
    if not theirs.n_vocab:
        return None
    compare_vocabularies(HeaderVocab(ours.header), HeaderVocab(theirs.header), target.name, draft.name)
    return IdsOnly(theirs.architecture, theirs.n_vocab)


def load(
    path: Path,
    what: str,
    on_progress: OnProgress,
    exact: bool,
    gpu_layers: int = ALL_LAYERS,
    ids: IdsOnly | None = None,
) -> LlamaModel:
    """Raises KeyboardInterrupt where the progress was answered with no."""
    stopped = False

    def report(share: float) -> bool:
        nonlocal stopped
        stopped = not on_progress(what, share)
        return not stopped

    try:
        return LlamaModel(path, report, gpu_layers, exact, ids)
    except ModelError:
        if stopped:
            raise KeyboardInterrupt from None
        raise
