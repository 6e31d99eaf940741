"""Describes DFlash and DSpark heads, which draft a block of tokens at once. DSpark adds a Markov head.

Reads headers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from runtime.models.facts import ModelFacts
from runtime.models.header import TensorInfo
from runtime.models.library_limits import MAX_LAYERS

DSPARK, DFLASH = "dspark", "dflash"  # the drafter, and the architecture
BEFORE, AFTER = "markov_w1.weight", "markov_w2.weight"  # the tables of a token, and of those that follow it
MASK = "tokenizer.ggml.mask_token_id"


@dataclass(frozen=True, slots=True)
class BlockShape:
    """The parameters of a DFlash or DSpark head."""

    layers: tuple[int, ...]  # target layers whose inputs it reads
    n_tokens: int  # tokens of a block, the known one included
    n_blank: int  # rows at the start of a block that predict nothing: 1, or 0 if the known token's row does
    mask: int  # the token that stands for one to be predicted
    is_causal: bool  # whether a token of the block sees only earlier ones


def is_dspark(facts: ModelFacts) -> bool:
    """Whether it is a DFlash head with a Markov head."""
    return facts.architecture == DFLASH and any(tensor.name == BEFORE for tensor in facts.header.tensors)


def n_blank(facts: ModelFacts) -> int:
    """Return the number of rows at the start of a block that predict nothing."""
    return int(not is_dspark(facts) or facts.header.metadata.get(f"{DFLASH}.sample_from_anchor") is False)


def is_whole(tensors: dict[str, TensorInfo], n_rows: int) -> bool:
    """Whether the Markov head has a row for each of `n_rows` drafted tokens."""
    return AFTER in tensors and tensors[AFTER].shape == (tensors[BEFORE].shape[0], n_rows)


def layers_of(head: ModelFacts) -> tuple[int, ...]:
    """Return the target's layers whose inputs the head reads."""
    value = head.header.metadata.get(f"{head.architecture}.target_layers")
    is_list = isinstance(value, np.ndarray) and np.issubdtype(value.dtype, np.integer)
    return tuple(int(layer) for layer in value[:MAX_LAYERS]) if is_list else ()  # type: ignore[index]


def block_of(head: ModelFacts) -> BlockShape:
    """Return the parameters of a DFlash or DSpark head."""
    is_causal = head.header.metadata.get(f"{DFLASH}.attention.causal") is True
    return BlockShape(layers_of(head), head.own("block_size"), n_blank(head), head.header.number(MASK), is_causal)
