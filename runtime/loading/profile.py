"""What is known of a target on this machine from earlier starts, and measured now where it is not.

Costs of passes, exactness, what drafters have been worth, its vocabulary. Knows where each is kept; what follows from
it is the controller's.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, replace
from hashlib import sha256
from pathlib import Path

from runtime.backends import library
from runtime.backends.devices import devices
from runtime.backends.llama import LlamaBackend
from runtime.backends.shared import SharedBackend
from runtime.backends.vocab import ComparableVocab
from runtime.core.backend import Backend
from runtime.core.clock import Clock
from runtime.core.errors import ModelError
from runtime.drafters.reply_store import Replies, folder
from runtime.loading.calibration import Calibration, calibrate
from runtime.loading.exactness import Exactness, is_exact_padded, is_exact_together, self_test
from runtime.loading.options import Options
from runtime.loading.profile_cache import ProfileCache, fingerprint
from runtime.models.facts import ModelFacts
from runtime.models.header import read_model_header
from runtime.speculative.control.controller import Controller
from runtime.speculative.control.costs import PassCosts
from runtime.speculative.control.kept import kept, take_up

PADDED = 8, 4, 2  # rows to which passes may be padded: kernels of GPUs take as long for them as for one
COSTS_NOTHING = 1.05  # times as long as a plain pass


class TargetProfile:
    """The profile of one target with this library and these settings."""

    def __init__(self, target: Path, backend: LlamaBackend, options: Options) -> None:
        self._target, self._cache_types, self._options = target, backend.cache_types, options
        # What computes which layers decides about costs and rounding
        self._places = library.has_gpu() and (backend.model.gpu_layers, [device[:2] for device in devices()])

    def cache(self, what: str, *facts: object) -> ProfileCache:
        """Where one measurement is kept, which depends on these facts as well."""
        places = self._places, self._options.rpc
        settings = library.version(), library.are_tiled(), *places, self._cache_types, self._options.exact
        return ProfileCache(fingerprint(self._target, what, *settings, *facts))

    def calibration(self, backend: Backend, path: Path, counts: list[int], max_width: int, clock: Clock) -> Calibration:
        """What passes of that model cost beside this target; `counts` are numbers of threads."""
        cache = self.cache("calibration", counts, max_width, fingerprint(path))
        is_far = bool(self._options.rpc) and max_width > 1  # a draft model's passes are made here
        return calibrate(backend, max_width, counts, cache, clock, is_far)

    def forget_calibration(self, path: Path, counts: list[int], max_width: int) -> None:
        """Have the next start measure anew what passes of that model cost."""
        self.cache("calibration", counts, max_width, fingerprint(path)).write({})

    def exactness(self, backend: LlamaBackend, costs: PassCosts) -> Exactness:
        """What the self-test of the target finds. Where rounding depends on the width of passes and a wider one costs
        nothing, the backend pads them all.
        """
        seats = [backend.n_seats] if isinstance(backend, SharedBackend) else []
        cache = self.cache("rounding", self._options.max_k, *seats)
        known = cache.read_as(Exactness)
        if known is None or not 1 <= known.width <= known.tried:
            known = tested(backend, self._options.max_k + 1)
            cache.write(asdict(known))
        rows = 0 if known.is_exact or self._options.fast else self._padding(backend, known.width, costs)
        return replace(known, width=min(rows, known.tried), together=False, padded=rows) if rows else known

    def _padding(self, backend: LlamaBackend, width: int, costs: PassCosts) -> int:
        """Rows to which all passes are padded from now on; 0 where none are. Decided once for all settings, because it
        decides about the text.
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
        """Begins with what was learned of the drafters the last time."""
        take_up(controller, self._learned(draft).read())

    def save(self, controller: Controller, draft: Path | None) -> None:
        """Leaves for the next start what was learned of them since; nothing of files that are gone meanwhile."""
        with suppress(OSError):
            cache = self._learned(draft)
            cache.write(cache.read() | kept(controller))

    def _learned(self, draft: Path | None) -> ProfileCache:
        return self.cache("learned", draft and fingerprint(draft))


def is_free(costs: PassCosts, rows: int) -> bool:
    """Does a pass of so many rows cost no more than a plain one?"""
    seconds = costs.up_to(rows, 0)
    return seconds[-1] <= COSTS_NOTHING * seconds[0]


def tested(backend: LlamaBackend, max_width: int) -> Exactness:
    """What the self-test finds, and what it may miss: on a processor float matrices round by width, which mostly, but
    not always, is lost where their results are quantized.
    """
    vocab = backend.model.vocab
    found = self_test(backend, max_width, vocab=vocab)
    if isinstance(backend, SharedBackend):
        found = replace(found, together=is_exact_together(backend, found.width, vocab))
    try:
        facts = ModelFacts(read_model_header(backend.model.path))
    except (ModelError, OSError):
        return found
    is_lucky = facts.has_float_matrices and not library.has_gpu()
    return replace(found, width=1, prefill=False) if is_lucky else found


def replies_of(target: Path, vocab: ComparableVocab) -> Replies:
    """Where past replies are kept: by the model's name and words, so that its file may move."""
    cache = ProfileCache(fingerprint(target, "words"))
    words = cache.read().get("sha256")
    if not isinstance(words, str):
        words = sha256("\0".join(map(vocab.text, range(vocab.n_vocab))).encode()).hexdigest()
        cache.write({"sha256": words})
    return Replies(folder() / sha256(repr((target.stem, words)).encode()).hexdigest()[:32], vocab.n_vocab)
