"""Makes copies of draft models with the vocabulary of the user's own replies (FR-Spec, arXiv 2502.14856; VocabTrim,
arXiv 2506.22694).

A copy is used only after it matched the whole model bit for bit, in a separate process, since the library may end it.
pairing.py measures whether it pays.
"""

from __future__ import annotations

import multiprocessing
import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from runtime.backends.llama import LlamaBackend
from runtime.backends.model import LlamaModel
from runtime.backends.trimmed import differs, open_trimmed
from runtime.core.children import end_with_parent
from runtime.core.draft import Tokens
from runtime.core.errors import ModelError
from runtime.core.private_files import close_to_others, make_private_folder
from runtime.loading.profile import replies_of
from runtime.loading.profile_cache import fingerprint
from runtime.models.drafting import HeaderVocab
from runtime.models.facts import ModelFacts
from runtime.models.header import read_model_header
from runtime.models.heads import drafter_of
from runtime.models.trimmed import bytes_per_token, choose, is_worth_it, n_kept, write
from runtime.training.made_drafts import SUFFIX, folder, trim_in

TOKENS, ROWS = 24, 8  # of the text by which a copy is compared, and of its last part, which is decoded in one pass
SEED = 26


class Trimmer:
    """Makes copies of draft models for one target, with the most frequent tokens of its past replies.

    `texts` returns the ids of further texts.
    """

    def __init__(self, target: Path, texts: Callable[[], Iterable[Sequence[int]]]) -> None:
        self.target, self._texts = target, texts

    @cached_property
    def _counts(self) -> NDArray[np.int64]:
        """The number of occurrences of each token [n_vocab]."""
        vocab = HeaderVocab(read_model_header(self.target))
        texts = (np.array(ids, dtype=np.int32) for ids in self._texts())
        token_arrays = [np.zeros(0, np.int32), *replies_of(self.target, vocab).read(), *texts]
        return np.bincount(np.concatenate(token_arrays), minlength=vocab.n_vocab)

    def make(self, source: Path) -> Path:
        """Return the copy of `source`, written now or by an earlier run. Raises ModelError."""
        facts = ModelFacts(read_model_header(source))
        kept = choose(facts, self._counts)
        path = folder(self.target) / f"{source.stem}-{fingerprint(source)[:6]}-{len(kept)}{SUFFIX}"
        if not is_copy(path, source, kept):
            make_room(path.parent, source, n_bytes(facts))
            write(source, path, kept)
            close_to_others(path, 0o600)
        prove(source, path)
        return path


def promise(path: Path) -> str:
    """Return a description of a copy of that model; "" if none is possible or it would not read clearly less.

    Raises ModelError.
    """
    facts = ModelFacts(read_model_header(path))
    if drafter_of(facts) or not is_worth_it(path, facts):
        return ""
    return f"{n_kept(facts):,} of its {facts.n_vocab:,} words"


def make_room(place: Path, source: Path, n: int) -> None:
    """Create the folder. Raises ModelError if `n` bytes do not fit with a margin."""
    try:
        make_private_folder(place)
        free = shutil.disk_usage(place).free
    except OSError as error:
        raise ModelError(f"{place} cannot be made for a copy of {source.name} ({error.strerror}).") from error
    if free < 2 * n:
        raise ModelError(
            f"There is no room for a copy of {source.name} with fewer words. Free {2 * n / 1e9:.1f} GB on the disk of "
            f"{place}."
        )


def n_bytes(facts: ModelFacts) -> int:
    """Return the bytes of a copy, at most."""
    return facts.n_bytes - facts.n_bytes_per_token + bytes_per_token(facts)


def is_copy(path: Path, source: Path, kept: Tokens) -> bool:
    """Whether the copy exists, of the current source and with those tokens."""
    trim = trim_in(path) if path.exists() else None
    is_same = trim is not None and trim.source == source.absolute() and trim.is_whole()
    return trim is not None and is_same and np.array_equal(trim.kept, kept)


def prove(source: Path, path: Path) -> None:
    """Raise ModelError, and remove the copy, if its results differ from its source's."""
    process = multiprocessing.get_context("spawn").Process(target=_compare, args=(str(source), str(path)), daemon=True)
    try:
        process.start()
        process.join()
        if process.exitcode:
            path.unlink(missing_ok=True)
            raise ModelError(
                f"A copy of {source.name} with fewer words gives wrong results with this build of "
                "llama.cpp, so only the whole model is tried."
            )
    finally:
        if process.is_alive():
            process.kill()
            process.join()


def _compare(source: str, path: str) -> None:
    """Compare in a separate process, whose exit code is the result."""
    end_with_parent()
    try:
        is_right = are_alike(Path(source), Path(path))
    except ModelError:
        is_right = False
    if not is_right:
        raise SystemExit(1)


def are_alike(source: Path, path: Path) -> bool:
    """Whether both give the same logits for two texts, one of kept tokens and one of any tokens. Raises ModelError."""
    if (trim := trim_in(path)) is None:
        return False
    with ExitStack() as stack:
        models = [LlamaModel(each) for each in (source, path)]
        for model in models:
            stack.callback(model.close)
        whole = LlamaBackend(models[0], TOKENS, ROWS, TOKENS)
        stack.callback(whole.close)
        copy = open_trimmed(models[1], trim, TOKENS, ROWS, TOKENS)
        stack.callback(copy.close)
        rng = np.random.default_rng(SEED)
        texts = rng.choice(trim.kept, TOKENS), rng.integers(0, whole.n_vocab, TOKENS)
        return not any(differs(whole, copy, text.tolist()) for text in texts)
