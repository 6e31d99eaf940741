"""Prompts that are neither text nor a conversation: token ids, and a place in a file to be filled in.

Knows ids; knows no editor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from runtime.core.backend import Tokenizer
from runtime.core.errors import SettingsError

NEEDED = ("prefix", "suffix", "middle")
FOR_REPLY = 4  # one part in so many of the context is left for what is to be filled in
FOR_SUFFIX = 4  # and of the rest, the suffix gets at most one part in so many


@dataclass(frozen=True, slots=True)
class Ids:
    """A prompt that is tokens already."""

    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Infill:
    """What stands before and after the place, and (name, text) of other files that may help, the most useful last."""

    prefix: str
    suffix: str = ""
    files: tuple[tuple[str, str], ...] = ()


def infill_ids(infill: Infill, vocab: Tokenizer, fim: Mapping[str, int], n_ctx: int) -> list[int]:
    """Prefix, suffix, then the place; the nearest text is kept where not all has room.

    Raises SettingsError without the tokens for it.
    """
    if missing := [name for name in NEEDED if name not in fim]:
        raise SettingsError(
            f"This model cannot fill in the middle: its vocabulary has no {missing[0]} token for that. "
            "Choose a code model that can, or send the text before the cursor as an ordinary prompt."
        )
    room = n_ctx - n_ctx // FOR_REPLY - len(NEEDED) - 1
    suffix = vocab.encode(infill.suffix, special=False)[: room // FOR_SUFFIX]
    prefix = vocab.encode(infill.prefix, special=False)
    prefix = prefix[max(0, len(prefix) + len(suffix) - room) :]
    files = _files(infill.files, vocab, fim, room - len(prefix) - len(suffix))
    return [*files, fim["prefix"], *prefix, fim["suffix"], *suffix, fim["middle"]]


def _files(files: tuple[tuple[str, str], ...], vocab: Tokenizer, fim: Mapping[str, int], room: int) -> list[int]:
    """The last of the files that fit, each after its name; none for a model that has no token between files."""
    if "file" not in fim:
        return []
    kept: list[int] = []
    for name, text in reversed(files):
        ids = [fim["file"], *vocab.encode(f"{name}\n{text}", special=False)]
        if len(ids) + len(kept) > room:
            break
        kept = ids + kept
    return kept
