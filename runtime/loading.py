"""Opens a pair: models, contexts, the vocabulary check, and the measurements that every later choice rests on.

Knows backends and drafters by name; what is done with them is the loop's.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import psutil

from runtime.backend import Backend
from runtime.backends import library
from runtime.backends.gguf import LlamaModel
from runtime.backends.llama import LlamaBackend
from runtime.backends.vocab import Vocab
from runtime.controller import Controller, Reason
from runtime.costs import PassCosts, fastest_threads, measure
from runtime.draft import Draft, Drafter
from runtime.drafters.grammar import GrammarDrafter
from runtime.drafters.model import ModelDrafter
from runtime.drafters.ngram import NgramDrafter
from runtime.errors import ModelError, VocabError
from runtime.exactness import Exactness, self_test
from runtime.loop import SpecLoop
from runtime.measured import Measured, fingerprint
from runtime.registry import Pair

MEASURE_SECONDS = 1.0  # for all measurements at load
NGRAM_SECONDS = 5e-6  # a looked-up token, before any was measured
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
        self.target = self._model(self.pair.target, "target", on_progress, self._is_exact(options))
        n_ctx = min(options.n_ctx or self.pair.context, self.target.n_ctx_train)
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
        controller = calibrate(self.backend, draft_backend, drafters, options, off)
        self.exactness = self._exactness(options) if drafters else Exactness(1, 1)
        self.loop = SpecLoop(self.backend, drafters, controller, options.branches)

    def _exactness(self, options: Options) -> Exactness:
        """What the self-test says, or said the last time for the same file, library and settings."""
        backend = self.backend
        key = fingerprint(self.pair.target, library.version(), library.has_gpu(), backend.cache_types, options.max_k, self._is_exact(options))
        memo = Measured(key)
        try:
            return Exactness(**memo.read()["exactness"])
        except (KeyError, TypeError):
            found = self_test(backend, options.max_k + 1)
            memo.write({"exactness": asdict(found)})
            return found

    def _is_exact(self, options: Options) -> bool:
        return options.exact or self.pair.exact

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


def cores() -> list[int]:
    """Numbers of threads worth trying: one, half of the physical cores, all that this process may use."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    physical = min(allowed, psutil.cpu_count(logical=False) or allowed)
    return sorted({1, max(1, physical // 2), physical})


def passes(backend: Backend) -> Callable[[int], object]:
    """A function that decodes n rows at the end of a short context."""
    context = np.arange(min(32, backend.n_ctx // 2), dtype=np.int32) % backend.n_vocab
    backend.forward(context)
    return lambda rows: backend.forward(context, Draft((0,) * (rows - 1)))


def calibrate(target: Backend, draft: Backend | None, drafters: Sequence[Drafter], options: Options, off: Reason | None) -> Controller:
    """Chooses threads by measurement and times the passes, within MEASURE_SECONDS."""
    began = time.perf_counter()
    counts, run = [options.threads] if options.threads else cores(), passes(target)
    one = fastest_threads(counts, lambda n: target.set_threads(n, n), run, 1, began + 0.2 * MEASURE_SECONDS)
    many = fastest_threads(counts, lambda n: target.set_threads(one, n), run, min(4, options.max_k + 1), began + 0.4 * MEASURE_SECONDS)
    target.set_threads(one, many)
    seconds = {drafter.name: NGRAM_SECONDS for drafter in drafters}
    if draft is not None:
        draft_run, alone = passes(draft), PassCosts()
        threads = fastest_threads(counts, lambda n: draft.set_threads(n, n), draft_run, 1, began + 0.6 * MEASURE_SECONDS)
        draft.set_threads(threads, many)
        measure(alone, draft_run, 1, began + 0.6 * MEASURE_SECONDS)
        seconds["model"] = alone.seconds(1, 0)
    costs = PassCosts()
    measure(costs, run, options.max_k + 1 if drafters else 1, began + MEASURE_SECONDS)
    return Controller(costs, seconds, options.max_k, options.fixed_k, off)
