"""Stored prompts of an engine: the prompt cache on disk, and conversations that are saved to files which the user
names, and restored from them, like llama.cpp's slots.
"""

from __future__ import annotations

import json
import os
import secrets
import zipfile
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.backends.llama import LlamaBackend
from runtime.backends.stored.checkpoints import Checkpoint
from runtime.backends.stored.saved_states import SavedState
from runtime.backends.translated import TranslatedBackend
from runtime.core.draft import NO_TOKEN, Tokens, seen
from runtime.core.errors import SettingsError
from runtime.core.outside import require_plain
from runtime.engine.ahead import answering
from runtime.engine.core import EngineCore
from runtime.engine.prefixes import DraftPrefixes, Prefixes
from runtime.engine.stored_states import StoredStates, model_key, opened_draft_store, opened_store
from runtime.loading.loaded_pair import LoadedPair
from runtime.loading.planning import MODEL

FORM = "slipstream conversation 1"
DAMAGED = (
    OSError,
    ValueError,
    TypeError,
    KeyError,
    EOFError,
    OverflowError,
    NotImplementedError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
)


def save(backend: LlamaBackend, number: int, path: Path, model: str) -> tuple[int, int]:
    """Save a conversation; number 0 is the one used last. Return its number of tokens and the file size in bytes.

    Raises SettingsError.
    """
    held = [each for each in backend.conversations() if len(each.tokens)]
    if number >= len(held) or (state := held[number].copy(0)) is None:
        raise SettingsError(f"Slot {number} has no conversation that can be saved. Request a reply first.")
    points = state.checkpoints or ()
    known: dict[str, Any] = {"form": FORM, "model": model, "n_asked": state.n_asked, "cuts": state.checkpoints is None}
    known |= {"n_exact": state.n_exact, "tokens": state.tokens, "state": state.state}
    known |= {f"point_{each.n}": each.state for each in points}
    known |= {"adapters": json.dumps(state.adapters)} if state.adapters else {}
    new = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    try:
        if os.path.lexists(path) and not is_saved(path):  # also a link that leads nowhere
            raise refused(path, "is a file that is no saved conversation. Save elsewhere.")
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            np.savez(file, **known)
        new.replace(path)
        return n_asked(state), path.stat().st_size
    except OSError as error:
        with suppress(OSError):
            new.unlink(missing_ok=True)
        raise refused(path, f"cannot be written ({error.strerror}). Free the disk or save elsewhere.") from error


def restore(backend: LlamaBackend, path: Path, model: str) -> tuple[int, int]:
    """Load a saved conversation into the context. Return its number of tokens and the file size in bytes.

    Raises SettingsError.
    """
    state = read(path, model, backend.saved.grain)
    if len(state.tokens) >= backend.n_ctx:
        raise refused(
            path, f"has {len(state.tokens)} tokens, and the context holds {backend.n_ctx}. Raise `--context`."
        )
    if any(key not in backend.model.adapters.keys for key, _ in state.adapters):
        raise refused(path, "was saved with a LoRA adapter that is not loaded. Name it with `--lora`.")
    backend.saved.fetched.append(state)
    backend.use(state.adapters)
    backend.resume(np.append(state.tokens, np.int32(0)))
    return n_asked(state), path.stat().st_size


def refused(path: Path, why: str) -> SettingsError:
    """Return the error for a file, by its name in the request: the folder is no client's business."""
    return SettingsError(f"filename '{path.name}' {why}")


def n_asked(state: SavedState) -> int:
    """Return the number of tokens of a conversation, without draft tokens after them."""
    return min(len(state.tokens), state.n_asked)


def read(path: Path, model: str, grain: int) -> SavedState:
    """Return the conversation in a file. Raises SettingsError if it is invalid or of another model or build."""
    try:
        require_plain(path)
        require_size(path)
        with np.load(path, allow_pickle=False) as file:
            if str(file["form"]) != FORM or str(file["model"]) != model:
                raise refused(path, "was saved with another model, build or layout. Save it again with this one.")
            return checked(file, grain)
    except DAMAGED as error:
        raise refused(path, "is not a saved conversation, or it is damaged. Save it again.") from error


