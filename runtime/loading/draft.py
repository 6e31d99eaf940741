"""Opens the draft of a pair: a model of its own, a head on the target, or layers of the target's file.

If there is none, reports the reason. Knows the pair's settings and the memory plan; the drafters propose.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from runtime.backends.contexts import open_backend
from runtime.backends.llama import LlamaBackend
from runtime.backends.model import IdsOnly, LlamaModel, readable_facts
from runtime.backends.reloadable import ReloadableBackend
from runtime.backends.translated import TranslatedBackend, translated, writable_share
from runtime.backends.trimmed import open_trimmed
from runtime.core.backend import Backend, OnProgress
from runtime.core.errors import DraftError, HeadError, ModelError, NoMemoryError, UnknownKindError, VocabError
from runtime.drafters.registry import find
from runtime.loading.fit import LoadPlan, PairSpec, draft_context
from runtime.loading.footprint import DRAFT_BATCH
from runtime.loading.heads import HeadSource, open_drafting_layers, open_head
from runtime.loading.opening import load
from runtime.loading.options import Options
from runtime.loading.planning import HEADS, MODEL, MTP
from runtime.loading.probing import check, must_try
from runtime.models.drafting import HeaderVocab, are_alike, compare_vocabularies, why_undraftable
from runtime.models.facts import ModelFacts
from runtime.models.header import read_model_header
from runtime.models.heads import unfit
from runtime.models.mtp import NOT_KEPT, unkept_promises, why_no_mtp
from runtime.models.registry import Pair
from runtime.models.trimmed import Trim, trim_of
from runtime.speculative.control.reasons import Reason


@dataclass(frozen=True, slots=True)
class WantedDraft:
    """The requested draft of a target: the name of its drafter, the requested drafters, and the source of a head."""

    pair: Pair
    spec: PairSpec | None
    plan: LoadPlan | None
    drafts_by: str
    names: Collection[str]
    head: HeadSource | None = None
    refused: Reason | None = None  # why it must not be opened

    @property
    def is_model(self) -> bool:
        """Whether it is a model of its own, in a file that exists."""
        return self.drafts_by == MODEL and MODEL in self.names and bool(self.pair.draft and self.pair.draft.is_file())

    def try_out(self, on_progress: OnProgress) -> Reason | None:
        """Try an unknown head in a process of its own; return why it must not be opened, or None if it may be."""
        is_wanted = self.drafts_by in HEADS and {MODEL, self.drafts_by} & {*self.names}
        if not is_wanted or not self.spec or (self.plan and not self.plan.with_draft):
            return None
        target, head, path = self.spec.target, self.spec.draft, self.pair.draft
        if head is None or why_undraftable(target) or (path and unfit(head, target, path)):
            return None  # `open` reports this
        try:
            if must_try(target, head):
                check(self.pair.target, path, on_progress)
        except HeadError as error:
            return self._left_out(error)
        return None

    def open(
        self, target: LlamaBackend, options: Options, on_progress: OnProgress
    ) -> tuple[ReloadableBackend | None, Reason | None]:
        """Return the draft, or the reason why none of those requested is open.

        Raises ModelError or VocabError for a model that is no draft for the target; without a head, the target replies
        on its own.
        """
        if not {MODEL, self.drafts_by} & {*self.names} or not (self.pair.draft or self.drafts_by == MTP):
            lacking = self._lacking()
            return None, Reason("draft-error", lacking) if lacking else None
        if self.refused:
            return None, self.refused
        if self.plan and not self.plan.with_draft:
            return None, Reason("memory", self.plan.text)
        try:
            return self._opened(target, options, on_progress), None
        except (NoMemoryError, DraftError, UnknownKindError, MemoryError) as error:
            return None, self._left_out(error)

    def _left_out(self, error: Exception) -> Reason:
        what = "model" if self.drafts_by == MODEL else "head"
        why = str(error).rstrip(".") or type(error).__name__
        return Reason("draft-error", f"the draft {what} was left out: {why}")

    def _opened(self, target: LlamaBackend, options: Options, on_progress: OnProgress) -> ReloadableBackend:
        if self.pair.draft is None:
            return open_drafting_layers(target, options, on_progress)
        if self.drafts_by in HEADS:
            return open_head(target, self.head or HeadSource(self.pair.draft), self.spec, options, on_progress)
        return open_draft(target.model, self.pair.draft, self.spec, options, on_progress)

    def _lacking(self) -> str:
        """Return why a head that was requested by its drafter's name, or promised by the target's file, is missing."""
        if not (asked := sorted(HEADS & {*self.names})):
            return self._broken_promise() if MODEL in self.names and self.pair.draft is None else ""
        if self.pair.draft and asked != [MTP]:
            return f"{self.pair.draft.name} is not {wanted.file if (wanted := find(asked[0])) else asked[0]}"
        why = why_no_mtp(self.spec.target) if self.spec else "its header cannot be read"
        return self._not_by_itself(why)

    def _broken_promise(self) -> str:
        """Return a clause if the target's header promises drafting layers that the file was made without, else ""."""
        is_broken = self.spec is not None and bool(unkept_promises(self.spec.target))
        return self._not_by_itself(NOT_KEPT) if is_broken else ""

    def _not_by_itself(self, why: str) -> str:
        return f"{self.pair.target.name} cannot draft by itself (mtp): {why}"


