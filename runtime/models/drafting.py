"""Decides from headers whether a model can be drafted for, and whether another one's tokens mean the same.

Knows headers and spellings; nothing is loaded or searched.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from runtime.core.errors import VocabError
from runtime.models.cache_layout import SNAPSHOTTED, STATEFUL, layers_named
from runtime.models.facts import WORDS, ModelFacts
from runtime.models.gguf_types import Strings
from runtime.models.header import Header


def why_undraftable(facts: ModelFacts) -> str:
    """Return the reason as a clause after a name and a colon; "" if drafts are possible."""
    if facts.pooling.is_pooled:
        return f"it is {'a reranking' if facts.pooling.ranks else 'an embedding'} model and writes no text"
    if facts.architecture not in SNAPSHOTTED and layers_named(facts, STATEFUL):
        return f"llama.cpp cannot take back what a draft leaves in the recurrent layers of {facts.architecture} models"
    return ""


@dataclass(frozen=True)
class HeaderVocab:
    """A vocabulary as the header of a file spells it."""

    header: Header

    @property
    def words(self) -> Strings:
        """The spelling of every token."""
        return self.header.strings(WORDS)

    @property
    def n_vocab(self) -> int:
        """Number of tokens."""
        return len(self.words)

    @cached_property
    def _texts(self) -> list[str]:
        return self.words.texts()

    def text(self, token: int) -> str:
        """Return the spelling of a token."""
        return self._texts[token]


class ComparableVocab(Protocol):
    """The part of a vocabulary that a comparison uses."""

    @property
    def n_vocab(self) -> int:
        """Number of tokens."""

    def text(self, token: int) -> str:
        """Return the spelling of a token."""


def compare_vocabularies(target: ComparableVocab, draft: ComparableVocab, target_name: str, draft_name: str) -> None:
    """Compare two vocabularies. Raises VocabError naming the first token that differs.

    Extra tokens at the end of one (padding) are harmless: they are never drafted.
    """
    if isinstance(target, HeaderVocab) and isinstance(draft, HeaderVocab) and target.words.agrees(draft.words):
        return
    for token in range(min(target.n_vocab, draft.n_vocab)):
        ours, theirs = target.text(token), draft.text(token)
        if ours != theirs:
            raise VocabError(
                f"{draft_name} cannot draft for {target_name}: token {token} is {ours!r} in the target and {theirs!r} "
                "in the draft. "
                "Choose a draft model of the same family, or run with `--draft off`."
            )


def are_alike(target: ComparableVocab, draft: ComparableVocab) -> bool:
    """Return whether the tokens of two vocabularies mean the same."""
    try:
        compare_vocabularies(target, draft, "", "")
    except VocabError:
        return False
    return True
