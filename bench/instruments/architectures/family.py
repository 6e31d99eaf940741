"""Definition of a family: metadata, vocabulary, and the tensors that only some files have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

BPE, SPM, WORDPIECE = "bpe", "spm", "wordpiece"
EPSILON, RMS_EPSILON = "attention.layer_norm_epsilon", "attention.layer_norm_rms_epsilon"
QKV_BIASES, SSM_BIASES, ALL_BIASES = r"attn_[qkv]\.bias", r"ssm_(conv1d|dt)\.bias", r".*bias"
WINDOW = 64  # tokens in the window of sliding-window layers

Value = bool | int | float | str | list[bool] | list[int]

# Metadata that several families share, as keyword arguments of `usual`
MOE: dict[str, Any] = {"expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 96}
MLA: dict[str, Any] = {
    "attention__kv_lora_rank": 64,
    "attention__key_length": 96,
    "attention__value_length": 64,
    "attention__key_length_mla": 64,
    "attention__value_length_mla": 32,
}


@dataclass(frozen=True, slots=True)
class Family:
    """A tiny model to write. Tensors are selected by regular expressions."""

    architecture: str
    metadata: Mapping[str, Value]  # by key, without the architecture's prefix
    vocabulary: str = BPE
    biases: str = ""  # bias tensors in the files
    dropped: str = ""  # tensors that the library supports and the files do not have
    is_tied: bool = False  # whether the output head is the embedding table

    @property
    def layers(self) -> str:
        """The kinds of layers, in words for a table."""
        metadata, found = self.metadata, ["attention"]
        if any(key.startswith(("ssm.", "wkv.", "shortconv.", "kda.")) for key in metadata):
            found = ["recurrent and attention"] if "attention.head_count" in metadata else ["recurrent"]
        if "attention.sliding_window" in metadata:
            found.append("sliding window")
        if "attention.kv_lora_rank" in metadata:
            found.append("MLA")
        if "expert_count" in metadata:
            found.append("MoE")
        return ", ".join(found)


def usual(
    architecture: str,
    vocabulary: str = BPE,
    *,
    layers: int = 4,
    width: int = 128,
    ffn: int | list[int] = 256,
    heads: int = 4,
    kv_heads: int | list[int] = 2,
    head: int = 0,
    epsilon: str = RMS_EPSILON,
    context: int = 32_768,
    biases: str = "",
    dropped: str = "",
    is_tied: bool = False,
    **more: Value,
) -> Family:
    """Return a family with the metadata that nearly all have, and `more`, in whose names `__` is a dot.

    heads: 0 for no attention. head: values of an attention head, if not width / heads.
    """
    metadata: dict[str, Value] = {
        "context_length": context,
        "embedding_length": width,
        "block_count": layers,
        "feed_forward_length": ffn,
        epsilon: 1e-5,
    }
    if heads:
        metadata |= {"attention.head_count": heads, "attention.head_count_kv": kv_heads}
    if head:
        metadata |= {"attention.key_length": head, "attention.value_length": head}
    metadata |= {key.replace("__", "."): value for key, value in more.items()}
    return Family(architecture, metadata, vocabulary, biases, dropped, is_tied)
