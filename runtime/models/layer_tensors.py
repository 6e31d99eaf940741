"""Lists the tensors that a layer must have together, and checks shapes that must match the header's numbers.

Covers only cases that llama.cpp does not check before use. Knows tensors' names; reads no file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from runtime.models.facts import ModelFacts
from runtime.models.header import Header
from runtime.models.library_limits import ALL, DELTA_NETS, MAMBAS, OWN_LENGTHS, ROTATED_SHAPES, Names

LAYER = re.compile(r"blk\.(\d+)\.")
STATES = "ssm_conv1d_q"  # a tensor of layers with a recurrent state, whose keys and values are not cached
Shapes = Mapping[str, tuple[int, ...]]  # of a layer, by name without the layer's number
Layers = Mapping[int, Shapes]


@dataclass(frozen=True, slots=True)
class TensorSet:
    """Tensors that require others: at least one of each tuple in `others`."""

    tensors: tuple[str, ...]
    others: tuple[tuple[str, ...], ...]
    architectures: Names = ALL


def weights(*names: str) -> tuple[tuple[str, ...], ...]:
    """Return `others` that requires all of these weights."""
    return tuple((f"{name}.weight",) for name in names)


QKV = "attn_qkv.weight"
OPTIONAL_QKV = frozenset(("phi3", "pockettts"))
CONVOLUTION, JOINED = "ssm_conv1d.weight", "ssm_in.weight"
REQUIRED_TOGETHER = (
    TensorSet(("attn_output.weight",), ((QKV, "attn_q.weight"), (QKV, "attn_k.weight"), (QKV, "attn_v.weight")),
            OPTIONAL_QKV),
    TensorSet((CONVOLUTION,), ((QKV, JOINED),), DELTA_NETS),
    TensorSet((CONVOLUTION, QKV), weights("attn_gate"), DELTA_NETS),
    TensorSet((CONVOLUTION,), (("ssm_conv1d.bias",),), MAMBAS),
    TensorSet(("ffn_gate_shexp.weight",), weights("ffn_up_shexp", "ffn_down_shexp")),
    TensorSet(("ffn_up_shexp.weight",), weights("ffn_down_shexp")),
    TensorSet(("ffn_gate_exps.weight",), weights("ffn_up_exps", "ffn_down_exps")),
    TensorSet(("ffn_up_exps.weight",), weights("ffn_down_exps")),
    TensorSet(("ffn_gate_inp.weight",), (("ffn_down_exps.weight",), ("ffn_gate_up_exps.weight", "ffn_up_exps.weight")),
            frozenset(("hy_v3",))),
    TensorSet(("ffn_gate.weight",), weights("ffn_up", "ffn_down")),
)  # fmt: skip


def layers_of(header: Header) -> Layers:
    """Return every layer's tensors."""
    layers: dict[int, dict[str, tuple[int, ...]]] = {}
    for tensor in header.tensors:
        if found := LAYER.match(tensor.name):
            layers.setdefault(int(found[1]), {})[tensor.name[found.end() :]] = tensor.shape
    return layers


def missing(facts: ModelFacts, layers: Layers) -> Iterator[str]:
    """Yield clauses about tensors that a layer lacks."""
    family = facts.architecture
    rules = [rule for rule in REQUIRED_TOGETHER if rule.architectures == ALL or family in rule.architectures]
    for i, layer in layers.items():
        for rule in rules:
            if layer.keys() >= set(rule.tensors):
                yield from (lacks(i, line) for line in rule.others if not layer.keys() & set(line))


def lacks(i: int, names: tuple[str, ...]) -> str:
    """Return the clause that a layer has none of these."""
    return f"layer {i} has no {' and no '.join(names)}"


def misshapen(facts: ModelFacts, layers: Layers) -> Iterator[str]:
    """Yield clauses about heads whose number or length does not match the tensors of their layer."""
    kv_heads = facts.per_layer("attention.head_count_kv")
    is_checked = facts.architecture in ROTATED_SHAPES or (
        len(set(kv_heads)) > 1 and facts.architecture not in OWN_LENGTHS
    )
    for i, n in enumerate(kv_heads):
        layer = layers.get(i, {})
        if n > 1 and is_single(facts, layer):
            yield f"it says that layer {i} has {n} heads of keys and values, where its tensors are for 1"
        if is_checked and not any(name.startswith(STATES) for name in layer):
            yield from misfits(facts, i, n, layer)
        if is_latent(facts, layer):
            yield from latent_misfits(facts, i, layer)


def is_latent(facts: ModelFacts, layer: Shapes) -> bool:
    """Whether the layer caches the latent values from which its keys are computed (MLA)."""
    return "attn_k_b.weight" in layer and facts.own("attention.key_length_mla") > 0


def is_single(facts: ModelFacts, layer: Shapes) -> bool:
    """Whether all heads of the layer share one key."""
    return is_latent(facts, layer) or facts.architecture == "deepseek4"


def lengths_of(facts: ModelFacts, kind: str) -> set[int]:
    """Return the possible lengths of a head's keys or values: in layers with a window, and in others."""
    given = {facts.header.metadata.get(f"{facts.architecture}.attention.{kind}_length{end}") for end in ("", "_swa")}
    return {length for length in given if isinstance(length, int)}


def misfits(facts: ModelFacts, i: int, n: int, layer: Shapes) -> Iterator[str]:
    """Yield clauses about keys or values whose heads do not add up to the size of their tensor."""
    heads = facts.per_layer("attention.head_count")[i : i + 1]
    usual = {facts.own("embedding_length") // heads[0]} if heads and heads[0] else set()
    for kind in ("key", "value"):
        lengths, shape = lengths_of(facts, kind) or usual, layer.get(f"attn_{kind[0]}.weight", ())
        if lengths and len(shape) == 2 and shape[1] not in {n * length for length in lengths}:
            each = " or ".join(map(str, sorted(lengths)))
            yield f"it says that {n} heads have {kind}s of {each}, and layer {i} makes {shape[1]} numbers"


def latent_misfits(facts: ModelFacts, i: int, layer: Shapes) -> Iterator[str]:
    """Yield a clause about a key whose length does not match its tensor."""
    lengths, shape = lengths_of(facts, "key"), layer.get("attn_kv_a_mqa.weight", ())
    if lengths and len(shape) == 2 and shape[1] not in lengths:
        yield f"it says that keys have {min(lengths)} numbers, and layer {i} makes {shape[1]}"
