"""Encodes a place in a file to fill in, with the text around it. Knows a vocabulary; knows no editor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from runtime.core.backend import Tokenizer
from runtime.core.errors import SettingsError

NEEDED = ("prefix", "suffix", "middle")
FOR_REPLY = 4  # 1/n of the context is reserved for the text to be filled in
FOR_SUFFIX = 4  # 1/n of the rest is for the suffix, at most


@dataclass(frozen=True, slots=True)
class Infill:
    """The text before and after the place to fill in, and (name, text) of related files, the most useful last."""

    prefix: str
    suffix: str = ""
    files: tuple[tuple[str, str], ...] = ()


def infill_ids(infill: Infill, vocab: Tokenizer, fim: Mapping[str, int], n_ctx: int) -> list[int]:
    """Return the ids of prefix, suffix and the place to fill in, with the text nearest to it kept if not all fits.

    Raises SettingsError if the vocabulary lacks the tokens for it.
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
    """Return the last files that fit, each after its name, as repositories are laid out in training.

    Empty without files, and for a model that has no token between files.
    """
    if "file" not in fim:
        return []
    # Neither name is known here; models were trained with some
    before = [fim["repo"], *vocab.encode("project\n", special=False)] if "repo" in fim else []
    after = [fim["file"], *vocab.encode("filename\n", special=False)]
    kept: list[int] = []
    for name, text in reversed(files):
        ids = [fim["file"], *vocab.encode(f"{name}\n{text}", special=False)]
        if len(before) + len(ids) + len(kept) + len(after) > room:
            break
        kept = ids + kept
    return [*before, *kept, *after] if kept else []
