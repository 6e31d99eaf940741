"""The profile of a target on this machine: read from earlier starts, and otherwise measured now.

Costs of passes, exactness, the past value of drafters, its vocabulary. Knows where each is cached; the controller draws
the conclusions.
"""

from __future__ import annotations

from contextlib import closing, suppress
from dataclasses import asdict, replace
from hashlib import sha256
from pathlib import Path

from runtime.backends import library
from runtime.backends.filled import FilledContext
from runtime.backends.library import devices
from runtime.backends.llama import LlamaBackend
from runtime.backends.shared import SharedBackend
from runtime.core.backend import Backend
from runtime.core.cores import Clock, n_cores
from runtime.core.draft import Adapters, Tokens
from runtime.core.errors import ModelError
from runtime.drafters.reply_store import Replies, folder
from runtime.loading.calibration import Calibration, calibrate
from runtime.loading.exactness import (
    Exactness,
    Roundings,
    is_exact_padded,
    is_exact_together,
    sample,
    self_test,
    worst,
)
from runtime.loading.options import Options
from runtime.loading.pieces import are_alike
from runtime.loading.profile_cache import ProfileCache, fingerprint
from runtime.models.cache_layout import CacheSpec, cache_bytes
from runtime.models.drafting import ComparableVocab
from runtime.models.facts import ModelFacts
from runtime.models.header import read_model_header
from runtime.speculative.control.controller import Controller
from runtime.speculative.control.costs import PassCosts
from runtime.speculative.control.explain import kept, restore

PADDED = 8, 4, 2  # rows to which passes may be padded: kernels of GPUs take as long for them as for one
FAR_CONTEXTS = 256, 1024, 4096  # tokens of long contexts in which exactness is tested; FilledContext doubles them
FAR_ROWS, FAR_BYTES = 4, 256 << 20  # rows that are compared there; most memory for that
# Matrices that kernels may take in pairs of rows (ggml-cpu.c, nrows) or in blocks of them (llamafile's sgemm.cpp), and
# those of them that are repacked on Arm
PAIRED, BLOCKED = {"Q4_0", "Q4_1", "Q8_0", "Q4_K", "Q6_K"}, {"Q4_0", "Q8_0"}
REPACKED = {"Q4_0", "Q8_0", "Q4_K", "Q6_K"}
COSTS_NOTHING = 1.05  # largest ratio to a plain pass's time that counts as free


class TargetProfile:
    """The profile of one target with this library and these settings."""

    def __init__(self, target: Path, backend: LlamaBackend, options: Options) -> None:
        self._target, self._cache_types, self._options = target, backend.model.cache_types, options
        # Costs and rounding depend on which device computes which layers
        self._places = library.has_gpu() and (backend.model.gpu_layers, [device[:2] for device in devices()])

    def cache(self, what: str, *facts: object) -> ProfileCache:
        """Return the cache of one measurement, which depends on these facts as well."""
        places = self._places, self._options.rpc
        settings = library.version(), library.are_tiled(), *places, self._cache_types, self._options.exact
        return ProfileCache(fingerprint(self._target, what, *settings, *facts))

    def calibration(self, backend: Backend, path: Path, counts: list[int], max_width: int, clock: Clock) -> Calibration:
        """Return the costs of passes of that model with this target; `counts` are numbers of threads."""
        cache = self.cache("calibration", counts, max_width, fingerprint(path))
        is_far = bool(self._options.rpc) and max_width > 1  # a draft model runs on this machine
        return calibrate(backend, max_width, counts, cache, clock, is_far)

    def forget_calibration(self, path: Path, counts: list[int], max_width: int) -> None:
        """Make the next start measure the costs of that model's passes again."""
        self.cache("calibration", counts, max_width, fingerprint(path)).write({})

    def roundings(self, backend: LlamaBackend, costs: PassCosts) -> Roundings:
        """Return the results of the target's self-test, without its LoRA adapters and with all of them: what holds for
        all their matrices holds for those of some, at any scale.

        Where rounding depends on the width of passes and a wider one costs nothing, the backend pads them all.
        """
        bare, adapters = self._tested(backend), backend.model.adapters
        rows = 0 if bare.is_exact or self._options.fast else self._padding(backend, bare.width, costs)
        if rows:
            bare = replace(bare, width=min(rows, bare.tried), together=False, padded=rows)
        elif not bare.is_exact:
            bare = replace(bare, pieces=self._reads_alike(backend))
        if not adapters:
            return Roundings(bare, bare)
        found = self._tested(backend, adapters.named(dict.fromkeys(range(len(adapters.keys)), 1.0)), rows)
        both = {"prefill": found.prefill and bare.prefill, "together": found.together and bare.together}
        return Roundings(bare, replace(found, width=min(found.width, bare.width), padded=rows, **both))

    def _tested(self, backend: LlamaBackend, adapters: Adapters = (), *padded: int) -> Exactness:
        """Return the result of the self-test with these adapters, of passes that are padded as the backend does now."""
        seats = [backend.n_seats] if isinstance(backend, SharedBackend) else []
        cache = self.cache("rounding", self._options.max_k, *seats, *(key for key, _ in adapters), *padded)
        known = cache.read_as(Exactness)
        if known is None or not 1 <= known.width <= known.tried:
            known = measured(backend, self._options.max_k + 1, adapters)
            cache.write(asdict(known))
        return known

    def _reads_alike(self, backend: LlamaBackend) -> bool:
        """Return whether longer pieces of prompts give the same bits. Rows that are multiplied at once, and float
        matrices, may round by width where a test does not see it.
        """
        with suppress(ModelError, OSError):
            facts = ModelFacts(read_model_header(backend.model.path))
            is_doubtful = library.has_gpu() or mixes_rows(facts) or facts.has_float_matrices
            return not is_doubtful and are_alike(backend.model, self.cache("pieces"))
        return False

    def _padding(self, backend: LlamaBackend, width: int, costs: PassCosts) -> int:
        """Return the rows to which the backend pads all passes from now on; 0 for no padding.

        Decided once for all settings, because it affects the text.
        """
        if not library.has_gpu() or not backend.takes_padding or backend.can_branch:
            return 0
        cache = self.cache("padding")
        known = cache.read().get("rows")
        if known is None:
            known = next(
                (rows for rows in PADDED if rows > width and is_free(costs, rows) and self._pads(backend, rows)), 0
            )
            cache.write({"rows": known})
        elif known in PADDED:
            backend.pad(known)
        return known if known in PADDED else 0

    def _pads(self, backend: LlamaBackend, rows: int) -> bool:
        return is_exact_padded(backend, rows, backend.model.vocab)

    def restore(self, controller: Controller, draft: Path | None) -> None:
        """Restore the controller's statistics about drafters from the last run."""
        restore(controller, self._learned(draft).read())

    def save(self, controller: Controller, draft: Path | None) -> None:
        """Save the controller's statistics about drafters for the next start; does nothing for files that are gone."""
        with suppress(OSError):
            cache = self._learned(draft)
            cache.write(cache.read() | kept(controller))

    def _learned(self, draft: Path | None) -> ProfileCache:
        return self.cache("learned", draft and fingerprint(draft))


