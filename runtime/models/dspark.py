"""Recognizes DSpark heads: DFlash heads in whose file there is also a Markov head. Reads headers."""

from __future__ import annotations

from runtime.models.facts import ModelFacts
from runtime.models.header import TensorInfo

DSPARK, DFLASH = "dspark", "dflash"  # the drafter, and the architecture
BEFORE, AFTER = "markov_w1.weight", "markov_w2.weight"  # the tables of a token, and of those that follow it


def is_dspark(facts: ModelFacts) -> bool:
    """Whether it is a DFlash head with a Markov head."""
    return facts.architecture == DFLASH and any(tensor.name == BEFORE for tensor in facts.header.tensors)


def n_blank(facts: ModelFacts) -> int:
    """Return the number of rows at the start of a block that predict nothing."""
    return int(not is_dspark(facts) or facts.header.metadata.get(f"{DFLASH}.sample_from_anchor") is False)


def is_whole(tensors: dict[str, TensorInfo], n_rows: int) -> bool:
    """Whether the Markov head has a row for each of `n_rows` drafted tokens."""
    return AFTER in tensors and tensors[AFTER].shape == (tensors[BEFORE].shape[0], n_rows)
