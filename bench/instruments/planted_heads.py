"""Heads for planted targets (see planted.py) with a chosen acceptance rate: benefit and cost of a useful head without a
training.

A row of the head becomes the direction of its token alone, from which the target's output matrix derives the next word.
In the wrong places the head's own table reads another word. Its layers cost as much as a trained head's, and its
attention attends to its own row only. DFlash heads propose several tokens from one state and cannot be planted, so
theirs is random.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import quantize

from bench.instruments.architectures.families import FAMILIES
from bench.instruments.architectures.writer import ADDERS, random_tensors, write
from bench.instruments.heads import begin_head, block_head_for, head_for, state_head_for, write_head, write_state_head
from bench.instruments.planted import (
    LOUD,
    MAX_WORDS,
    N_CTX,
    Floats,
    add_words,
    directions,
    embeddings,
    head,
    misread,
    plant,
    walk,
)
from bench.instruments.shapes import DRAFT_10M, Shape, finish
from runtime.drafters.network import OUTPUT, own_output
from runtime.drafters.registry import networks
from runtime.models.registry import Pair, load_registry

LIKELY, CHANGE = 0.7, 256  # the defaults of `plant`
SHARP = 2.0  # length of queries and keys relative to a direction's: a row's own key dominates all others
QUIET = 0.02  # size of the feed-forward layer's weights
WALK = "walk"  # name of the vocabulary with the walk's words


def plant_eagle(
    pair: Pair,
    shape: Shape,
    acceptance: float | tuple[float, float],
    words: int = MAX_WORDS,
    seed: int = 0,
    *,
    change: int = CHANGE,
    name: str = "eagle",
) -> Pair:
    """Return the planted pair with an EAGLE-3 head instead of the draft model, in a file of that name in the target's
    folder.

    The target must have that shape. The head can propose all of the walk's words, and as many other tokens.
    """
    rng, order, places = walked(shape.vocab, shape.width, words, seed)
    wanted = replace(head_for(pair.target), heads=shape.heads, ffn=shape.ffn)
    told = " then ".join(f"{share:.0%}" for share in np.atleast_1d(acceptance))
    path = pair.target.with_name(f"{name} {told}.gguf")
    writer = begin_head(path, wanted, kv_heads=shape.heads)
    writer.add_bool("eagle3.norm_before_residual", True)
    same, n = np.eye(shape.width, dtype=np.float32), shape.width
    own = {"q": SHARP * same, "k": SHARP * same, "v": same}  # applied to a row's input, its token and then a state
    drafted = np.unique(np.append(order, rng.permutation(shape.vocab)[: len(order)]))
    writer.add_tensor("d2t", drafted, raw_dtype=GGMLQuantizationType.I64)
    read = misread(len(order), acceptance, change, rng)
    tensors = {
        "token_embd": embeddings(shape.vocab, order, places, read, 0.0, rng),
        "output": head(shape.vocab, order, places, LIKELY)[drafted],
        "fc": np.zeros((n, 3 * n), dtype=np.float32),
        **{f"blk.0.attn_{name}": np.hstack([matrix, 0 * same]) for name, matrix in own.items()},
        "blk.0.attn_output": LOUD * same,
        **feed_forward("blk.0", shape, rng),
    }
    add_all(writer, tensors, n, ("blk.0.attn_norm", "blk.0.attn_norm_2", "blk.0.ffn_norm"))
    return replace(pair, draft=finish(writer, path), name=f"planted {name} {told}")


def plant_state_heads(
    pair: Pair, shape: Shape, kind: str, acceptance: float, words: int = MAX_WORDS, seed: int = 0, heads: int = 3
) -> Pair:
    """Return the planted pair with Medusa, Hydra or EAGLE-1 heads instead of the draft model, in a file in the target's
    folder.

    The target must have that shape. Each Medusa or Hydra head is right in other places, with the same acceptance rate.
    They can propose all of the walk's words. A Medusa head looks further from the state's word, the others from the
    last drafted one.
    """
    rng, order, places = walked(shape.vocab, shape.width, words, seed)
    wanted = replace(state_head_for(pair.target, kind), heads=heads)
    found, drafted = dict[str, Floats](), np.sort(order)
    for name, size in networks()[kind].tensors(wanted.network).items():
        found[name] = QUIET / LOUD * size[-1] ** -0.5 * rng.standard_normal(size, dtype=np.float32)
    by_word = np.eye(shape.width, dtype=np.float32) / np.float32(LOUD * shape.width**0.5)
    for name in [name for name in found if name.endswith("skip.weight")]:
        found[name][:, -shape.width :] += by_word  # the embedding of the last token that it reads
    if kind == "eagle1":
        found["fc.weight"][:, : shape.width] += by_word
    for i in range(1 if kind == "eagle1" else heads):
        read = misread(len(order), acceptance, CHANGE, rng)
        pointed = np.roll(places[np.argsort(read)], 1 + i if kind == "medusa" else 0, axis=0)
        name = OUTPUT if kind == "eagle1" else own_output(i)
        found[name] = head(shape.vocab, order, pointed, LIKELY)[drafted]
    told = f"{kind} {acceptance:.0%}"
    path = write_state_head(pair.target.with_name(f"{told}.gguf"), wanted, weights=found, kept=drafted)
    return replace(pair, draft=path, name=f"planted {told}")


def plant_mtp(
    folder: Path,
    name: str,
    width: int,
    layers: int,
    vocab: int,
    acceptance: float,
    words: int = MAX_WORDS,
    seed: int = 0,
) -> Pair:
    """Return a model of that family, with `layers` layers and one drafting layer, which knows the walk and drafts it.

    With an acceptance rate of 1 it has no embedding table of its own.
    """
    rng, order, places = walked(vocab, width, words, seed)
    own = {"block_count": layers + 1, "embedding_length": width, "feed_forward_length": 3 * width}
    kind = FAMILIES[name]
    ADDERS[WALK] = partial(add_words, n_vocab=vocab)
    family = replace(
        kind,
        metadata={**kind.metadata, **own, "context_length": N_CTX},
        vocabulary=WALK,
        dropped=r"nextn\.(embed_tokens|shared_head_head)" if acceptance == 1 else r"nextn\.shared_head_head",
        is_tied=False,
    )
    tensors, last = random_tensors(name, folder, seed, family), f"blk.{layers}.nextn"
    read = misread(len(order), acceptance, CHANGE, rng)
    same, even = np.eye(width, dtype=np.float32), np.full(width, width**-0.5, dtype=np.float32)
    tensors |= {
        "token_embd.weight": embeddings(vocab, order, places, np.arange(len(order)), 0.0, rng),
        f"{last}.eh_proj.weight": np.hstack([LOUD * same, 0 * same]),  # applied to a token and the state before it
        f"{last}.enorm.weight": np.ones(width, dtype=np.float32),
        f"{last}.shared_head_norm.weight": even,
        "output.weight": head(vocab, order, places, LIKELY),
        "output_norm.weight": even,
    }
    if acceptance < 1:
        tensors[f"{last}.embed_tokens.weight"] = embeddings(vocab, order, places, read, 0.0, rng)
    path = write(folder / f"{name} {acceptance:.0%}.gguf", name, family, tensors)
    return Pair(f"planted mtp, {name} {acceptance:.0%}", path, context=N_CTX)


def walked(vocab: int, width: int, words: int, seed: int) -> tuple[np.random.Generator, np.ndarray, Floats]:
    """Return a random generator for the head, the walk of such a pair's target, and the directions of its words."""
    order = walk(vocab, words, seed)
    places = directions(len(order), width, np.random.default_rng([seed, 2]))
    return np.random.default_rng([seed, 4]), order, places