def is_free(costs: PassCosts, rows: int) -> bool:
    """Return whether a pass of `rows` rows costs no more than a plain one."""
    seconds = costs.up_to(rows, 0)
    return seconds[-1] <= COSTS_NOTHING * seconds[0]


def measured(backend: LlamaBackend, max_width: int, adapters: Adapters = ()) -> Exactness:
    """Return the result of the self-test with these adapters, corrected for what it may miss.

    On a processor, float matrices, as those of LoRA adapters are, round by width, which mostly, but not always, is lost
    where results are quantized, and passes over long contexts may use other kernels.
    """
    vocab = backend.model.vocab
    backend.use(adapters)
    found = self_test(backend, max_width, vocab=vocab)
    if backend.attention.has_blocks:
        found = replace(found, prefill=False)
    if isinstance(backend, SharedBackend):
        found = replace(found, together=is_exact_together(backend, found.width, vocab))
    backend.use(())
    try:
        facts = ModelFacts(read_model_header(backend.model.path))
    except (ModelError, OSError):
        return found
    if library.has_gpu():
        return found
    if mixes_rows(facts):
        return replace(found, width=1, prefill=False)
    far = far_difference(backend, found.width, longest_test(backend, facts))
    found = replace(found, difference=max(found.difference, far))
    return replace(found, width=1, prefill=False) if facts.has_float_matrices or adapters or far else found


def mixes_rows(facts: ModelFacts) -> bool:
    """Return whether some matrices may be multiplied with several rows at once, which rounds otherwise than one.

    That depends on the number of threads too, and is mostly lost where results are quantized, so that a self-test may
    miss it.
    """
    mixed = (PAIRED if library.takes_pairs() else set()) | (BLOCKED if library.takes_blocks() else set())
    mixed -= REPACKED if library.are_tiled() else set()
    return any(tensor.kind in mixed for tensor in facts.header.tensors)


def longest_test(backend: LlamaBackend, facts: ModelFacts) -> int:
    """Return the tokens of context up to which the self-test can afford the memory."""
    n_tokens = min(FAR_CONTEXTS[-1], backend.n_ctx // 2)
    n_bytes = cache_bytes(facts, CacheSpec(n_tokens, backend.model.cache_types))
    return n_tokens if n_bytes <= FAR_BYTES else n_tokens * FAR_BYTES // n_bytes


def far_difference(backend: LlamaBackend, width: int, longest: int) -> float:
    """Return the largest difference of a logit between passes over `width` rows and over single ones after contexts of
    several lengths up to `longest` tokens; 0 where such contexts cannot be made.
    """
    if width == 1 or longest < FAR_CONTEXTS[0] or backend.model.is_recurrent or backend.model.window:
        return 0.0
    text = sample(backend.model.vocab, max(width, FAR_ROWS))
    types, n_cells = backend.model.cache_types, longest + 2 * len(text)
    try:
        with closing(FilledContext(backend.model, types, n_cells, len(text), n_cores())) as context:
            return max(difference_at(context, text, n, width) for n in FAR_CONTEXTS if n <= longest)
    except ModelError:
        return 0.0


def difference_at(context: FilledContext, text: Tokens, length: int, width: int) -> float:
    """Return that difference after `length` tokens, in the first rows."""
    n = min(FAR_ROWS, width)
    context.fill(text[:FAR_ROWS], length)
    alone = [context.decode(text[i : i + 1], 1)[0] for i in range(n)]
    context.drop(n)
    together = context.decode(text[:width], n)
    context.drop(width)
    return worst(together, alone)


def replies_of(target: Path, vocab: ComparableVocab) -> Replies:
    """Return the store of past replies, by the model's name and words, so that its file may move."""
    cache = ProfileCache(fingerprint(target, "words"))
    words = cache.read().get("sha256")
    if not isinstance(words, str):
        words = sha256("\0".join(map(vocab.text, range(vocab.n_vocab))).encode()).hexdigest()
        cache.write({"sha256": words})
    return Replies(folder() / sha256(repr((target.stem, words)).encode()).hexdigest()[:32], vocab.n_vocab)
