"""A random model whose vocabulary can fill in the middle and whose chat template supports tools."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np

from bench.instruments.shapes import N_BASE, TINY, add_layers, add_matrix, add_vocabulary, begin, finish

FIM = {"pre": "<|fim_prefix|>", "suf": "<|fim_suffix|>", "mid": "<|fim_middle|>", "sep": "<|file_sep|>"}
TEMPLATE = (
    "{% if tools %}{{ tools | tojson }}<tool_call>{% endif %}{% for m in messages %}[{{ m.role }}]{{ m.content }}"
    "{% if m.tool_calls %}{{ m.tool_calls[0].function.arguments.city }}{% endif %}{% endfor %}"
)


def write_coder(path: Path, templates: Mapping[str, str] = MappingProxyType({"": TEMPLATE})) -> Path:
    """Writes the model as a GGUF file, with chat templates by the ends of their keys."""
    rng, words = np.random.default_rng(3), [*FIM.values(), *(f"w{i}" for i in range(TINY.vocab - N_BASE - len(FIM)))]
    writer = begin(path, TINY)
    add_vocabulary(writer, words, ["w 0"])
    for i, name in enumerate(FIM):
        writer.add_uint32(f"tokenizer.ggml.fim_{name}_token_id", N_BASE + i)
    for end, source in templates.items():
        writer.add_string(f"tokenizer.chat_template{end}", source)
    add_matrix(writer, "token_embd.weight", TINY.vocab, TINY.width, rng)
    writer.add_tensor("output_norm.weight", np.ones(TINY.width, dtype=np.float32))
    add_layers(writer, TINY, rng)
    return finish(writer, path)
