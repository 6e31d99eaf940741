"""Opens models and the contexts that need more than a size: a target that can exit early, a reloadable draft model.

Knows what the pair asks for and what was found at earlier starts; how passes are made is the backends'.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from runtime.backends.contexts import open_backend
from runtime.backends.eagle import EagleBackend
from runtime.backends.early_exit import EarlyExitBackend
from runtime.backends.head import HeadBackend
from runtime.backends.llama import LlamaBackend
from runtime.backends.model import IdsOnly, LlamaModel, readable_facts
from runtime.backends.mtp import MtpBackend
from runtime.backends.nodes import EarlyExitError
from runtime.backends.reloadable import ReloadableBackend
from runtime.backends.trimmed import open_trimmed
from runtime.backends.vocab import HeaderVocab, compare_vocabularies
from runtime.core.backend import OnProgress
from runtime.core.errors import DraftError, HeadError, ModelError, NoMemoryError, SettingsError
from runtime.drafters.lookahead import MIN_ROWS, WindowShape, best_shape
from runtime.loading.exit_layer import settle
from runtime.loading.options import Options
from runtime.loading.planning import TARGET_BATCH
from runtime.loading.profile import TargetProfile
from runtime.memory.fit import PairSpec, draft_context
from runtime.memory.footprint import ALL_LAYERS, DRAFT_BATCH
from runtime.models.facts import ModelFacts
from runtime.models.header import read_model_header
from runtime.models.heads import layers_of, unfit
from runtime.models.registry import Pair
from runtime.models.trimmed import Trim, trim_of
from runtime.speculative.control.costs import PassCosts
from runtime.speculative.control.reasons import Code, Reason


class Refused(NamedTuple):
    """Why a drafter cannot be had."""

    code: Code
    why: str


def open_target(
    target: LlamaModel, pair: Pair, options: Options, exits_early: bool, is_frugal: bool
) -> tuple[LlamaBackend, Reason | None]:
    """The target's context, one that can exit early where that is wanted and possible; else the reason why not.

    Raises SettingsError where early exit was asked for by name and cannot be.
    """
    left_out: Reason | None = None
    if exits_early and not is_frugal:
        try:
            return open_early_exit(target, pair, options), None
        except EarlyExitError as why:
            if "layerskip" not in pair.drafters:
                raise SettingsError(
                    f"The drafter 'layerskip' cannot run on {pair.target.name}, because {why}. Leave it out of "
                    "`--drafters`."
                ) from why
            left_out = Reason("architecture", f"the layerskip drafter is left out, because {why}")
    return open_context(target, options, options.branches > 0, is_frugal), left_out


def open_context(target: LlamaModel, options: Options, can_branch: bool, is_frugal: bool = False) -> LlamaBackend:
    """An ordinary context of the target, with room for token trees where they are wanted: it makes passes dearer."""
    n_ctx = options.n_ctx or target.n_ctx_train
    return open_backend(target, n_ctx, options.max_k + 1, TARGET_BATCH, can_branch, is_frugal, options.slots)


def open_early_exit(target: LlamaModel, pair: Pair, options: Options) -> EarlyExitBackend:
    """A target that exits after the pair's layer, the file's, or the one that pays best. Raises EarlyExitError."""
    if options.branches:
        raise EarlyExitError("token trees leave the cache out of order")
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


def window_shape(costs: PassCosts, options: Options, backend: LlamaBackend) -> WindowShape | Refused:
    """The window of the drafter lookahead that is best for what passes cost here.

    A fixed draft length asks for the shape with the most tokens, whatever that costs.
    """
    if options.max_k < MIN_ROWS:
        return Refused("user", f"it needs a draft length of {MIN_ROWS} or more (`--max-k`)")
    if not backend.takes_trees:
        return Refused("architecture", "its trees need a cache that can be cut anywhere")
    if isinstance(backend, EarlyExitBackend):
        return Refused("user", "its trees leave the cache out of order, which layerskip needs")
    if backend.is_heard:
        return Refused("user", "its trees leave the target's states out of order, which a head drafts from")
    n_rows = options.max_k + 1
    shape, gain = best_shape(costs.up_to(n_rows, 0) if options.fixed_k is None else [1.0] * n_rows)
    if gain > 1:
        return shape
    return Refused("cost", f"rows cost too much here: it promises {gain:.2f} times plain decode at best")


def open_draft(
    target: LlamaModel, path: Path, spec: PairSpec | None, options: Options, on_progress: OnProgress
) -> ReloadableBackend:
    """A draft model in a context that need not grow with the target's.

    Raises VocabError, NoMemoryError, ModelError.
    """
    # Read already; opened again, the file may be another
    headers = [(spec.target, spec.draft)] if spec and spec.draft else []

    def opener(stack: ExitStack, report: OnProgress) -> LlamaBackend:
        known = headers.pop() if headers else None
        trim = trim_of(known[1] if known else readable_facts(path))
        ids = trimmed_ids(target.path, path, trim) if trim else shared_ids(target.path, path, known)
        draft = load(path, "draft", report, exact=False, ids=ids, facts=known[1] if known else None)
        stack.callback(draft.close)
        if ids is None:
            compare_vocabularies(target.vocab, draft.vocab, target.path.name, path.name)
        n_target = options.n_ctx or target.n_ctx_train
        n_ctx = draft_context(n_target, options.draft_window, options.max_k, draft.n_ctx_train)
        try:
            backend = drafting_context(draft, trim, n_ctx, options.slots)
        except ModelError as error:
            raise error if isinstance(error, DraftError) else NoMemoryError(str(error)) from error
        stack.callback(backend.close)
        return backend

    return ReloadableBackend(opener, on_progress)


def drafting_context(draft: LlamaModel, trim: Trim | None, n_ctx: int, n_seats: int) -> LlamaBackend:
    """A draft model's context, over the target's tokens also where it is a copy with fewer words."""
    if trim is not None:
        return open_trimmed(draft, trim, n_ctx, 1, DRAFT_BATCH, n_seats)
    return open_backend(draft, n_ctx, 1, DRAFT_BATCH, n_seats=n_seats)


def open_head(
    target: LlamaBackend, path: Path, spec: PairSpec | None, options: Options, on_progress: OnProgress
) -> ReloadableBackend:
    """A head that drafts from the target's hidden states. Raises HeadError."""
    check_order(target)

    def opener(stack: ExitStack, report: OnProgress) -> HeadBackend:
        facts = head_facts(path, spec.target if spec else ModelFacts(read_model_header(target.model.path)), target)
        ids = IdsOnly(facts.architecture, facts.n_vocab) if facts.n_vocab else None
        head = load(path, "draft", report, exact=False, ids=ids, facts=facts, is_head=True)
        stack.callback(head.close)
        backend = EagleBackend(head, target, layers_of(facts), max(1, options.slots), options.max_k)
        stack.callback(backend.close)
        return backend

    try:
        return ReloadableBackend(opener, on_progress)
    except ModelError as error:
        raise HeadError(str(error)) from error


