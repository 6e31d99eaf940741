"""Opens a pair: models, contexts, the vocabulary check, and the measurements that every later choice rests on.

Knows backends and drafters by name; what is done with them is the loop's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from runtime.backends import library
from runtime.backends.gguf import LlamaModel
from runtime.backends.llama import LlamaBackend
from runtime.backends.vocab import Vocab
from runtime.calibration import calibrate, cores
from runtime.controller import Controller, Reason
from runtime.draft import Drafter
from runtime.drafters.grammar import GrammarDrafter
from runtime.drafters.model import ModelDrafter
from runtime.drafters.ngram import NgramDrafter
from runtime.errors import ModelError, VocabError
from runtime.exactness import Exactness, self_test
from runtime.loop import SpecLoop
from runtime.measured import Measured, fingerprint
from runtime.registry import Pair

LOOKUP_SECONDS = 5e-6  # a token of a free drafter, before any was measured
DRAFT_BATCH = 64  # rows of the draft model's prefill: small, so that its buffers are
OnProgress = Callable[[str, float], bool]  # (what is being loaded, share of it) -> go on?


@dataclass(frozen=True, slots=True)
class Options:
    """How a pair is to be run; None and the defaults leave it to measurement."""

    n_ctx: int | None = None
    drafters: tuple[str, ...] | None = None  # () = plain decode
    max_k: int = 8
    fixed_k: int | None = None
    threads: int | None = None
    exact: bool = False  # bit-identical kernels for K-quants as well
    branches: int = 0  # side branches per drafted token; then all drafters' proposals go to the target as one tree


class Loaded:
    """An open pair. Closes everything it opened, in order."""

    def __init__(self, pair: Pair, options: Options, on_progress: OnProgress | None = None) -> None:
        self.pair = pair
        self._open: list[Callable[[], None]] = []
        try:
            self._load(options, on_progress or (lambda what, share: True))
        except BaseException:
            self.close()
            raise

    def _load(self, options: Options, on_progress: OnProgress) -> None:
        names = self.pair.drafters if options.drafters is None else options.drafters
        off = None if names else Reason("user", "drafters are switched off")
        options = replace(options, exact=options.exact or self.pair.exact)
        self.target = self._model(self.pair.target, "target", on_progress, options.exact)
        n_ctx = min(options.n_ctx or self.pair.context, self.target.n_ctx_train)
        options = replace(options, max_k=min(options.max_k, n_ctx // 2 - 1))
        self.backend = self._backend(self.target, n_ctx, options.max_k + 1, 512, can_branch=options.branches > 0)
        if names and not self.backend.can_rewind:  # decided before a draft model could take memory
            names, off = (), Reason("architecture", "this architecture cannot drop rejected tokens")
        drafters: list[Drafter] = [make() for make in (GrammarDrafter, NgramDrafter) if make.name in names]
        draft_backend, draft_path = None, self.pair.draft
        if "model" in names and draft_path is not None:
            draft = self._model(draft_path, "draft", on_progress, exact=False)
            compare_vocabularies(self.target.vocab, draft.vocab, self.pair.target.name, draft_path.name)
            draft_backend = self._backend(draft, n_ctx, 1, DRAFT_BATCH)
            drafters.append(ModelDrafter(draft_backend, self.target.vocab.n_vocab))
        controller = self._controller(options, drafters, draft_backend, off)
        self.exactness = self._exactness(options) if drafters else Exactness(1, 1)
        self.loop = SpecLoop(self.backend, drafters, controller, options.branches)

    def _controller(self, options: Options, drafters: list[Drafter], draft: LlamaBackend | None, off: Reason | None) -> Controller:
        """Knows what passes and drafted tokens cost here."""
        max_width, counts = (options.max_k + 1 if drafters else 1), ([options.threads] if options.threads else cores())
        memo = self._memo("calibration", options, counts, max_width, draft and fingerprint(draft.model.path))
        known = calibrate(self.backend, draft, max_width, counts, memo)
        seconds = {drafter.name: LOOKUP_SECONDS if drafter.is_free else known.draft_seconds for drafter in drafters}
        return Controller(known.costs(), seconds, options.max_k, options.fixed_k, off)

    def _exactness(self, options: Options) -> Exactness:
        """What the self-test says, or said the last time for the same file, library and settings."""
        memo = self._memo("exactness", options, options.max_k)
        try:
            return Exactness(**memo.read())
        except TypeError:
            found = self_test(self.backend, options.max_k + 1)
            memo.write(asdict(found))
            return found

    def _memo(self, what: str, options: Options, *facts: object) -> Measured:
        """What was measured of this target with this library and these settings."""
        settings = library.version(), library.tiles(), library.has_gpu(), self.backend.cache_types, options.exact
        return Measured(fingerprint(self.pair.target, what, *settings, *facts))

    def _model(self, path: Path, what: str, on_progress: OnProgress, exact: bool) -> LlamaModel:
        stopped = False

        def report(share: float) -> bool:
            nonlocal stopped
            stopped = not on_progress(what, share)
            return not stopped

        try:
            model = LlamaModel(path, report, exact=exact)
        except ModelError:
            if stopped:
                raise KeyboardInterrupt from None
            raise
        self._open.append(model.close)
        return model

    def _backend(self, model: LlamaModel, n_ctx: int, n_rows: int, n_batch: int, can_branch: bool = False) -> LlamaBackend:
        backend = LlamaBackend(model, n_ctx, n_rows, n_batch, can_branch)
        self._open.append(backend.close)
        return backend

    def close(self) -> None:
        """Frees contexts before the models they stand on; may be called twice."""
        while self._open:
            self._open.pop()()


def compare_vocabularies(target: Vocab, draft: Vocab, target_name: str, draft_name: str) -> None:
    """Raises VocabError naming the first token that differs. A longer tail of one (padding) is harmless: it is never drafted."""
    for token in range(min(target.n_vocab, draft.n_vocab)):
        ours, theirs = target.text(token), draft.text(token)
        if ours != theirs:
            raise VocabError(
                f"{draft_name} cannot draft for {target_name}: token {token} is {ours!r} in the target and {theirs!r} in the draft. "
                "Choose a draft model of the same family, or run with `--draft off`."
            )
