"""A random model whose vocabulary has turn marks of both kinds: control tokens, and tokens of its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from gguf import GGUFWriter, TokenType

from bench.instruments.shapes import N_BASE, TINY, add_layers, add_matrix, begin, byte_alphabet, finish

CONTROL = ["<|end|>", "<|turn|>", "<unk>"]
OWN = ["<call>", "</think>", "<b>"]  # the last one is HTML, and the template does not write it
TEMPLATE = (
    "{% for t in tools or () %}<call>{{ t | tojson }}{% endfor %}{% for d in documents or () %}{{ d.text }}{% endfor %}"
    "{% for m in messages %}<|turn|>{{ m.role }}\n"
    "{% if m.role == 'assistant' %}{{ m.content.split('</think>')[-1] }}{% else %}{{ m.content }}{% endif %}"
    "{% for c in m.tool_calls or () %}<call>{{ c.function.arguments | tojson(ensure_ascii=true) }}{% endfor %}<|end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|turn|>assistant\n{% endif %}"
)


def write_marked(path: Path) -> Path:
    """Writes the model, with a byte-level vocabulary, as a GGUF file."""
    rng, writer = np.random.default_rng(4), begin(path, TINY)
    words = [f"w{i}" for i in range(TINY.vocab - N_BASE + 1 - len(CONTROL) - len(OWN))]
    kinds = [TokenType.NORMAL] * 256 + [TokenType.CONTROL] * len(CONTROL) + [TokenType.USER_DEFINED] * len(OWN)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([*byte_alphabet(), *CONTROL, *OWN, *words])
    writer.add_token_types([*kinds, *[TokenType.NORMAL] * len(words)])
    writer.add_token_merges(["w 0"])
    writer.add_eos_token_id(256)
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)
    add_matrix(writer, "token_embd.weight", TINY.vocab, TINY.width, rng)
    writer.add_tensor("output_norm.weight", np.ones(TINY.width, dtype=np.float32))
    add_layers(writer, TINY, rng)
    return finish(writer, path)


def write_sentence_pieces(path: Path, name: str = "pieces") -> Path:
    """Writes a vocabulary that puts a space before text; marks of one called Phi-3 take in the space after them."""
    writer: GGUFWriter = begin(path, TINY)
    pieces = ["▁", *"<|>/abcdefghiklnrstu", "▁<", "tu", "rn", "▁a"]
    marks = ["</s>", "<|end|>", "<|turn|>", "<call>", "<s>", "<|endoftext|>"]
    kinds = [TokenType.UNKNOWN, *[TokenType.CONTROL] * 3, TokenType.USER_DEFINED, *[TokenType.CONTROL] * 2]
    writer.add_name(name)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(["<unk>", *marks, *(f"<0x{byte:02X}>" for byte in range(256)), *pieces])
    writer.add_token_scores([0.0] * (len(marks) + 257) + [-float(i) for i in range(len(pieces))])
    writer.add_token_types([*kinds, *[TokenType.BYTE] * 256, *[TokenType.NORMAL] * len(pieces)])
    writer.add_eos_token_id(1)
    writer.add_add_bos_token(False)
    return finish(writer, path)
