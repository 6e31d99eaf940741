"""The types of keys and values in the target's cache: those of `cache_layout`, or both in F16 where that is faster.

llama.cpp reads prompts with a faster kernel if both are F16, the more so the longer the context; single rows may then
take longer, because keys in Q8_0 are half as large. Which counts for more depends on the model and the processor, so
both are timed when a model is first loaded; where that takes long, in the background after the first replies.
"""

from __future__ import annotations

import math
import time
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from runtime.backends import library
from runtime.backends.filled import FilledContext
from runtime.backends.model import LlamaModel
from runtime.backends.pass_switches import BLOCK
from runtime.core.draft import Tokens
from runtime.core.errors import ModelError
from runtime.loading.exactness import sample
from runtime.loading.neighbours import Neighbours, is_calm
from runtime.loading.pass_timing import usual_threads
from runtime.loading.profile_cache import ProfileCache, fingerprint
from runtime.models.cache_layout import HALVES, CacheTypes

# Tokens of context at which both are timed, usually and at least: half a long prompt, as all of it is read on average
FAR, LEAST_FAR = 2048, 1536
# Share of a turn's time for reading its prompt: 256 tokens take less than half as long as the 2,048 before them
READING = 1 / 2
WORTH = 0.97  # ratio of such a turn's times up to which F16 is chosen
ROUNDS, BUDGET = 12, 2.0  # turns of either pass: at most, and the seconds in which they begin
SLOW, SHORT = 0.6, 8  # seconds of a pass over so many rows from which a load does not wait for the trial


@dataclass(frozen=True, slots=True)
class CacheTrial:
    """Speed with keys and values in F16, relative to the usual types: of reading a prompt, and of plain decode."""

    reading: float
    decoding: float
    is_calm: bool = False  # whether other programs left the cores idle: beside them either may seem faster
    is_timed: bool = True  # False where passes take too long while somebody waits: it is made later

    @property
    def prefers_halves(self) -> bool:
        """Whether a turn with a long prompt takes clearly less time with F16."""
        return (1 - READING) / self.decoding + READING / self.reading <= WORTH

    def __str__(self) -> str:
        """Effect of F16, as a clause."""
        used = "used" if self.prefers_halves else "not used"
        return (
            f"with keys and values in F16 long prompts are read at {self.reading:.2f} times the speed, and replies "
            f"after them decoded at {self.decoding:.2f} times, so they are {used}"
        )


def fastest(target: LlamaModel, n_ctx: int) -> CacheTypes:
    """Return the fastest types for a context of `n_ctx` tokens; measured, or known from an earlier start. What was
    measured while other programs were busy is measured again at the first start at which they are not.
    """
    length = min(FAR, n_ctx // 2)  # two contexts of the trial take no more memory than that one
    is_usual = target.is_recurrent or target.window or library.has_gpu() or target.cache_types == HALVES
    if is_usual or length < LEAST_FAR:
        return target.cache_types
    try:
        trial = _kept(memo := _memo(target.path))
        if trial is None or (not trial.is_calm and is_calm()):
            trial = tried(target, length, SLOW)
            memo.write(asdict(trial))
    except (ModelError, OSError):  # it cannot be measured, or the file is gone
        return target.cache_types
    return HALVES if trial.prefers_halves else target.cache_types


def prefers_halves(target: Path) -> bool:
    """Return whether F16 is used for that file where its context is long enough, as far as that is known."""
    trial = remembered(target)
    return trial is not None and trial.prefers_halves


def is_pending(target: Path) -> bool:
    """Return whether the trial of that file remains to be made, because a load had no time for it."""
    trial = remembered(target)
    return trial is not None and not trial.is_timed


def retried(target: Path) -> CacheTrial:
    """Make the trial of that file however long it takes. Raises ModelError."""
    with closing(LlamaModel(target)) as model:
        return tried(model, min(FAR, model.n_ctx_train // 2), math.inf)


def remembered(target: Path) -> CacheTrial | None:
    """Return the cached trial of that file with this library, if it can be read."""
    try:
        return _kept(_memo(target))
    except OSError:  # the file is gone
        return None


def remember(target: Path, trial: CacheTrial) -> None:
    """Cache a trial for the next start. Raises OSError."""
    _memo(target).write(asdict(trial))


def _kept(memo: ProfileCache) -> CacheTrial | None:
    trial = memo.read_as(CacheTrial)
    return trial if trial and trial.reading > 0 and trial.decoding > 0 else None


def _memo(target: Path) -> ProfileCache:
    return ProfileCache(fingerprint(target, "types of the cache", library.version()))


def tried(target: LlamaModel, length: int, slow: float) -> CacheTrial:
    """Make the trial and note whether other programs disturbed it. Raises ModelError."""
    others = Neighbours()
    return replace(compare(target, length, slow), is_calm=others.are_calm())


def compare(target: LlamaModel, length: int, slow: float) -> CacheTrial:
    """Time passes after `length` tokens with either types, unless one over a few rows takes `slow` seconds or more.
    Raises ModelError where that cannot be measured.
    """
    threads, tokens = usual_threads(), sample(target.vocab, BLOCK)
    contexts = list[FilledContext]()
    try:
        for types in (target.cache_types, HALVES):
            contexts.append(FilledContext(target, types, length + 2 * BLOCK, BLOCK, threads))
            if contexts[-1].attention.has_parts:
                raise ModelError("Passes of one row would round differently here.")
            contexts[-1].fill(tokens[:SHORT], length)
            if contexts[-1].seconds(tokens[:SHORT]) >= slow:  # the model is large, or others use the cores
                return CacheTrial(1.0, 1.0, is_timed=False)
        usual, halves = contexts
        return CacheTrial(share(usual, halves, tokens), share(usual, halves, tokens[:1]))
    finally:
        for context in contexts:
            context.close()


def share(usual: FilledContext, halves: FilledContext, tokens: Tokens) -> float:
    """Return the speed of passes over `tokens` [n] with F16 relative to the usual types', by the fastest of each, which
    take turns: other load only makes passes longer.
    """
    began, taken = time.perf_counter(), list[tuple[float, float]]()
    while not taken or (len(taken) < ROUNDS and time.perf_counter() - began < BUDGET):
        taken.append((usual.seconds(tokens), halves.seconds(tokens)))
    of_usual, of_halves = map(min, zip(*taken, strict=True))
    return float(round(of_usual / of_halves, 3))
