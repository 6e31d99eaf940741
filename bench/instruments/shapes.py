"""Random-weight GGUF files of real shapes: they cost as much as the real models, and their text is meaningless.

Used by benchmarks and tests.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path

import llama_cpp.llama_cpp as lib
import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, LlamaFileType, TokenType
from numpy.typing import NDArray

N_BASE = 257  # tokens of every vocabulary here: the bytes and an end mark

# By name, values of llama.h's enum llama_ftype
FILE_TYPES = {
    name.removeprefix("LLAMA_FTYPE_MOSTLY_"): value
    for name, value in vars(lib).items()
    if name.startswith("LLAMA_FTYPE_MOSTLY_")
}


@dataclass(frozen=True, slots=True)
class Shape:
    """A model's hyperparameters: of Llama's architecture or, with experts, of Qwen3's mixture (`qwen3moe`)."""

    width: int
    layers: int
    heads: int
    kv_heads: int
    ffn: int  # of one expert, if there are several
    vocab: int
    experts: int = 0
    used: int = 0  # experts of a token

    @property
    def n_weights(self) -> int:
        """The number of weights read per token: all layers' and the output matrix's."""
        kv, n_ffn = self.width // self.heads * self.kv_heads, 3 * self.ffn * max(1, self.used)
        return self.layers * self.width * (2 * self.width + 2 * kv + n_ffn) + self.vocab * self.width


