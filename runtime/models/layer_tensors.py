"""Which tensors a layer must have together, and where their shapes must be what the header's numbers say.

Only what llama.cpp does not look at before it uses it. Knows tensors' names; reads no file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from runtime.models.facts import ModelFacts
from runtime.models.header import Header
from runtime.models.library_limits import ALL, DELTA_NETS, MAMBAS, ROTATED_SHAPES, Names

LAYER = re.compile(r"blk\.(\d+)\.")
Shapes = Mapping[str, tuple[int, ...]]  # of a layer, by name without the layer's number
Layers = Mapping[int, Shapes]


@dataclass(frozen=True, slots=True)
class Company:
    """Tensors that are of no use without others, one of each line."""

    tensors: tuple[str, ...]
    others: tuple[tuple[str, ...], ...]
    architectures: Names = ALL


def weights(*names: str) -> tuple[tuple[str, ...], ...]:
    """All of these are needed."""
    return tuple((f"{name}.weight",) for name in names)


QKV = "attn_qkv.weight"
OPTIONAL_QKV = frozenset(("phi3", "pockettts"))
CONVOLUTION, JOINED = "ssm_conv1d.weight", "ssm_in.weight"
COMPANY = (
    Company(("attn_output.weight",), ((QKV, "attn_q.weight"), (QKV, "attn_k.weight"), (QKV, "attn_v.weight")),
            OPTIONAL_QKV),
    Company((CONVOLUTION,), ((QKV, JOINED),), DELTA_NETS),
    Company((CONVOLUTION, QKV), weights("attn_gate"), DELTA_NETS),
    Company((CONVOLUTION,), (("ssm_conv1d.bias",),), MAMBAS),
    Company(("ffn_gate_shexp.weight",), weights("ffn_up_shexp", "ffn_down_shexp")),
    Company(("ffn_up_shexp.weight",), weights("ffn_down_shexp")),
    Company(("ffn_gate_exps.weight",), weights("ffn_up_exps", "ffn_down_exps")),
    Company(("ffn_up_exps.weight",), weights("ffn_down_exps")),
    Company(("ffn_gate.weight",), weights("ffn_up", "ffn_down")),
)  # fmt: skip


def layers_of(header: Header) -> Layers:
    """Every layer's tensors."""
    layers: dict[int, dict[str, tuple[int, ...]]] = {}
    for tensor in header.tensors:
        if found := LAYER.match(tensor.name):
            layers.setdefault(int(found[1]), {})[tensor.name[found.end() :]] = tensor.shape
    return layers


def missing(facts: ModelFacts, layers: Layers) -> Iterator[str]:
    """Tensors that a layer lacks."""
    rules = [rule for rule in COMPANY if rule.architectures == ALL or facts.architecture in rule.architectures]
    for i, layer in layers.items():
        for rule in rules:
            if layer.keys() >= set(rule.tensors):
                yield from (lacks(i, line) for line in rule.others if not layer.keys() & set(line))


def lacks(i: int, names: tuple[str, ...]) -> str:
    """That a layer has none of these."""
    return f"layer {i} has no {' and no '.join(names)}"


def misshapen(facts: ModelFacts, layers: Layers) -> Iterator[str]:
    """Heads that are not as many, or not as long, as the tensors of their layer."""
    for i, kv_heads in enumerate(facts.per_layer("attention.head_count_kv")):
        layer = layers.get(i, {})
        if kv_heads > 1 and is_single(facts, layer):
            yield f"it says that layer {i} has {kv_heads} heads of keys and values, where its tensors are for 1"
        if facts.architecture in ROTATED_SHAPES:
            yield from misfits(facts, i, kv_heads, layer)


def is_single(facts: ModelFacts, layer: Shapes) -> bool:
    """Do all heads of the layer share one key?"""
    is_latent = "attn_k_b.weight" in layer and facts.own("attention.key_length_mla") > 0
    return is_latent or facts.architecture == "deepseek4"


def misfits(facts: ModelFacts, i: int, kv_heads: int, layer: Shapes) -> Iterator[str]:
    """Keys or values whose heads make up more or less than their tensor."""
    for kind in ("key", "value"):
        length = facts.header.metadata.get(f"{facts.architecture}.attention.{kind}_length")
        shape = layer.get(f"attn_{kind[0]}.weight", ())
        if isinstance(length, int) and len(shape) == 2 and shape[1] != kv_heads * length:
            yield f"it says that {kv_heads} heads have {kind}s of {length}, and layer {i} makes {shape[1]} numbers"
