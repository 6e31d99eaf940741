"""Reads a model's facts from its GGUF header: size, bits, context, template, and more.

Knows the metadata keys; reads no file and loads no model.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jinja2 import TemplateError, nodes
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from runtime.models.header import Header, TensorInfo
from runtime.models.library_limits import MAX_LAYERS
from runtime.models.pooling import PoolingKind, is_nested

REPACKED = "Q4_0", "Q4_K", "IQ4_NL", "MXFP4"  # types that are repacked into another layout on x86
FLOATS = "F32", "F16", "BF16"
NO_MATRIX = re.compile(
    r"embd|norm|conv|ssm_[ad]$|sinks|rope|lerp|time_mix_(first|decay)|scale"
)  # float, not multiplied by
WORDS = "tokenizer.ggml.tokens"
MAX_TEMPLATE = 2**20  # characters of a template to parse, at most
# Tokens before and after a gap, as llama.cpp finds them in vocabularies whose metadata names none.
FIM_TOKENS = (
    ("<|fim_prefix|>", "<|fim_suffix|>"), ("<fim-prefix>", "<fim-suffix>"), ("<fim_prefix>", "<fim_suffix>"),
    ("<PRE>", "<SUF>"),
    ("▁<PRE>", "▁<SUF>"), ("<｜fim▁begin｜>", "<｜fim▁hole｜>"), ("<|code_prefix|>", "<|code_suffix|>"),
    ("<|prefix|>", "<|suffix|>"),
)  # fmt: skip
FIM_KEYS = ("fim_pre_token_id", "fim_suf_token_id"), ("prefix_token_id", "suffix_token_id")


def is_repackable(tensor: TensorInfo) -> bool:
    """Whether that weight is repacked into another layout: matrices and those of experts are, lookup tables are not."""
    if tensor.kind not in REPACKED or "embd" in tensor.name:
        return False
    is_matrix = len(tensor.shape) == 2 or (len(tensor.shape) == 3 and "_exps" in tensor.name)
    return is_matrix and tensor.shape[1] % 8 == 0


@dataclass(frozen=True)
class ModelFacts:
    """Facts from one GGUF header about its model."""

    header: Header

    @property
    def architecture(self) -> str:
        """The architecture, such as llama or qwen3."""
        return self.header.text("general.architecture")

    @property
    def name(self) -> str:
        """The name from the model's authors."""
        return self.header.text("general.name")

    @property
    def licence(self) -> str:
        """The license named in the file."""
        return self.header.text("general.license")

    @cached_property
    def n_parameters(self) -> int:
        """Number of weights."""
        return sum(tensor.n_values for tensor in self.header.tensors)

    @cached_property
    def n_bytes(self) -> int:
        """Bytes of all weights."""
        return sum(tensor.n_bytes for tensor in self.header.tensors)

    @cached_property
    def n_bytes_loaded(self) -> int:
        """Bytes of the weights that are loaded; those of MTP layers stay in the file."""
        numbers = ((tensor, tensor.name.split(".")) for tensor in self.header.tensors)
        return sum(
            tensor.n_bytes
            for tensor, (kind, *rest) in numbers
            if kind != "blk" or not rest[0].isdigit() or int(rest[0]) < self.n_trunk_layers
        )

    @property
    def bits(self) -> float:
        """Bits per weight; 0 without weights."""
        return 8 * self.n_bytes / self.n_parameters if self.n_parameters else 0.0

    @property
    def kinds(self) -> dict[str, float]:
        """Tensor types and their share of the bytes, the largest first."""
        shares: Counter[str] = Counter()
        for tensor in self.header.tensors:
            shares[tensor.kind] += tensor.n_bytes
        return {kind: n / self.n_bytes for kind, n in shares.most_common()}

    @property
    def n_layers(self) -> int:
        """Number of blocks, as llama.cpp counts layers."""
        return self.own("block_count")

    @property
    def n_trunk_layers(self) -> int:
        """Layers that process every token; MTP layers at the end are excluded."""
        return max(0, self.n_layers - self.own("nextn_predict_layers"))

    @property
    def n_context(self) -> int:
        """Context length in tokens that the model was trained for."""
        return self.own("context_length")

    @property
    def n_vocab(self) -> int:
        """Number of tokens in the vocabulary."""
        return len(self.header.strings(WORDS))

    @property
    def n_experts(self) -> tuple[int, int]:
        """Number of experts that a token uses, and of all experts; (0, 0) in a dense model."""
        return self.own("expert_used_count"), self.own("expert_count")

    @cached_property
    def has_float_matrices(self) -> bool:
        """Whether some multiplied weights are not quantized; routers of experts seldom are."""
        is_tied = all(tensor.name != "output.weight" for tensor in self.header.tensors)
        return any(
            tensor.kind in FLOATS
            and sum(n > 1 for n in tensor.shape) > 1
            and (not NO_MATRIX.search(tensor.name) or (is_tied and tensor.name == "token_embd.weight"))
            for tensor in self.header.tensors
        )

    @property
    def pooling(self) -> PoolingKind:
        """How the outputs are pooled, if it is an embedding or a reranking model."""
        is_causal = self.header.metadata.get(f"{self.architecture}.attention.causal") is not False
        return PoolingKind(self.architecture, self.own("pooling_type"), is_causal)

    @property
    def is_nested(self) -> bool:
        """Whether its vectors may be cut; see `is_nested`."""
        names = self.name, self.header.text("general.basename"), self.architecture
        return is_nested(names, self.header.strings("general.tags").texts())

    @property
    def exit_layer(self) -> int:
        """The layer after which the file allows an early exit; 0 if it names none."""
        return self.header.number("slipstream.exit_layer")

    @property
    def has_template(self) -> bool:
        """Whether the file has a chat template."""
        return bool(self.template)

    @property
    def template(self) -> str:
        """The source of the chat template; "" if the file has none."""
        return self._template("", ".default", ".tool_use")

    def _template(self, *names: str) -> str:
        """Return the first chat template of these names that is not blank; "" if there is none."""
        found = (self.header.text(f"tokenizer.chat_template{name}") for name in names)
        return next((source for source in found if source.strip()), "")

    @cached_property
    def takes_tools(self) -> bool:
        """Whether the chat template for tools uses `tools`. It is parsed, never run, as it comes with the file."""
        source = self._template(".tool_use", "", ".default")
        if not source or len(source) > MAX_TEMPLATE:
            return False
        try:
            tree = ImmutableSandboxedEnvironment(extensions=[loopcontrols]).parse(source)
            return any(name.name == "tools" for name in tree.find_all(nodes.Name))
        except (TemplateError, RecursionError):
            return False

    @cached_property
    def fills_gaps(self) -> bool:
        """Whether the vocabulary has tokens for a prefix and a suffix (fill in the middle)."""
        if any(all(f"tokenizer.ggml.{key}" in self.header.metadata for key in pair) for pair in FIM_KEYS):
            return True
        words = set(self.header.strings(WORDS).texts())
        return any(words.issuperset(pair) for pair in FIM_TOKENS)

    @cached_property
    def n_bytes_per_token(self) -> int:
        """Bytes of weights read in a pass over one token, without other rows of the input table and unused experts."""
        used, n = self.n_experts
        share = used / n if used and n else 1.0
        has_head = any(tensor.name == "output.weight" for tensor in self.header.tensors)
        read = 0.0
        for tensor in self.header.tensors:
            if tensor.name == "token_embd.weight" and has_head:
                continue
            read += tensor.n_bytes * (share if "_exps." in tensor.name else 1.0)
        return int(read)

    def per_layer(self, key: str) -> list[int]:
        """Return a value for each layer, from one number for all or an array."""
        value: Any = self.header.metadata.get(f"{self.architecture}.{key}")
        if isinstance(value, np.ndarray) and np.issubdtype(value.dtype, np.integer):
            return [max(0, int(n)) for n in value[: min(self.n_layers, MAX_LAYERS)]]
        return [value] * min(self.n_layers, MAX_LAYERS) if isinstance(value, int) and value > 0 else []

    def flags(self, key: str) -> list[bool]:
        """Return an array of booleans; [] if there is none."""
        value: Any = self.header.metadata.get(f"{self.architecture}.{key}")
        is_array = isinstance(value, np.ndarray) and value.dtype != object
        return value[:MAX_LAYERS].astype(bool).tolist() if is_array else []

    def own(self, key: str) -> int:
        """Return a count under this architecture's keys; 0 if there is none."""
        return self.header.number(f"{self.architecture}.{key}")

    def own_text(self, key: str) -> str:
        """Return a string under this architecture's keys; "" if there is none."""
        return self.header.text(f"{self.architecture}.{key}")


# llama.h's enum llama_ftype; some numbers are no longer used. 0 also stands for files without a type.
FILE_TYPES = {
    1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S", 12: "Q3_K_M",
    13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 19: "IQ2_XXS", 20: "IQ2_XS",
    21: "Q2_K_S", 22: "IQ3_XS", 23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL", 26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S",
    29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M", 32: "BF16", 36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4",
}  # fmt: skip


def quantization(facts: ModelFacts) -> str:
    """Return the name of a model's quantization, such as Q4_K_M, or else the tensor type with the most bytes."""
    return FILE_TYPES.get(facts.header.number("general.file_type")) or next(iter(facts.kinds), "")
