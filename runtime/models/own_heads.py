"""Describes the heads that are computed here, whose files have an own form: Medusa, Hydra and others.

A file is a GGUF of the architecture "slipstream-KIND", where KIND is the drafter's name. Keys under it:
`embedding_length` and `vocab_size` (the target's), `head_count` (tokens of a draft, at most), `layer_count` (of each
head), `target` (its name); those of a Llama layer, if it has one that attends.
Tensors: those that the kind needs (see its drafter's file); `output.weight`, or `head.N.output.weight` with an optional
`.bias`, or neither: then rows of the target's own matrix are used; `d2t`, the target's tokens of the output's rows, if
those are not all. Knows headers; reads no weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from runtime.drafters.network import OUTPUT, AttentionShape, NetworkShape, own_output
from runtime.drafters.registry import networks
from runtime.models.facts import ModelFacts
from runtime.models.trimmed import n_few

OWN = "slipstream-"  # the beginning of the architecture
UNKNOWN = "unknown head"  # instead of a drafter's name
TABLE = "d2t"
MAX_HEADS = 15  # tokens of the longest draft that is computed token by token
MAX_BLOCKS = 64  # layers of a head, at most: a header may claim any number
Sizes = dict[str, tuple[int, ...]]  # of tensors by name, as [out, in] or [out]


def is_own(facts: ModelFacts | None) -> bool:
    """Whether it is the file of a head that is computed here, of a known kind or not."""
    return facts is not None and facts.architecture.startswith(OWN)


def own_drafter(architecture: str) -> str:
    """Return the drafter for such an architecture; "" for others."""
    kind = architecture.removeprefix(OWN)
    return "" if kind == architecture else kind if kind in networks() else UNKNOWN


def unknown_kind(head: ModelFacts) -> str:
    """Return a clause that its kind is not known; "" if it is."""
    kind, known = head.architecture.removeprefix(OWN), sorted(networks())
    return (
        "" if kind in known else f"{kind[:40]!r} is not a kind of head that this Slipstream knows ({', '.join(known)})"
    )


def own_wanted_by(head: ModelFacts) -> str:
    """Return a description of its target."""
    if why := unknown_kind(head):
        return f"not used: {why}"
    n = "a head" if head.own("attention.head_count") else f"{head.own('head_count')} heads"
    what = f"{n} ({own_drafter(head.architecture)})"
    named = head.own_text("target") or "targets"
    return f"{what} for {named} of {head.own('vocab_size'):,} tokens and width {head.own('embedding_length'):,}"


def network_shape(head: ModelFacts) -> NetworkShape:
    """Return the dimensions that its header declares."""
    return NetworkShape(
        head.own("embedding_length"), head.own("head_count"), head.own("layer_count"), attention_shape(head)
    )


def attention_shape(head: ModelFacts) -> AttentionShape | None:
    """Return the dimensions of its Llama layer; None if there is none, or they are not as they must be."""
    width, n_heads, usual = head.own("embedding_length"), head.own("attention.head_count"), AttentionShape()
    n_kv, ffn = head.own("attention.head_count_kv") or n_heads, head.own("feed_forward_length")
    keys = "rope.freq_base", "attention.layer_norm_rms_epsilon"
    base, eps = (head.header.metadata.get(f"{head.architecture}.{key}") for key in keys)
    base = base if isinstance(base, float) and base > 0 else usual.rope_base
    eps = eps if isinstance(eps, float) and eps > 0 else usual.norm_eps
    return AttentionShape.of(width, n_heads, n_kv, ffn, base, eps)


def n_outputs(head: ModelFacts) -> int:
    """Return the number of words that it can draft: the rows of its output, or of the part of the target's in use."""
    sizes = sizes_of(head)
    own = next((sizes[name] for name in (OUTPUT, own_output(0), TABLE) if name in sizes), None)
    return own[0] if own else n_few(head.own("vocab_size")) or head.own("vocab_size")


def borrows_output(head: ModelFacts) -> bool:
    """Whether one of its heads uses the target's output matrix."""
    sizes = sizes_of(head)
    return OUTPUT not in sizes and any(
        own_output(i) not in sizes for i in range(min(head.own("head_count"), MAX_HEADS))
    )


def sizes_of(head: ModelFacts) -> Sizes:
    """Return the sizes of its tensors, slowest dimension first."""
    return {tensor.name: tensor.shape[::-1] for tensor in head.header.tensors}


def own_differences(head: ModelFacts, target: ModelFacts, path: Path) -> Iterator[str]:
    """Yield the reasons why the head, read from `path`, cannot draft for the target, as clauses, the most informative
    first.
    """
    kind, shape = head.architecture.removeprefix(OWN), network_shape(head)
    if unknown := unknown_kind(head):
        yield unknown
        return
    width = target.own("embedding_length")
    if shape.width != width:
        yield f"it reads states of {shape.width} values, and the target's have {width}"
    if head.own("vocab_size") != target.n_vocab:
        yield f"it is for {head.own('vocab_size'):,} tokens, and the target has {target.n_vocab:,}"
    if not shape.n_heads or not 0 < shape.n_layers <= MAX_BLOCKS:
        yield "it does not state how many heads and layers it has"
        return
    if networks()[kind].attends and shape.attention is None:
        yield "it does not state the shape of its layer"
        return
    if shape.n_heads > MAX_HEADS:
        yield f"it has {shape.n_heads} heads, and a draft has at most {MAX_HEADS} tokens"
        return
    yield from wrong_tensors(head, networks()[kind].tensors(shape))
    kept = kept_words(head, path)
    if kept is not None and (kept.min() < 0 or kept.max() >= target.n_vocab):
        yield "it drafts tokens that its target does not have"


def kept_words(head: ModelFacts, path: Path) -> NDArray[np.int64] | None:
    """Return the target's tokens that the head drafts, in the order of its output; None for all."""
    n, n_vocab, header = n_outputs(head), head.own("vocab_size"), head.header
    table = next((tensor for tensor in header.tensors if tensor.name == TABLE), None)
    if table is None:
        return None if n == n_vocab else np.arange(n)
    return np.fromfile(path, np.int64, n, offset=header.data_start + table.offset)


def wrong_tensors(head: ModelFacts, needed: Sizes) -> Iterator[str]:
    """Yield the faults of the head's tensors; `needed` are those of its kind."""
    sizes, shape, n_words = sizes_of(head), network_shape(head), n_outputs(head)
    outputs = {own_output(i): (n_words, shape.width) for i in range(shape.n_heads)}
    biases = {name.replace("weight", "bias"): (n_words,) for name in outputs}
    wanted = needed | outputs | biases | {OUTPUT: (n_words, shape.width), TABLE: (n_words,)}
    yield from (f"it has no {name}" for name in needed if name not in sizes)
    for name, size in sizes.items():
        if name not in wanted:
            yield f"it has the tensor {name[:60]!r}, which no {head.architecture.removeprefix(OWN)} head has"
        elif size != wanted[name]:
            yield f"{name} has the size {size}, not {wanted[name]}"
    if any(tensor.name == TABLE and tensor.kind != "I64" for tensor in head.header.tensors):
        yield "the table of the tokens that it drafts is not of integers"
    if TABLE not in sizes and n_words != head.own("vocab_size") and not borrows_output(head):
        yield f"it drafts {n_words:,} tokens and does not state which"
