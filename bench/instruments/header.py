"""A small GGUF file, byte by byte, for readers of headers."""

from __future__ import annotations

import struct


def text(value: str) -> bytes:
    """Return a string as the format stores it."""
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def sample(part: int | None = None) -> bytes:
    """Return a small complete GGUF file with every kind of value."""
    values = [
        ("general.architecture", 8, text("llama")),
        ("general.alignment", 4, struct.pack("<I", 32)),
        ("llama.block_count", 4, struct.pack("<I", 2)),
        ("llama.context_length", 10, struct.pack("<Q", 512)),
        ("llama.attention.head_count", 4, struct.pack("<I", 2)),
        ("llama.attention.head_count_kv", 9, struct.pack("<IQ2i", 5, 2, 1, 1)),
        ("llama.embedding_length", 5, struct.pack("<i", 64)),
        ("llama.rope.freq_base", 6, struct.pack("<f", 1e4)),
        ("tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, 3) + text("a") + text("<PRE>") + text("<SUF>")),
        ("tokenizer.ggml.scores", 9, struct.pack("<IQ3f", 6, 3, 0, 1, 2)),
        ("tokenizer.ggml.add_bos_token", 7, b"\x01"),
        (
            "tokenizer.chat_template",
            8,
            text("{% for m in messages %}{{ m.content }}{% if tools %}{{ tools }}{% endif %}{% endfor %}"),
        ),
    ]
    if part is not None:
        values.append(("split.no", 2, struct.pack("<H", part)))
    keys = b"".join(text(name) + struct.pack("<I", kind) + data for name, kind, data in values)
    tensors = (
        text("token_embd.weight")
        + struct.pack("<IQQIQ", 2, 64, 3, 8, 0)
        + text("norm.weight")
        + struct.pack("<IQIQ", 1, 64, 0, 224)
    )
    head = b"GGUF" + struct.pack("<IQQ", 3, 2, len(values)) + keys + tensors
    return head + bytes(-len(head) % 32 + 224 + 256)