def require_size(path: Path) -> None:
    """Raise ValueError for an archive whose parts claim more bytes than the file has: they are stored as they are."""
    with zipfile.ZipFile(path) as archive:
        if sum(part.file_size for part in archive.infolist()) > path.stat().st_size:
            raise ValueError("it claims to be larger than it is")


def is_saved(path: Path) -> bool:
    """Whether a file is a saved conversation of any model, and no link."""
    try:
        require_plain(path)
        with zipfile.ZipFile(path) as archive:
            return not path.is_symlink() and {"form.npy", "model.npy", "state.npy"} <= {*archive.namelist()}
    except DAMAGED:
        return False


def checked(file: Mapping[str, Any], grain: int) -> SavedState:
    """Return the conversation of a file. Raises ValueError for values that none has."""
    names = [name for name in file if name.startswith("point_")]
    points = tuple(Checkpoint(int(name.removeprefix("point_")), row(file[name], np.uint8)) for name in names)
    tokens, n_exact, n_asked = row(file["tokens"], np.int32), int(file.get("n_exact", 0)), int(file["n_asked"])
    if not all(0 <= n <= len(tokens) for n in (n_exact, *(each.n for each in points))) or n_asked < 0:
        raise ValueError("a count is none of its tokens")
    if not len(tokens) or (tokens == NO_TOKEN).any():
        raise ValueError("it has no tokens")
    adapters = tuple((str(key), float(scale)) for key, scale in json.loads(str(file.get("adapters", "[]"))))
    state = SavedState(tokens, row(file["state"], np.uint8), n_asked, points, grain, n_exact, adapters)
    return replace(state, checkpoints=None) if bool(file["cuts"]) else state


def row(values: NDArray[Any], kind: type[np.generic]) -> NDArray[Any]:
    """Return a row of values of that type. Raises ValueError for others."""
    if values.ndim != 1 or values.dtype != kind:
        raise ValueError("a part has another type or shape")
    return values


def erase(backend: LlamaBackend, number: int) -> tuple[int, int]:
    """Drop a conversation from the cache. Return its number of tokens and 0; (0, 0) if there is none."""
    held = [each for each in backend.conversations() if len(each.tokens)]
    if number >= len(held):
        return 0, 0
    held[number].erase()
    return len(held[number].tokens), 0


class KeptPrompts:
    """The stored prompts of a loaded pair."""

    def __init__(self, loaded: LoadedPair, core: EngineCore) -> None:
        self._loaded, self._core = loaded, core
        if store := opened_store(loaded):
            states = StoredStates(store, self._is_busy)
            core.prefixes = Prefixes(loaded.backend, states, loaded.roundings.are_exact, self._of_draft())

    def _is_busy(self) -> bool:
        return not self._core.is_idle

    def _of_draft(self) -> DraftPrefixes | None:
        """Return the stored prompts of the draft model; None if there is none, or another kind of draft."""
        draft, store = self._loaded.draft, opened_draft_store(self._loaded)
        if draft is None or store is None:
            return None
        n_seen = draft.backend.n_ctx - self._loaded.options.max_k

        def view(context: Tokens) -> Tokens:
            backend = draft.backend
            return backend.in_draft(context) if isinstance(backend, TranslatedBackend) else seen(context, n_seen)

        def token_seconds() -> float:
            states = self._core.decoder.controller.states
            return states[MODEL].prefill_seconds if MODEL in states else 0.0

        return DraftPrefixes(draft, StoredStates(store, self._is_busy), view, token_seconds)

    def keep(self) -> bool:
        """Begin to store a conversation while the engine is idle. Return whether more may follow."""
        is_calm = self._core.decoder.active.memory_level == "OK"
        return is_calm and self._core.prefixes is not None and self._core.prefixes.keep()

    def handle(self, action: str, number: int, path: str) -> tuple[int, int]:
        """See `Engine.conversation`."""
        if answering((*self._core.preparing, *self._core.scheduler.all)):
            raise SettingsError("A reply is being generated. Try again when it has ended.")
        if action == "save":
            return save(self._loaded.backend, number, Path(path), model_key(self._loaded))
        if action == "restore":
            return restore(self._loaded.backend, Path(path), model_key(self._loaded))
        return erase(self._loaded.backend, number)

    def close(self, on_progress: Callable[[], object]) -> None:
        """Store the conversations that are worth it; see Prefixes."""
        if self._core.prefixes:
            self._core.prefixes.close(on_progress)
