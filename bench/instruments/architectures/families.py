"""Families of models, from families.toml: metadata, vocabulary, and the tensors that only some files have."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

BPE, SPM, WORDPIECE = "bpe", "spm", "wordpiece"
RMS_EPSILON = "attention.layer_norm_rms_epsilon"
PATTERNS = {  # of tensors, by name
    "qkv": r"attn_[qkv]\.bias",
    "ssm": r"ssm_(conv1d|dt)\.bias",
    "rwkv": r"norm(_2)?\.bias|time_mix_ln\.bias|token_embd_norm\.bias|output_norm\.bias",
    "all": ".*bias",
    "drafting": r"nextn\.(embed_tokens|shared_head_head)",  # which only some files with drafting layers have
}
DATA: dict[str, dict[str, dict[str, Any]]] = tomllib.loads(
    Path(__file__).with_name("families.toml").read_text(encoding="utf8")
)

Value = bool | int | float | str | list[bool] | list[int]


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
    """Return a family with the metadata that nearly all have, and `more`; patterns may be named in curly brackets.

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
    return Family(
        architecture, metadata | more, vocabulary, biases.format(**PATTERNS), dropped.format(**PATTERNS), is_tied
    )


def whole(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with the groups that it names."""
    found: dict[str, Any] = {}
    for name in row.get("with", ()):
        found |= whole(DATA["groups"][name])
    return found | {key: value for key, value in row.items() if key != "with"}


def with_layer(family: Family, more: Mapping[str, Value]) -> Family:
    """Return the family with an additional drafting layer."""
    n_layers = family.metadata["block_count"]
    assert isinstance(n_layers, int)
    own = {"block_count": n_layers + 1, "nextn_predict_layers": 1}
    return replace(family, metadata={**family.metadata, **own, **more}, dropped=PATTERNS["drafting"])


def read(section: str, known: Mapping[str, Family] = {}, **usually: Any) -> dict[str, Family]:
    """Return the families of a section; `usually` are arguments that its rows may override."""
    found: dict[str, Family] = {}
    for name, row in DATA[section].items():
        own = whole(row)
        base = own.pop("with_layer_of", "")
        found[name] = with_layer({**known, **found}[base], own) if base else usual(**usually | own)
    return found


TEXTLESS = read("textless")
TEXT = {**read("attentive"), **read("recurrent")}
DRAFTING = read("drafting", TEXT, layers=5, dropped="{drafting}", nextn_predict_layers=1)
FAMILIES = {**TEXT, **TEXTLESS, **read("embedders"), **DRAFTING}
