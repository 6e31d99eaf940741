"""Opens a target's vision encoder: the one that its pair names, or the one in the folder of its file.

An encoder that nobody named is left out, with the reason, where it cannot be used. Knows files and the target.
"""

from __future__ import annotations

from pathlib import Path

from runtime.backends.model import LlamaModel
from runtime.backends.mtmd_library import is_built
from runtime.backends.vision import VisionEncoder
from runtime.core.backend import OnProgress
from runtime.core.errors import HeadError, ModelError
from runtime.loading.fit import PairSpec
from runtime.loading.options import Options
from runtime.loading.pass_timing import usual_threads
from runtime.loading.probing import check_encoder
from runtime.models.projector import projector_near, read_projector
from runtime.models.registry import Pair


def projector_of(pair: Pair, options: Options) -> Path | None:
    """Return the file of the vision encoder to open; None if there is none, or none is wanted."""
    return (pair.mmproj or projector_near(pair.target)) if options.sees_images else None


def n_needed(pair: Pair, options: Options) -> int:
    """Return the bytes that the vision encoder will take. Raises ModelError for a named one that cannot be used."""
    path = projector_of(pair, options)
    try:
        return read_projector(path).n_needed if path else 0
    except ModelError:
        if pair.mmproj:
            raise
        return 0


def open_eyes(target: LlamaModel, pair: Pair, options: Options, on_progress: OnProgress) -> None:
    """Open the target's vision encoder, after it was tried in another process. Raises ModelError for a named one that
    cannot be used, and KeyboardInterrupt if `on_progress` returned False.
    """
    if (path := projector_of(pair, options)) is None:
        return
    try:
        try_eyes(pair.target, path, on_progress)
        target.vision = VisionEncoder(path, target, options.threads or usual_threads(), not options.without_gpu)
    except ModelError as error:
        if pair.mmproj:
            raise
        target.why_blind = str(error)  # told only to those who send images


def try_eyes(target: Path, path: Path, on_progress: OnProgress) -> None:
    """Try a vision encoder, where the library can encode images. Raises ModelError and KeyboardInterrupt."""
    read_projector(path)
    if is_built():
        try:
            check_encoder(target, path, on_progress)
        except HeadError as error:
            text = str(error)
            remedy = "" if text.endswith(".") else ". Download it again, or leave it out to use the model for text."
            raise ModelError(text + remedy) from error


def with_encoder(target: LlamaModel, spec: PairSpec | None, n_ctx: int, with_draft: bool) -> int:
    """Return the bytes that a pair takes by plan, with the target's vision encoder; 0 if they are unknown."""
    if spec is None:
        return 0
    return spec.needs(n_ctx, with_draft) + (target.vision.n_needed if target.vision else 0)
