"""What is known of a target from earlier starts, and measured now where it is not: costs, exactness, what drafters are
worth, its vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path

from runtime.backends import library
from runtime.backends.llama import LlamaBackend
from runtime.backends.vocab import Vocab
from runtime.core.backend import Backend
from runtime.drafters.reply_store import Replies, folder
from runtime.loading.calibration import Calibration, calibrate
from runtime.loading.exactness import Exactness, self_test
from runtime.loading.options import Options
from runtime.loading.profile_cache import Measured, fingerprint
from runtime.speculative.control.controller import Controller


class Remembered:
    """Of one target with this library and these settings."""

    def __init__(self, target: Path, backend: LlamaBackend, options: Options) -> None:
        self._target, self._cache_types, self._options = target, backend.cache_types, options

    def memo(self, what: str, *facts: object) -> Measured:
        """Where it is kept."""
        settings = library.version(), library.tiles(), library.has_gpu(), self._cache_types, self._options.exact
        return Measured(fingerprint(self._target, what, *settings, *facts))

    def calibration(self, backend: Backend, path: Path, counts: list[int], max_width: int) -> Calibration:
        """What passes of that model cost beside this target; all ways to run it share that.

        `counts` are numbers of threads.
        """
        return calibrate(backend, max_width, counts, self.memo("calibration", counts, max_width, fingerprint(path)))

    def exactness(self, backend: Backend) -> Exactness:
        """What the self-test of the target says."""
        memo = self.memo("exactness", self._options.max_k)
        try:
            return Exactness(**memo.read())
        except TypeError:
            found = self_test(backend, self._options.max_k + 1)
            memo.write(asdict(found))
            return found

    def teach(self, controller: Controller, draft: Path | None) -> Callable[[], None]:
        """Begins with what was learned of the drafters the last time; returns what leaves for the next start what they
        taught since.
        """
        memo = self.memo("learned", draft and fingerprint(draft))
        controller.restore(memo.read())
        return lambda: memo.write(memo.read() | controller.state())


def replies_of(target: Path, vocab: Vocab) -> Replies:
    """Where past replies are kept: by the model's name and words, so that its file may move."""
    memo = Measured(fingerprint(target, "words"))
    words = memo.read().get("sha256")
    if words is None:
        words = sha256("\0".join(map(vocab.text, range(vocab.n_vocab))).encode()).hexdigest()
        memo.write({"sha256": words})
    return Replies(folder() / sha256(repr((target.stem, words)).encode()).hexdigest()[:32], vocab.n_vocab)
