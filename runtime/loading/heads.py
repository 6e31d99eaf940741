"""Opens heads beside a target: files of their own, or layers of the target's own file.

Whatever is wrong with one is a HeadError, and the target answers without it. Knows backends; how they draft is theirs.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from runtime.backends.dflash import DflashBackend
from runtime.backends.eagle import EagleBackend
from runtime.backends.early_exit import EarlyExitBackend
from runtime.backends.head import HeadBackend
from runtime.backends.llama import LlamaBackend
from runtime.backends.model import IdsOnly, LlamaModel
from runtime.backends.mtp import MtpBackend
from runtime.backends.reloadable import Opener, ReloadableBackend
from runtime.core.backend import OnProgress
from runtime.core.errors import HeadError, ModelError
from runtime.loading.opening import load
from runtime.loading.options import Options
from runtime.memory.fit import PairSpec
from runtime.models.facts import ModelFacts
from runtime.models.header import read_model_header
from runtime.models.heads import DFLASH, block_of, layers_of, unfit

log = logging.getLogger(__name__)


@dataclass(slots=True)
class HeadSource:
    """Where a head is read from whenever it is opened: the pair's own file, or one that was learned from it."""

    own: Path
    learned: Path | None = None


def open_head(
    target: LlamaBackend, file: HeadSource, spec: PairSpec | None, options: Options, on_progress: OnProgress
) -> ReloadableBackend:
    """A head that drafts from the target's hidden states; where a learned one cannot be opened, the pair's own.

    Raises HeadError.
    """

    def opened(path: Path, stack: ExitStack, report: OnProgress) -> HeadBackend:
        facts = head_facts(path, spec.target if spec else ModelFacts(read_model_header(target.model.path)), target)
        ids = IdsOnly(facts.architecture, facts.n_vocab) if facts.n_vocab else None
        head = load(path, "draft", report, exact=False, ids=ids, facts=facts, is_head=True)
        stack.callback(head.close)
        backend = beside(target, head, facts, options)
        stack.callback(backend.close)
        return backend

    def opener(stack: ExitStack, report: OnProgress) -> HeadBackend:
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


def beside(target: LlamaBackend, head: LlamaModel, facts: ModelFacts, options: Options) -> HeadBackend:
    """The context of a head's kind."""
    n_trails, room = max(1, options.slots), options.max_model_k
    if facts.architecture == DFLASH:
        return DflashBackend(head, target, block_of(facts), n_trails, room)
    return EagleBackend(head, target, layers_of(facts), n_trails, room)


def open_drafting_layers(target: LlamaBackend, options: Options, on_progress: OnProgress) -> ReloadableBackend:
    """The layers of the target's own file that draft from its last hidden state. Raises HeadError."""

    def opener(stack: ExitStack, report: OnProgress) -> HeadBackend:
        backend = MtpBackend(target, max(1, options.slots), options.max_model_k)
        stack.callback(backend.close)
        return backend

    return reloadable(target, opener, on_progress)


def reloadable(target: LlamaBackend, opener: Opener, on_progress: OnProgress) -> ReloadableBackend:
    """Opens it for a target whose passes follow one another. Raises HeadError."""
    if isinstance(target, EarlyExitBackend) or target.can_branch:
        raise HeadError("token trees and early exit leave the target's states out of order")
    try:
        return ReloadableBackend(opener, on_progress)
    except ModelError as error:
        raise HeadError(str(error)) from error


def head_facts(path: Path, wanted: ModelFacts, target: LlamaBackend) -> ModelFacts:
    """What a head's header says, where it is one for that target. Raises ModelError."""
    facts = ModelFacts(read_model_header(path))
    if clause := unfit(facts, wanted, path):
        raise ModelError(f"{path.name} is no head for {target.model.path.name}: {clause}")
    return facts
