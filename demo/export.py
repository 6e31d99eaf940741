"""Writes a trained demo model as a Q8_0 GGUF with its tokenizer and chat template.

Knows GGUF's names; knows nothing about training.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, LlamaFileType, TokenType, quants
from tokenizers import Tokenizer
from torch import Tensor

from demo.conversations import CHAT_TEMPLATE
from demo.head import READ, Head
from demo.model import TARGET, Llama, Shape
from demo.tokens import END, PAD, START
from runtime.training.head_file import HEAD_NAMES, NAMES

CONTEXT = 2048


def gguf_name(name: str) -> str:
    """The GGUF's name for a parameter of ours: `layers.3.q.weight` -> `blk.3.attn_q.weight`."""
    parts = name.split(".")
    if parts[0] == "layers":
        return f"blk.{parts[1]}.{NAMES.get(parts[2], parts[2])}.weight"
    return {"embedding": "token_embd.weight", "norm": "output_norm.weight"}[parts[0]]


def write_gguf(path: Path, model: Llama, tokenizer: Tokenizer, name: str) -> None:
    """Matrices as Q8_0, norms as F32; `path` appears only when whole."""
    shape, new = model.shape, path.with_suffix(".new")
    writer = GGUFWriter(str(new), "llama")
    add_shape(writer, shape, name)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.ffn)
    if shape.exit_layer:
        writer.add_uint32("slipstream.exit_layer", shape.exit_layer)
    add_tokenizer(writer, tokenizer)
    add_weights(writer, {gguf_name(parameter): weight for parameter, weight in model.state_dict().items()})
    new.replace(path)


def write_head(path: Path, head: Head, name: str) -> None:
    """The same of a head, whose vocabulary is its target's."""
    new = path.with_suffix(".new")
    writer = GGUFWriter(str(new), "eagle3")
    add_shape(writer, TARGET, name)
    writer.add_block_count(1)
    writer.add_feed_forward_length(head.shape.ffn)
    writer.add_tokenizer_model("no_vocab")
    writer.add_array("eagle3.target_layers", list(READ))
    writer.add_uint32("eagle3.target_hidden_size", TARGET.width)
    names = {parameter: HEAD_NAMES[parameter.removesuffix(".weight")] for parameter in head.state_dict()}
    add_weights(writer, {f"{names[parameter]}.weight": weight for parameter, weight in head.state_dict().items()})
    new.replace(path)


def add_shape(writer: GGUFWriter, shape: Shape, name: str) -> None:
    """What a head has in common with its target."""
    writer.add_name(name)
    writer.add_license("Python-2.0")
    writer.add_file_type(LlamaFileType.MOSTLY_Q8_0)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(shape.width)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_rope_dimension_count(shape.head)
    writer.add_rope_freq_base(shape.rope_base)
    writer.add_layer_norm_rms_eps(shape.norm_eps)
    writer.add_vocab_size(shape.vocab)


def add_weights(writer: GGUFWriter, weights: dict[str, Tensor]) -> None:
    """The tensors by name, and the end of the file."""
    for name, weight in weights.items():
        data = weight.detach().float().cpu().numpy()
        if data.ndim == 2:
            packed = quants.quantize(np.ascontiguousarray(data), GGMLQuantizationType.Q8_0)
            writer.add_tensor(name, packed, raw_dtype=GGMLQuantizationType.Q8_0)
        else:
            writer.add_tensor(name, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_tokenizer(writer: GGUFWriter, tokenizer: Tokenizer) -> None:
    """Vocabulary, merges, special tokens and the chat template."""
    bpe = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(bpe["vocab"], key=bpe["vocab"].__getitem__)
    special = {PAD, START, END}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([TokenType.CONTROL if token in special else TokenType.NORMAL for token in tokens])
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in bpe["merges"]])
    writer.add_eos_token_id(tokens.index(END))
    writer.add_pad_token_id(tokens.index(PAD))
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)
