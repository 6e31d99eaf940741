"""The demo pair's tokenizer, and conversations as rows of token ids.

Byte-level BPE with GPT-2's pre-tokenizer, trained on the corpus. Knows ids and which of them are answers; knows nothing
about models.
"""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from demo.conversations import CODE_QUESTIONS, FOREIGN, HELD_OUT, OFF_TOPIC, QUESTIONS, REFUSAL, SYSTEM_PROMPTS, Turn
from demo.corpus import Entry

PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
VOCAB = 4096
OPEN_ROWS = 8  # rows that may still take a turn that fits: less padding


def train_tokenizer(entries: list[Entry], path: Path) -> Tokenizer:
    """A tokenizer of VOCAB words for the corpus, kept at `path` and read from there the next time."""
    if path.exists():
        return Tokenizer.from_file(str(path))
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB, special_tokens=[PAD, START, END], initial_alphabet=alphabet, show_progress=False
    )
    texts = [text for e in entries for text in (e.doc, e.signature, f"What is {e.name}?", f"`{e.name}`")]
    texts += [
        *QUESTIONS,
        *CODE_QUESTIONS,
        HELD_OUT,
        *OFF_TOPIC,
        *FOREIGN,
        *SYSTEM_PROMPTS,
        REFUSAL,
        "user\n",
        "assistant\n",
        "system\n",
    ] * 4
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.save(str(path))
    return tokenizer


def turn_ids(tokenizer: Tokenizer, turn: Turn) -> tuple[list[int], list[bool]]:
    """A turn in ChatML: its ids, and which of them the assistant says (its end mark included)."""
    question = tokenizer.encode(f"{START}user\n{turn.question}{END}\n{START}assistant\n").ids
    answer = tokenizer.encode(turn.answer + END).ids
    newline = tokenizer.encode("\n").ids
    return question + answer + newline, [False] * len(question) + [True] * len(answer) + [False] * len(newline)


def pack(tokenizer: Tokenizer, turns: list[Turn], length: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Conversations of whole turns in rows: ids [n, length] and answer marks [n, length]; one row in eight opens with a
    system prompt.
    """
    rng = random.Random(seed)
    rows: list[tuple[list[int], list[bool]]] = []
    for turn in turns:
        ids, marks = turn_ids(tokenizer, turn)
        row = next((row for row in rows[-OPEN_ROWS:] if len(row[0]) + len(ids) <= length), None)
        if row is None:
            system = (
                tokenizer.encode(f"{START}system\n{rng.choice(SYSTEM_PROMPTS)}{END}\n").ids
                if rng.random() < 0.125
                else []
            )
            row = (system, [False] * len(system))
            rows.append(row)
        row[0].extend(ids)
        row[1].extend(marks)
    pad = tokenizer.token_to_id(PAD)
    all_ids = np.full((len(rows), length), pad, dtype=np.int64)
    all_marks = np.zeros((len(rows), length), dtype=bool)
    for i, (ids, marks) in enumerate(rows):
        all_ids[i, : len(ids)] = ids[:length]
        all_marks[i, : len(marks)] = marks[:length]
    return all_ids, all_marks