SMOL_135M = Shape(width=576, layers=30, heads=9, kv_heads=3, ffn=1536, vocab=49_152)
# Its vocabulary is smaller than the real one's 128k
LLAMA_1B = Shape(width=2048, layers=16, heads=32, kv_heads=8, ffn=8192, vocab=32_768)
LLAMA_3B = Shape(width=3072, layers=28, heads=24, kv_heads=8, ffn=8192, vocab=32_768)
# 10M weights read per token, the output matrix included
DRAFT_10M = Shape(width=192, layers=4, heads=3, kv_heads=3, ffn=512, vocab=49_152)
# The smallest shape for K-quants' blocks of 256
K_QUANTS = Shape(width=256, layers=2, heads=4, kv_heads=2, ffn=512, vocab=512)
TINY = Shape(width=64, layers=2, heads=2, kv_heads=1, ffn=128, vocab=512)
LLAMA_8B = Shape(width=4096, layers=32, heads=32, kv_heads=8, ffn=14336, vocab=32_768)
# Proportions of Qwen3 30B-A3B and OLMoE, and of gpt-oss 20B, with fewer and narrower layers
MOE_64 = Shape(width=1024, layers=12, heads=16, kv_heads=4, ffn=512, vocab=32_768, experts=64, used=8)
MOE_32 = Shape(width=1536, layers=6, heads=24, kv_heads=4, ffn=1536, vocab=32_768, experts=32, used=4)
TINY_MOE = Shape(width=256, layers=2, heads=4, kv_heads=2, ffn=256, vocab=512, experts=8, used=2)
SHAPES = {
    "tiny": TINY, "small": K_QUANTS, "10m": DRAFT_10M, "135m": SMOL_135M, "1b": LLAMA_1B, "3b": LLAMA_3B,
    "8b": LLAMA_8B, "moe-64": MOE_64, "moe-32": MOE_32, "moe-tiny": TINY_MOE,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Blocks:
    """A quantization: weights and bytes of a block, and the byte offsets of its half-precision scales.

    Each scale has its value for random weights of about 1; a minimum's scale puts their mean at 0.
    """

    kind: GGMLQuantizationType
    weights: int
    n_bytes: int
    scales: tuple[tuple[int, float], ...]


Q8_0 = Blocks(GGMLQuantizationType.Q8_0, 32, 34, ((0, 1.7 / 127),))
Q4_K = Blocks(GGMLQuantizationType.Q4_K, 256, 144, ((0, 1 / 257), (2, 7.5 / 257)))
Q6_K = Blocks(GGMLQuantizationType.Q6_K, 256, 210, ((208, 1 / 1367),))


def random_blocks(rows: int, columns: int, rng: np.random.Generator, blocks: Blocks = Q8_0) -> NDArray[np.uint8]:
    """Return [rows, bytes] of weights of about 1 / sqrt(columns)."""
    found = rng.integers(0, 256, size=(rows, columns // blocks.weights, blocks.n_bytes), dtype=np.uint8)
    for at, value in blocks.scales:
        scale = np.float16(value / columns**0.5)
        found[:, :, at : at + 2] = np.frombuffer(scale.tobytes(), dtype=np.uint8)
    return found.reshape(rows, -1)


def byte_alphabet() -> list[str]:
    """Return GPT-2's printable stand-ins for the 256 bytes."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return [chr(byte) for byte in shown] + [chr(256 + i) for i in range(len(hidden))]


def write_random(
    path: Path, shape: Shape, architecture: str = "", spelled: str = "w", seed: int = 0, *, k_quants: bool = False
) -> Path:
    """Write a model; the words of its vocabulary begin with `spelled`, so that two vocabularies can differ.

    With `k_quants` it is mixed like Q4_K_M, without the minutes that quantizing a large model takes; otherwise it is
    Q8_0.
    """
    rng = np.random.default_rng(seed)
    writer = begin(path, shape, architecture or ("qwen3moe" if shape.experts else "llama"))
    add_vocabulary(writer, [f"{spelled}{i}" for i in range(shape.vocab - N_BASE)], [f"{spelled[0]} 0"])
    add_matrix(writer, "token_embd.weight", shape.vocab, shape.width, rng, Q6_K if k_quants else Q8_0)
    writer.add_tensor("output_norm.weight", np.ones(shape.width, dtype=np.float32))
    add_layers(writer, shape, rng, k_quants)
    return finish(writer, path)


def begin(path: Path, shape: Shape, architecture: str = "llama", n_ctx: int = 2048) -> GGUFWriter:
    """Return a writer with the hyperparameters."""
    writer = GGUFWriter(str(path), architecture)
    writer.add_file_type(LlamaFileType.MOSTLY_Q8_0)
    writer.add_context_length(n_ctx)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.ffn)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    if shape.experts:
        writer.add_expert_count(shape.experts)
        writer.add_expert_used_count(shape.used)
        writer.add_expert_feed_forward_length(shape.ffn)
    return writer


def blocks_of(name: str, layer: int, n_layers: int) -> Blocks:
    """Return the quantization of a layer's matrix in Q4_K_M, which gives some of the value and feed-forward down
    matrices more bits.
    """
    eighth = n_layers // 8
    has_more = layer < eighth or layer >= 7 * n_layers // 8 or (layer - eighth) % 3 == 2
    return Q6_K if has_more and name in ("attn_v", "ffn_down") else Q4_K


def add_layers(writer: GGUFWriter, shape: Shape, rng: np.random.Generator, k_quants: bool = False) -> None:
    """Add random weights of all layers."""
    s, kv = shape, shape.width // shape.heads * shape.kv_heads
    matrices = {
        "attn_q": (s.width, s.width),
        "attn_k": (kv, s.width),
        "attn_v": (kv, s.width),
        "attn_output": (s.width, s.width),
    }
    feeding = {"ffn_gate": (s.ffn, s.width), "ffn_up": (s.ffn, s.width), "ffn_down": (s.width, s.ffn)}
    norms = {"attn_norm": s.width, "ffn_norm": s.width}
    if s.experts:
        norms |= {"attn_q_norm": s.width // s.heads, "attn_k_norm": s.width // s.heads}
    for layer in range(s.layers):
        for name, (rows, columns) in (matrices | feeding).items():
            blocks = blocks_of(name, layer, s.layers) if k_quants else Q8_0
            n = s.experts if name in feeding else 0
            add_matrix(writer, f"blk.{layer}.{name}{'_exps' if n else ''}.weight", rows, columns, rng, blocks, n)
        for name, width in norms.items():
            writer.add_tensor(f"blk.{layer}.{name}.weight", np.ones(width, dtype=np.float32))
        if s.experts:
            router = rng.standard_normal((s.experts, s.width), dtype=np.float32) * s.width**-0.5
            writer.add_tensor(f"blk.{layer}.ffn_gate_inp.weight", router)


def finish(writer: GGUFWriter, path: Path) -> Path:
    """Write the file."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def requantize(source: Path, file_type: int, path: Path) -> Path:
    """Write a model in another quantization (a value of llama.h's enum llama_ftype). Raises RuntimeError."""
    params = lib.llama_model_quantize_default_params()
    params.ftype, params.allow_requantize, params.nthread = file_type, True, 1
    if lib.llama_model_quantize(str(source).encode(), str(path).encode(), ctypes.byref(params)):
        raise RuntimeError(f"{source.name} could not be quantized")
    return path


def add_matrix(
    writer: GGUFWriter,
    name: str,
    rows: int,
    columns: int,
    rng: np.random.Generator,
    blocks: Blocks = Q8_0,
    n_experts: int = 0,
) -> None:
    """Add one random matrix, or one for each expert."""
    data = random_blocks(max(1, n_experts) * rows, columns, rng, blocks)
    writer.add_tensor(name, data.reshape(n_experts, rows, -1) if n_experts else data, raw_dtype=blocks.kind)


def add_vocabulary(writer: GGUFWriter, words: list[str], merges: list[str]) -> None:
    """Add a byte-level vocabulary: bytes, an end token, and words; text is split into those that `merges` produce."""
    tokens = [*byte_alphabet(), "<|end|>", *words]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([TokenType.CONTROL if token == "<|end|>" else TokenType.NORMAL for token in tokens])
    writer.add_token_merges(merges)
    writer.add_eos_token_id(256)
    writer.add_add_bos_token(False)