def open_draft(
    target: LlamaModel, path: Path, spec: PairSpec | None, options: Options, on_progress: OnProgress
) -> ReloadableBackend:
    """Open a draft model in a context that need not grow with the target's.

    Raises VocabError, NoMemoryError, ModelError.
    """
    # Read already; when it is opened again, the file may have changed
    headers = [(spec.target, spec.draft)] if spec and spec.draft else []

    def opener(stack: ExitStack, report: OnProgress) -> Backend:
        known = headers.pop() if headers else None
        trim = trim_of(known[1] if known else readable_facts(path))
        ids = trimmed_ids(target.path, path, trim) if trim else ids_if_alike(target.path, path, known)
        draft = load(path, "draft", report, exact=False, ids=ids, facts=known[1] if known else None)
        stack.callback(draft.close)
        is_alike = ids is not None or are_alike(target.vocab, draft.vocab)
        n_target = options.n_ctx or target.n_ctx_train
        n_ctx = draft_context(n_target, options.draft_window, options.max_k, draft.n_ctx_train)
        try:
            backend = drafting_context(draft, trim, n_ctx, options.slots)
        except ModelError as error:
            raise error if isinstance(error, DraftError) else NoMemoryError(str(error)) from error
        stack.callback(backend.close)
        return backend if is_alike else translating(backend, target, options.max_k)

    return ReloadableBackend(opener, on_progress)


def translating(backend: LlamaBackend, target: LlamaModel, room: int) -> TranslatedBackend:
    """Return the context of a draft model with another vocabulary, over the target's. Raises VocabError."""
    try:
        return translated(backend, target.vocab, room)
    except VocabError as error:
        raise VocabError(
            f"{backend.model.path.name} cannot draft for {target.path.name}: {error}. Choose a draft model of the same "
            "family, or run with `--draft off`."
        ) from None


def about_words(draft: ReloadableBackend | None) -> str:
    """Return what is to be known about a draft model's vocabulary, as a clause; "" if it is the target's."""
    share = writable_share(draft.backend) if draft else 1.0
    return f"the draft model has another vocabulary and can write {share:.0%} of usual text" if share < 1 else ""


def ids_if_alike(target: Path, draft: Path, facts: tuple[ModelFacts, ModelFacts] | None) -> IdsOnly | None:
    """Return the draft's ids if they mean the same as the target's; None if its words are needed to see or translate
    that.
    """
    try:
        return shared_ids(target, draft, facts)
    except VocabError:
        return None


def drafting_context(draft: LlamaModel, trim: Trim | None, n_ctx: int, n_seats: int) -> LlamaBackend:
    """Open a draft model's context, over the target's tokens even if it is a copy with fewer words."""
    if trim is not None:
        return open_trimmed(draft, trim, n_ctx, 1, DRAFT_BATCH, n_seats)
    return open_backend(draft, n_ctx, 1, DRAFT_BATCH, n_seats=n_seats)


def shared_ids(target: Path, draft: Path, facts: tuple[ModelFacts, ModelFacts] | None = None) -> IdsOnly | None:
    """Return the draft's ids if they mean the same as the target's by both headers; None where a header lacks them.

    Raises VocabError.
    """
    try:
        ours, theirs = facts or (ModelFacts(read_model_header(target)), ModelFacts(read_model_header(draft)))
    except (ModelError, OSError):
        return None  # the library's error at loading is more precise
    if not theirs.n_vocab:
        return None
    compare_vocabularies(HeaderVocab(ours.header), HeaderVocab(theirs.header), target.name, draft.name)
    return IdsOnly(theirs.architecture, theirs.n_vocab)


def trimmed_ids(target: Path, draft: Path, trim: Trim) -> IdsOnly:
    """Return the ids of a copy with fewer words, whose whole file has the target's. Raises DraftError, VocabError."""
    trim.check(draft)
    if shared_ids(target, trim.source) is None:
        raise DraftError(f"{trim.source}, of which {draft.name} is a smaller copy, cannot be read")
    return IdsOnly(ModelFacts(read_model_header(draft)).architecture, len(trim.kept))
