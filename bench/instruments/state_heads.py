"""Random Medusa, Hydra and EAGLE-1 heads for any target: as costly as real ones, and right only by chance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from gguf import GGUFWriter
from numpy.typing import NDArray

from bench.instruments.shapes import finish
from runtime.drafters.network import AttentionShape, NetworkShape, own_output
from runtime.drafters.registry import networks
from runtime.models.facts import ModelFacts
from runtime.models.header import read_model_header
from runtime.models.own_heads import OWN

Floats, Ids = NDArray[np.float32], NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class StateHeadShape:
    """The content of a head's file: `words` it can draft (0: as many as the target has), with output matrices of its
    own for `n_outputs` of the heads.
    """

    kind: str
    width: int
    vocab: int
    heads: int = 3
    layers: int = 1
    words: int = 0
    n_outputs: int = 0
    unknown: int = 0  # added to the last of its words
    attention: AttentionShape | None = None

    @property
    def network(self) -> NetworkShape:
        """Its dimensions."""
        return NetworkShape(self.width, self.heads, self.layers, self.attention)


def state_head_for(target: Path, kind: str = "medusa", **more: int) -> StateHeadShape:
    """Return the shape of a head for the target in that file."""
    facts = ModelFacts(read_model_header(target))
    width, attention = facts.own("embedding_length"), None
    if kind in networks() and networks()[kind].attends:
        attention = AttentionShape(2, 1, width // 2, 2 * width)
    return replace(StateHeadShape(kind, width, facts.n_vocab, attention=attention), **more)  # type: ignore[arg-type]


def random_weights(shape: StateHeadShape, seed: int = 0) -> dict[str, Floats]:
    """Return random weights by tensor name."""
    rng = np.random.default_rng(seed)
    kind = networks().get(shape.kind) or networks()["medusa"]
    sizes = kind.tensors(shape.network)
    sizes |= {own_output(i): (shape.words or shape.vocab, shape.width) for i in range(shape.n_outputs)}
    return {name: (rng.standard_normal(size) * size[-1] ** -0.5).astype(np.float32) for name, size in sizes.items()}


def write_state_head(
    path: Path,
    shape: StateHeadShape,
    seed: int = 0,
    weights: Mapping[str, Floats] | None = None,
    kept: Ids | None = None,
) -> Path:
    """Write a head, of random weights by default; its words are `kept`, or evenly spread over the target's."""
    writer, own = GGUFWriter(str(path), f"{OWN}{shape.kind}"), f"{OWN}{shape.kind}"
    writer.add_embedding_length(shape.width)
    writer.add_vocab_size(shape.vocab)
    writer.add_uint32(f"{own}.head_count", shape.heads)
    writer.add_uint32(f"{own}.layer_count", shape.layers)
    writer.add_string(f"{own}.target", "a random target")
    if shape.attention:
        writer.add_head_count(shape.attention.n_heads)
        writer.add_head_count_kv(shape.attention.n_kv)
        writer.add_feed_forward_length(shape.attention.ffn)
    for name, values in (weights or random_weights(shape, seed)).items():
        writer.add_tensor(name, values)
    if shape.words and kept is None:
        kept = np.linspace(0, shape.vocab - 1, shape.words).astype(np.int64)
        kept[-1] += shape.unknown
    if kept is not None:
        writer.add_tensor("d2t", kept)
    return finish(writer, path)
