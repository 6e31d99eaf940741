"""Random assistants for Gemma 4 targets, which read the target's cache."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from gguf import GGUFWriter

from bench.instruments.shapes import finish
from runtime.models.facts import ModelFacts
from runtime.models.header import read_model_header

ASSISTANT = "gemma4-assistant"


@dataclass(frozen=True, slots=True)
class AssistantShape:
    """The shape of an assistant for a Gemma 4 target of that width, whose last two layers have these heads."""

    width: int  # of the target's states
    vocab: int
    own: int = 32  # width of its own layers
    length: int = 64  # of an attention head in its last layer, and half of it in the others, which have windows
    layers: int = 2
    heads: int = 4
    ffn: int = 48
    missing: str = ""  # the name of a tensor to leave out
    is_flat: bool = False  # whether its layers add nothing

    @property
    def windows(self) -> list[bool]:
        """Whether each layer has a sliding window."""
        return [i < self.layers - 1 for i in range(self.layers)]

    @property
    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Dimensions by name."""
        found: dict[str, tuple[int, ...]] = {
            "token_embd.weight": (self.vocab, self.own), "output_norm.weight": (self.own,),
            "nextn.pre_projection.weight": (self.own, 2 * self.width),
            "nextn.post_projection.weight": (self.width, self.own), "rope_freqs.weight": (self.length // 2,),
        }  # fmt: skip
        for i, has_window in enumerate(self.windows):
            head = self.length // (1 + has_window)
            found |= {
                f"blk.{i}.attn_q.weight": (self.heads * head, self.own), f"blk.{i}.attn_q_norm.weight": (head,),
                f"blk.{i}.attn_output.weight": (self.own, self.heads * head),
                f"blk.{i}.layer_output_scale.weight": (1,),
                f"blk.{i}.ffn_gate.weight": (self.ffn, self.own), f"blk.{i}.ffn_up.weight": (self.ffn, self.own),
                f"blk.{i}.ffn_down.weight": (self.own, self.ffn),
            }  # fmt: skip
            norms = ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
            found |= {f"blk.{i}.{name}.weight": (self.own,) for name in norms}
        found.pop(self.missing, None)
        return found


def assistant_for(target: Path, **more: object) -> AssistantShape:
    """Return the shape of an assistant for the target in that file."""
    facts = ModelFacts(read_model_header(target))
    length = facts.own("attention.key_length")
    return replace(AssistantShape(facts.own("embedding_length"), facts.n_vocab, length=length), **more)  # type: ignore[arg-type]


def write_assistant(path: Path, shape: AssistantShape, seed: int = 0) -> Path:
    """Write an assistant without the words of a vocabulary."""
    rng, writer = np.random.default_rng(seed), GGUFWriter(str(path), ASSISTANT)
    writer.add_context_length(2048)
    writer.add_embedding_length(shape.own)
    writer.add_embedding_length_out(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_nextn_predict_layers(shape.layers)
    writer.add_feed_forward_length(shape.ffn)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(1e6)
    writer.add_sliding_window(64)
    writer.add_sliding_window_pattern(shape.windows)
    for name in ("key", "value"):
        writer.add_uint32(f"{ASSISTANT}.attention.{name}_length", shape.length)
        writer.add_uint32(f"{ASSISTANT}.attention.{name}_length_swa", shape.length // 2)
    writer.add_float32(f"{ASSISTANT}.rope.freq_base_swa", 1e4)
    writer.add_uint32(f"{ASSISTANT}.rope.dimension_count", shape.length)
    writer.add_uint32(f"{ASSISTANT}.rope.dimension_count_swa", shape.length // 2)
    writer.add_tokenizer_model("no_vocab")
    writer.add_vocab_size(shape.vocab)
    for name, size in shape.tensors.items():
        is_matrix = len(size) > 1
        values = rng.standard_normal(size) * (size[-1] ** -0.5 if is_matrix else 0.1) + (not is_matrix)
        if shape.is_flat and ("attn_output" in name or "ffn_down" in name):
            values = np.zeros(size)
        writer.add_tensor(name, values.astype(np.float32))
    return finish(writer, path)
