"""Opens heads for a target: files of their own, or layers of the target's own file.

Every failure is a HeadError, and the target replies without a head. Knows backends, but not how they draft.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from runtime.backends.heads.early_exit import EarlyExitBackend
from runtime.backends.heads.head import HeadBackend
from runtime.backends.heads.llama_heads import AssistantBackend, DflashBackend, EagleBackend, MtpBackend
from runtime.backends.heads.state_head import open_state_head
from runtime.backends.llama import LlamaBackend
from runtime.backends.model import IdsOnly, LlamaModel
from runtime.backends.reloadable import Opener, ReloadableBackend
from runtime.core.backend import Backend, OnProgress
from runtime.core.errors import HeadError, ModelError
from runtime.loading.fit import PairSpec
from runtime.loading.opening import load
from runtime.loading.options import Options
from runtime.models.block_heads import DFLASH, block_of, layers_of
from runtime.models.facts import ModelFacts
from runtime.models.header import read_model_header
from runtime.models.heads import ASSISTANT, unfit
from runtime.models.mtp import is_apart
from runtime.models.own_heads import is_own

log = logging.getLogger(__name__)


@dataclass(slots=True)
class HeadSource:
    """The file of a head, used whenever it is opened: the pair's own, or one that was learned from it."""

    own: Path
    learned: Path | None = None


def open_head(
    target: LlamaBackend, file: HeadSource, spec: PairSpec | None, options: Options, on_progress: OnProgress
) -> ReloadableBackend:
    """Open a head that drafts from the target's hidden states; if a learned one cannot be opened, the pair's own.

    Raises HeadError.
    """
    target_facts = spec.target if spec else ModelFacts(read_model_header(target.model.path))
    n_opened = count()

    def opened(path: Path, stack: ExitStack, report: OnProgress) -> Backend:
        facts = head_facts(path, target_facts, target)
        if next(n_opened) and facts.architecture == ASSISTANT:
            raise HeadError("it would empty its target's cache, so it is used again after the next start")
        return opened_head(path, facts, target, options, stack, report)

    def opener(stack: ExitStack, report: OnProgress) -> Backend:
        if file.learned is not None:
            try:
                with ExitStack() as own:
                    backend = opened(file.learned, own, report)
                    stack.push(own.pop_all())
                    return backend
            except (ModelError, OSError) as error:
                log.warning("The learned head %s is not used: %s", file.learned, error)
                file.learned = None
        return opened(file.own, stack, report)

    return reloadable(target, opener, on_progress)


def opened_head(
    path: Path, facts: ModelFacts, target: LlamaBackend, options: Options, stack: ExitStack, report: OnProgress
) -> Backend:
    """Return the head in a file with these facts, which `stack` closes. Raises ModelError."""
    if is_own(facts):
        own = open_state_head(path, facts, target, max(1, options.slots), options.max_model_k)
        stack.callback(own.close)
        return own
    ids = IdsOnly(facts.architecture, facts.n_vocab) if facts.n_vocab else None
    head = load(path, "draft", report, exact=False, ids=ids, facts=facts, is_head=True, with_mtp=is_apart(facts))
    stack.callback(head.close)
    backend = head_context(target, head, facts, options)
    stack.callback(backend.close)
    return backend


def head_context(
    target: LlamaBackend, head: LlamaModel, facts: ModelFacts, options: Options
) -> HeadBackend | AssistantBackend:
    """Return the context for a head's architecture."""
    n_trails, room = max(1, options.slots), options.max_model_k
    if facts.architecture == ASSISTANT:
        return AssistantBackend(head, target, n_trails, room)
    if is_apart(facts):
        return MtpBackend(target, n_trails, room, head)
    if facts.architecture == DFLASH:
        return DflashBackend(head, target, block_of(facts), n_trails, room)
    return EagleBackend(head, target, layers_of(facts), n_trails, room)


def open_drafting_layers(target: LlamaBackend, options: Options, on_progress: OnProgress) -> ReloadableBackend:
    """Open the layers of the target's own file that draft from its last hidden state. Raises HeadError."""

    def opener(stack: ExitStack, report: OnProgress) -> HeadBackend:
        backend = MtpBackend(target, max(1, options.slots), options.max_model_k)
        stack.callback(backend.close)
        return backend

    return reloadable(target, opener, on_progress)


def reloadable(target: LlamaBackend, opener: Opener, on_progress: OnProgress) -> ReloadableBackend:
    """Open a head for a target whose states are in the order of tokens. Raises HeadError for another target."""
    if isinstance(target, EarlyExitBackend) or target.can_branch:
        raise HeadError("token trees and early exit leave the target's states out of order")
    try:
        return ReloadableBackend(opener, on_progress)
    except ModelError as error:
        raise HeadError(str(error)) from error


def head_facts(path: Path, wanted: ModelFacts, target: LlamaBackend) -> ModelFacts:
    """Return the facts in a head's header if it fits that target. Raises ModelError."""
    facts = ModelFacts(read_model_header(path))
    if clause := unfit(facts, wanted, path):
        raise ModelError(f"{path.name} is not a head for {target.model.path.name}: {clause}")
    return facts
