"""Whether a prompt may be read in longer pieces where rounding depends on the width of passes.

There a repeatable reply reads in fixed pieces of PIECE tokens. Kernels that work on tiles of rows compute each tile the
same however many there are, so a piece of LONGER times as many tokens may give the same bits, in less time. This is
tested when a model is first loaded, if it reads fast enough that longer pieces would be used.
"""

from __future__ import annotations

from contextlib import closing

import numpy as np

from runtime.backends.filled import FilledContext
from runtime.backends.model import LlamaModel
from runtime.core.draft import Tokens
from runtime.core.errors import ModelError
from runtime.core.image_runs import LONGER, PIECE
from runtime.loading.exactness import sample
from runtime.loading.neighbours import Neighbours, is_calm
from runtime.loading.pass_timing import usual_threads
from runtime.loading.profile_cache import ProfileCache

FILLED = 1024  # tokens of context before the pieces
FEW, MAX_SECONDS = 16, 0.15  # rows of a first pass, and its seconds from which longer pieces would keep others waiting


def are_alike(model: LlamaModel, cache: ProfileCache) -> bool:
    """Return whether longer pieces give the same bits; tested now or at an earlier start.

    A model that seemed slow while other programs were busy is tested again at the first start at which they are not.
    """
    known = cache.read()
    if not known.keys() >= {"alike", "is_final"} or (not known["is_final"] and is_calm()):
        others = Neighbours()
        found = tested(model)
        known = {"alike": bool(found), "is_final": found is not None or others.are_calm()}
        cache.write(known)
    return bool(known["alike"])


def tested(model: LlamaModel) -> bool | None:
    """Return whether a piece of LONGER times PIECE tokens gives the same bits; None if the model is slow."""
    if model.is_recurrent:
        return False
    n_before = 0 if model.window else FILLED  # copies keep their positions, so a window would have all of them
    text = sample(model.vocab, LONGER * PIECE)
    n_cells, threads = n_before + len(text), usual_threads()
    try:
        with closing(FilledContext(model, model.cache_types, n_cells, len(text), threads)) as context:
            if n_before:
                context.fill(text[: 4 * FEW], n_before)
            if context.seconds(text[:FEW]) > MAX_SECONDS:
                return None
            return read(context, text, [len(text)]) == read(context, text, [PIECE] * LONGER)
    except ModelError:
        return False


def read(context: FilledContext, text: Tokens, sizes: list[int]) -> bytes:
    """Return the bits of the cache after reading `text` [n] in pieces, which are removed again."""
    for end, size in zip(np.cumsum(sizes), sizes, strict=True):
        context.decode(text[end - size : end], 0)
    found = context.state().tobytes()
    context.drop(len(text))
    return found
