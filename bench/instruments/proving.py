"""Engines of the bundled pair that draft in a certain way, and their replies, for `bench.prove`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.instruments.concurrent_replies import Case
from bench.instruments.planted_heads import HEADS, random_head
from bench.instruments.shapes import TINY, write_random
from runtime.engine import Message, Options
from runtime.engine.loaded import LoadedEngine
from runtime.models.registry import load_registry

ALONE = ("model", *HEADS, "ngram", "layerskip", "lookahead", "suffix", "prediction")
OTHER_WORDS = "model of other words"  # a draft model with another vocabulary
KINDS = {name: Options(drafters=(name,)) for name in ALONE} | {
    OTHER_WORDS: Options(drafters=("model",)),
    "all": Options(),
}
PLAIN = Options(drafters=())
MAX_TOKENS, GRAMMAR_TOKENS = 60, 120
THREADS = 1  # per engine, as there is a process for each core


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply, and the number of its tokens that were drafted."""

    tokens: tuple[int, ...]
    text: str
    n_guessed: int


def opened(options: Options, name: str = "") -> LoadedEngine:
    """Return an engine of the bundled pair, with a head instead of the draft model if a head is to draft, or with a
    random draft model of other words.
    """
    pair = load_registry()["demo"]
    if name == OTHER_WORDS:
        pair = replace(pair, draft=write_random(Path(temporary().name) / "other.gguf", TINY, spelled="e"))
    if named := [name for name in options.drafters or () if name in HEADS]:
        pair = replace(pair, draft=random_head(Path(temporary().name) / "head.gguf", pair.target, named[0], 1024))
    return LoadedEngine(pair, replace(options, threads=THREADS))


@cache
def temporary() -> TemporaryDirectory[str]:
    """Return a temporary folder that exists as long as the process."""
    return TemporaryDirectory()


def texts(options: Options, asked: Iterable[Case], expected: Mapping[str, str], name: str = "") -> list[Reply]:
    """Return the reply to every case; `expected` has the predictions by prompt."""
    engine, found = opened(options, name), []
    for prompt, sampling, grammar in asked:
        most = GRAMMAR_TOKENS if grammar else MAX_TOKENS
        prediction = expected.get(prompt, "")
        chunks = list(engine.reply([Message("user", prompt)], sampling, most, grammar=grammar, prediction=prediction))
        tokens = tuple(token for chunk in chunks for token in chunk.tokens)
        n_accepted = sum(sum(chunk.drafted) for chunk in chunks)
        found.append(Reply(tokens, "".join(chunk.text for chunk in chunks), n_accepted))
    engine.close()
    return found


@contextmanager
def no_past() -> Iterator[None]:
    """Isolate the past replies of this configuration."""
    with TemporaryDirectory() as folder:
        os.environ["XDG_DATA_HOME"] = folder
        yield
