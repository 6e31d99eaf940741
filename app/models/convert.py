"""`slipstream models convert-head`: writes the file of a head from a published checkpoint. Knows the terminal."""

from __future__ import annotations

from pathlib import Path

from app.models.pair import say
from runtime.core.errors import ModelError
from runtime.training.extra import TrainingError


def convert_head(folder: Path, output: Path) -> None:
    """Convert the checkpoint in `folder`. Raises SlipstreamError."""
    try:
        from runtime.training.own_head_file import write_own_head
        from runtime.training.published_heads import converted
    except ImportError as error:
        raise TrainingError(
            f"Converting needs {error.name}, which is not installed. Install it with `pip install 'slipstream[train]'`."
        ) from error
    found = converted(folder)
    try:
        write_own_head(output, found)
    except OSError as error:
        raise ModelError(f"{output} cannot be written ({error.strerror or error}). Choose another place.") from error
    named = f" for {found.target}" if found.target else ""
    say(f"Wrote {output}: {found.shape.n_heads} {found.kind} heads{named}, {found.n_vocab:,} tokens.")
