"""Random heads for any target: as costly as real ones, and right only by chance.

EAGLE-3, DFlash and DSpark heads run in llama.cpp, Medusa, Hydra and EAGLE-1 heads (state heads) in NumPy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter
from numpy.typing import NDArray

from bench.instruments.shapes import finish
from runtime.drafters.network import AttentionShape, NetworkShape, own_output
from runtime.drafters.registry import networks
from runtime.engine import Ids, Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.models.facts import ModelFacts
from runtime.models.header import read_model_header
from runtime.models.own_heads import OWN
from runtime.models.registry import Pair

PROMPT = tuple(range(300, 340))  # ids that tiny targets have


@dataclass(frozen=True, slots=True)
class HeadShape:
    """The shape of a head: its target's sizes, and its own."""

    width: int  # of the target's states
    vocab: int
    layers: tuple[int, ...] = (0, 1, 1)
    heads: int = 2
    ffn: int = 64
    words: int = 0  # tokens that it can propose; 0: all, by the target's output matrix
    own_table: bool = False
    unknown: int = 0  # added to the highest token that it can propose
    block: int = 0  # tokens of a block, of a DFlash head; 0: an EAGLE-3 head
    depth: int = 1  # layers
    window: int = 0  # sliding window of every other layer, in tokens; 0: no windows
    has_parts: bool = False  # whether positions have several sections, as in the target
    mask: int | None = 1
    rank: int = 0  # of the Markov head of a DSpark head
    from_known: bool = True  # whether its first row is that of the known token
    extra: str = ""  # the name of a tensor that makes it another kind of head

    @property
    def length(self) -> int:
        """Values of an attention head."""
        return self.width // self.heads

    @property
    def matrices(self) -> dict[str, tuple[int, int]]:
        """Rows and columns by name."""
        n, read = self.width, self.width if self.block else 2 * self.width
        found = {"fc.weight": (n, max(1, len(self.layers)) * n)}
        for i in range(self.depth):
            found |= {
                f"blk.{i}.attn_q.weight": (n, read), f"blk.{i}.attn_k.weight": (self.length, read),
                f"blk.{i}.attn_v.weight": (self.length, read), f"blk.{i}.attn_output.weight": (n, n),
                f"blk.{i}.ffn_gate.weight": (self.ffn, n), f"blk.{i}.ffn_up.weight": (self.ffn, n),
                f"blk.{i}.ffn_down.weight": (n, self.ffn),
            }  # fmt: skip
        if self.own_table:
            found["token_embd.weight"] = self.vocab, n
        if self.words:
            found["output.weight"] = self.words, n
        if self.rank:
            found |= {
                "markov_w1.weight": (self.vocab, self.rank),
                "markov_w2.weight": (self.words or self.vocab, self.rank),
            }
        return found | ({self.extra: (self.vocab, 4)} if self.extra else {})

    @property
    def norms(self) -> dict[str, int]:
        """Numbers of values by name."""
        found = {"output_norm.weight": self.width}
        own = {"attn_q_norm": self.length, "attn_k_norm": self.length} if self.block else {"attn_norm_2": self.width}
        for i in range(self.depth):
            found |= {f"blk.{i}.{name}.weight": n for name, n in own.items()}
            found |= {f"blk.{i}.{name}.weight": self.width for name in ("attn_norm", "ffn_norm")}
        return found | ({"enc.output_norm.weight": self.width} if self.block else {})


def head_for(target: Path, words: int = 0, **more: int) -> HeadShape:
    """Return the shape of a head for the target in that file."""
    facts = ModelFacts(read_model_header(target))
    n = facts.n_trunk_layers
    layers = (min(1, n - 1), n // 2, n - 1)
    return HeadShape(facts.own("embedding_length"), facts.n_vocab, layers, words=words, **more)


def block_head_for(target: Path, words: int = 0, **more: int) -> HeadShape:
    """Return the shape of a DFlash head of two layers."""
    return head_for(target, words, block=6, depth=2, **more)


def write_head(path: Path, shape: HeadShape, seed: int = 0) -> Path:
    """Write a head without the words of a vocabulary."""
    rng = np.random.default_rng(seed)
    writer = begin_head(path, shape)
    if shape.words:
        tokens = np.sort(rng.choice(shape.vocab, shape.words, replace=False)).astype(np.int64)
        tokens[-1] += shape.unknown
        writer.add_tensor("d2t", tokens, raw_dtype=GGMLQuantizationType.I64)
    for name, (rows, columns) in shape.matrices.items():
        values = rng.standard_normal((rows, columns)) * columns**-0.5
        writer.add_tensor(name, values.astype(np.float32))
    for name, n in shape.norms.items():
        writer.add_tensor(name, (1 + 0.1 * rng.standard_normal(n)).astype(np.float32))
    return finish(writer, path)


def begin_head(path: Path, shape: HeadShape, kv_heads: int = 1) -> GGUFWriter:
    """Return a writer with the metadata."""
    writer = GGUFWriter(str(path), "dflash" if shape.block else "eagle3")
    writer.add_context_length(2048)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.depth)
    writer.add_feed_forward_length(shape.ffn)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(shape.length)
    writer.add_rope_freq_base(10000.0)
    writer.add_tokenizer_model("no_vocab")
    writer.add_vocab_size(shape.vocab)
    writer.add_array(f"{writer.arch}.target_layers", list(shape.layers))
    (add_block if shape.block else add_width)(writer, shape)
    return writer


def add_width(writer: GGUFWriter, shape: HeadShape) -> None:
    """Add the metadata of an EAGLE-3 head."""
    writer.add_uint32("eagle3.target_hidden_size", shape.width)


def add_block(writer: GGUFWriter, shape: HeadShape) -> None:
    """Add the metadata of a DFlash head."""
    writer.add_uint32("dflash.block_size", shape.block)
    if not shape.from_known:
        writer.add_bool("dflash.sample_from_anchor", False)
    writer.add_key_length(shape.length)
    writer.add_value_length(shape.length)
    if shape.mask is not None:
        writer.add_mask_token_id(shape.mask)
    if shape.has_parts:
        writer.add_rope_dimension_sections([shape.length // 2, 0, 0, 0])
    if shape.window:
        writer.add_sliding_window(shape.window)
        writer.add_sliding_window_pattern([i % 2 == 0 for i in range(shape.depth)])


def replies_with_and_without(
    pair: Pair, drafter: str, sampling: Sampling, slots: int
) -> tuple[list[tuple[int, ...]], int]:
    """Return the replies to PROMPT without drafts and with three tokens of that drafter per pass, and the number of
    draft tokens.
    """
    options = Options(512, fixed_k=3, threads=1, slots=slots)
    collected, n_drafted = list[tuple[int, ...]](), 0
    for drafters in ((), (drafter,)):
        engine = LoadedEngine(pair, replace(options, drafters=drafters))
        chunks = list(engine.reply(Ids(PROMPT), sampling, 40))
        collected.append(tuple(token for chunk in chunks for token in chunk.tokens))
        n_drafted = chunks[-1].stats.draft_n if chunks[-1].stats else 0
        engine.close()
    return collected, n_drafted


Floats = NDArray[np.float32]


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
    kept: NDArray[np.int64] | None = None,
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
