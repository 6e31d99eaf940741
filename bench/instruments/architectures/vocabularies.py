"""Vocabularies of 512 tokens, of the three kinds that the families have. Any text can be encoded in them."""

from __future__ import annotations

from collections.abc import Callable

from gguf import GGUFWriter, TokenType

from bench.instruments.architectures.family import BPE, SPM, WORDPIECE
from bench.instruments.shapes import N_BASE, add_vocabulary

N_VOCAB = 512
PRINTABLE = [chr(code) for code in range(33, 127)]
SPACE = "▁"  # the space before a word in SentencePiece and llama.cpp's WordPiece
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def add_bpe(writer: GGUFWriter) -> None:
    """Add GPT-2's bytes, and words that hardly ever occur in text."""
    add_vocabulary(writer, [f"w{i}" for i in range(N_VOCAB - N_BASE)], ["w 0"])


def add_spm(writer: GGUFWriter) -> None:
    """Add a SentencePiece vocabulary: characters that join into words, and bytes for all others."""
    special = ["<unk>", "<s>", "</s>", "<|endoftext|>"]  # the library searches phi3's for the last one
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    words = [SPACE, *PRINTABLE, *(f"{SPACE}{character}" for character in PRINTABLE)]
    words += [f"w{i}" for i in range(N_VOCAB - len(special) - len(byte_tokens) - len(words))]
    kinds = [TokenType.UNKNOWN, *[TokenType.CONTROL] * 3, *[TokenType.BYTE] * len(byte_tokens)]
    writer.add_tokenizer_model("llama")
    writer.add_token_list([*special, *byte_tokens, *words])
    writer.add_token_types([*kinds, *[TokenType.NORMAL] * len(words)])
    writer.add_token_scores([-float(rank) for rank in range(N_VOCAB)])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(True)


def add_wordpiece(writer: GGUFWriter) -> None:
    """Add a WordPiece vocabulary: characters that begin a word, and those that continue it."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = [*(f"{SPACE}{character}" for character in PRINTABLE), *PRINTABLE]
    words += [f"w{i}" for i in range(N_VOCAB - len(special) - len(words))]
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([*special, *words])
    writer.add_token_types([*[TokenType.CONTROL] * len(special), *[TokenType.NORMAL] * len(words)])
    writer.add_token_type_count(2)
    writer.add_pad_token_id(0)
    writer.add_unk_token_id(1)
    writer.add_bos_token_id(2)
    writer.add_sep_token_id(3)
    writer.add_mask_token_id(4)


ADDERS: dict[str, Callable[[GGUFWriter], None]] = {BPE: add_bpe, SPM: add_spm, WORDPIECE: add_wordpiece}