def feed_forward(layer: str, shape: Shape, rng: np.random.Generator) -> dict[str, Floats]:
    """Return small random weights."""
    n, inner = shape.width, shape.ffn
    shapes = {"ffn_gate": (inner, n), "ffn_up": (inner, n), "ffn_down": (n, inner)}
    return {f"{layer}.{name}": QUIET * rng.standard_normal(each, dtype=np.float32) for name, each in shapes.items()}


def add_all(writer: GGUFWriter, tensors: dict[str, Floats], width: int, norms: tuple[str, ...]) -> None:
    """Add matrices in Q8_0, and norms; only the last norm changes its input."""
    for name, rows in tensors.items():
        kind = GGMLQuantizationType.Q8_0
        writer.add_tensor(f"{name}.weight", quantize(rows, kind), raw_dtype=kind)
    for name in norms:
        writer.add_tensor(f"{name}.weight", np.ones(width, dtype=np.float32))
    writer.add_tensor("output_norm.weight", np.full(width, width**-0.5, dtype=np.float32))


MTP_FAMILIES = "qwen35mtp", "glm4moe"
HEADS = "eagle", "dflash", "dspark", *networks()
WIDTH, LAYERS, VOCAB = 512, 12, 32_768  # of planted targets with a drafting layer


def random_head(path: Path, target: Path, drafter: str, words: int) -> Path:
    """Write a head for that drafter, right only by chance, which can propose `words` tokens."""
    if drafter in networks():
        return write_state_head(path, state_head_for(target, drafter, words=words))
    block = {"dflash": {}, "dspark": {"rank": 8}}.get(drafter)
    return write_head(path, head_for(target, words) if block is None else block_head_for(target, words, **block))


def random_dflash(folder: Path) -> Pair:
    """Return the bundled target with a DFlash head that is right only by chance."""
    demo = load_registry()["demo"]
    return replace(demo, draft=write_head(folder / "dflash.gguf", block_head_for(demo.target)), name="random dflash")


def planted_heads(folder: Path, shape: Shape, shares: Sequence[float], words: int) -> Iterator[tuple[Pair, int]]:
    """Yield each pair with the vocabulary size of its target."""
    for share in shares:
        pair = plant(folder / f"eagle {share:.0%}", shape, DRAFT_10M, share, words=words)
        yield plant_eagle(pair, shape, share, words), shape.vocab
        for kind in networks():
            yield plant_state_heads(pair, shape, kind, share, words), shape.vocab
        for family in MTP_FAMILIES:
            yield plant_mtp(folder, family, WIDTH, LAYERS, VOCAB, share, words), VOCAB
