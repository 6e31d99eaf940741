"""What a file says of pooling: whether its model makes vectors or scores of texts, and how. Knows metadata; reads no
file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

LAST, RANK = 3, 4  # llama.h, enum llama_pooling_type; 0 is none, 1 the mean, 2 the first token
# Embedding models whose attention looks both ways, without a cache
ENCODERS = frozenset(
    "bert eurobert gemma-embedding jina-bert-v2 jina-bert-v3 modern-bert neo-bert nomic-bert nomic-bert-moe".split()
)
# Names of models that were trained so that their vectors may be cut, by their authors' model cards
NESTED = re.compile(
    r"nomic-embed-text-v(1\.5|2)|qwen3-embedding|embedding-?gemma|gemma-embedding|jina-embeddings-v[3-9]|"
    r"mxbai-embed-(large|xsmall)|arctic-embed-.*v(1\.5|2)|modernbert-embed",
    re.IGNORECASE,
)
SEPARATORS = re.compile(r"[\s_]+")


@dataclass(frozen=True, slots=True)
class PoolingKind:
    """How a model's outputs are pooled over the tokens of a text: `number` is llama.cpp's, 0 if the file names none."""

    architecture: str
    number: int
    is_causal: bool = True  # as far as the file says

    @property
    def looks_back(self) -> bool:
        """Whether attention looks back only, so that a text may be read in pieces."""
        return self.is_causal and self.architecture not in ENCODERS

    @property
    def is_pooled(self) -> bool:
        """Whether it is an embedding or a reranking model, which writes no text."""
        return self.number > 0 or not self.looks_back

    @property
    def ranks(self) -> bool:
        """Whether it is a reranking model."""
        return self.number == RANK

    @property
    def reads_last(self) -> bool:
        """Whether only the last token of a text counts, and no token looks ahead."""
        return self.looks_back and self.number in (LAST, RANK)


def is_nested(names: Iterable[str], tags: Iterable[str]) -> bool:
    """Return whether the first numbers of a model's vectors are vectors too (Matryoshka), as far as is known of a model
    of these names and tags.
    """
    return "matryoshka" in map(str.lower, tags) or any(NESTED.search(SEPARATORS.sub("-", name)) for name in names)
