"""A random model whose words are in no usual text, for what must not draft."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from gguf import TokenType

from bench.instruments.shapes import TINY, add_layers, add_matrix, begin, finish


def write_mute(path: Path) -> Path:
    """Write the model as a GGUF file."""
    rng, writer = np.random.default_rng(5), begin(path, TINY)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(["<|end|>", *(f"qzx{i}" for i in range(TINY.vocab - 1))])
    writer.add_token_types([TokenType.CONTROL, *[TokenType.NORMAL] * (TINY.vocab - 1)])
    writer.add_token_merges(["q z"])
    writer.add_eos_token_id(0)
    writer.add_add_bos_token(False)
    add_matrix(writer, "token_embd.weight", TINY.vocab, TINY.width, rng)
    writer.add_tensor("output_norm.weight", np.ones(TINY.width, dtype=np.float32))
    add_layers(writer, TINY, rng)
    return finish(writer, path)