def open_drafting_layers(target: LlamaBackend, options: Options, on_progress: OnProgress) -> ReloadableBackend:
    """The layers of the target's own file that draft from its last hidden state. Raises HeadError."""
    check_order(target)

    def opener(stack: ExitStack, report: OnProgress) -> HeadBackend:
        backend = MtpBackend(target, max(1, options.slots), options.max_k)
        stack.callback(backend.close)
        return backend

    try:
        return ReloadableBackend(opener, on_progress)
    except ModelError as error:
        raise HeadError(str(error)) from error


def check_order(target: LlamaBackend) -> None:
    """Raises HeadError for a target whose passes do not follow one another."""
    if isinstance(target, EarlyExitBackend) or target.can_branch:
        raise HeadError("token trees and early exit leave the target's states out of order")


def head_facts(path: Path, wanted: ModelFacts, target: LlamaBackend) -> ModelFacts:
    """What a head's header says, where it is one for that target. Raises ModelError."""
    facts = ModelFacts(read_model_header(path))
    if clause := unfit(facts, wanted, path):
        raise ModelError(f"{path.name} is no head for {target.model.path.name}: {clause}")
    return facts


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


def trimmed_ids(target: Path, draft: Path, trim: Trim) -> IdsOnly:
    """The ids of a copy with fewer words, whose whole file has the target's. Raises DraftError, VocabError."""
    trim.check(draft)
    if shared_ids(target, trim.source) is None:
        raise DraftError(f"{trim.source}, of which {draft.name} is a smaller copy, cannot be read")
    return IdsOnly(ModelFacts(read_model_header(draft)).architecture, len(trim.kept))


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
) -> LlamaModel:
    """Raises KeyboardInterrupt where the progress was answered with no."""
    stopped = False

    def report(share: float) -> bool:
        nonlocal stopped
        stopped = not on_progress(what, share)
        return not stopped

    try:
        return LlamaModel(path, report, gpu_layers, exact, ids, facts, is_head, with_mtp)
    except ModelError:
        if stopped:
            raise KeyboardInterrupt from None
        raise
