"""Replies whose texts are compared: one after the other by an engine of the bundled pair that drafts in a certain way,
or concurrent ones that start, are cancelled and end at random.
"""

from __future__ import annotations

import math
import os
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.instruments.planted_heads import HEADS, random_head
from bench.instruments.shapes import TINY, write_random
from runtime.engine import Chunk, Engine, Grammar, Ids, Message, Options, Sampling
from runtime.engine.engine import Ask
from runtime.engine.loaded import LoadedEngine
from runtime.models.registry import load_registry

MOMENT = 0.002  # seconds to wait for outputs of a process
MAX_SECONDS = 600.0  # seconds until what is waited for must have happened
Case = tuple[str | Ids, Sampling, Grammar | None]  # prompt, sampling, grammar of the reply
ALONE = ("model", *HEADS, "ngram", "layerskip", "lookahead", "suffix", "prediction")
OTHER_WORDS = "model of other words"  # a draft model with another vocabulary
KINDS = {name: Options(drafters=(name,)) for name in ALONE} | {
    OTHER_WORDS: Options(drafters=("model",)),
    "all": Options(),
}
PLAIN = Options(drafters=())
MAX_TOKENS, GRAMMAR_TOKENS = 60, 120
THREADS = 1  # per engine, as there is a process for each core


@dataclass
class Collected:
    """The tokens of a reply, and its state."""

    tokens: list[int] = field(default_factory=list)
    is_whole: bool = True
    n_guessed: int = 0  # accepted draft tokens among its tokens
    n_pieces: int = 0  # reported pieces of its prompt
    last: Chunk | None = None  # has its numbers
    error: Exception | None = None

    @property
    def is_over(self) -> bool:
        """Whether the reply has ended or failed."""
        return self.last is not None or self.error is not None

    def take(self, came: Chunk | Exception) -> None:
        """Add a chunk, or the error."""
        if isinstance(came, Exception):
            self.error = came
            return
        self.tokens += came.tokens
        self.n_guessed += sum(came.drafted)
        self.n_pieces += came.made is None and came.finish_reason is None
        self.last = came if came.finish_reason else None


class Concurrent:
    """Concurrent replies of one engine: generated step by step in this process, or as another process sends them."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self.told = engine, dict[int, Collected]()

    def add(self, case: Case, max_tokens: int) -> Collected:
        """Start a reply. Return the object that collects it."""
        prompt, sampling, grammar = case
        asked = prompt if isinstance(prompt, Ids) else [Message("user", prompt)]
        told = Collected()
        number = self._engine.add(Ask(asked, sampling, max_tokens, grammar=grammar), told.take)
        self.told[number] = told
        return told

    def step(self) -> None:
        """Run one step of the engine, or wait a moment for its process."""
        if isinstance(self._engine, LoadedEngine):
            self._engine.step()
        else:
            time.sleep(MOMENT)

    def until(self, is_so: Callable[[], object]) -> None:
        """Run steps until `is_so` returns a true value. Raises TimeoutError."""
        end = time.monotonic() + MAX_SECONDS
        while not is_so():
            if time.monotonic() > end:
                raise TimeoutError(f"Waited {MAX_SECONDS:.0f} s in vain; the replies: {self.told}")
            self.step()

    @property
    def live(self) -> list[Collected]:
        """The replies that are not over."""
        return [each for each in self.told.values() if not each.is_over]

    def leave(self, told: Collected) -> None:
        """Cancel a reply."""
        number = next(number for number, each in self.told.items() if each is told)
        self._engine.end(number)
        del self.told[number]
        told.is_whole = told.is_over

    def leave_all(self) -> None:
        """Cancel all live replies."""
        for each in self.live:
            self.leave(each)


def concurrently(engine: Engine, cases: Sequence[Case], max_tokens: int, most: int, seed: int) -> dict[int, Collected]:
    """Return the reply to each case, with up to `most` at a time; one in five is cancelled early."""
    chance, waiting, together = random.Random(seed), list(range(len(cases)))[::-1], Concurrent(engine)
    found, n_left = dict[int, Collected](), dict[int, float]()  # steps until each is cancelled
    while waiting or together.live:
        if waiting and len(together.live) < most and (not together.live or chance.random() < 0.2):
            number = waiting.pop()
            n_left[number] = chance.randint(0, 20) if chance.random() < 0.2 else math.inf
            found[number] = together.add(cases[number], max_tokens)
        for number, told in found.items():
            n_left[number] -= 1
            if n_left[number] < 0 and not told.is_over and told in together.live:
                together.leave(told)
        together.step()
    return found


def alone(engine: Engine, cases: Sequence[Case], max_tokens: int) -> list[list[int]]:
    """Return the tokens of each case, generated one at a time."""
    found = list[list[int]]()
    for case in cases:
        together = Concurrent(engine)
        told = together.add(case, max_tokens)
        together.until(lambda told=told: told.is_over)  # type: ignore[misc]
        if told.error:
            raise told.error
        found.append(told.tokens)
    return found


def n_different(together: dict[int, Collected], whole: Sequence[Sequence[int]]) -> int:
    """Return the number of replies that differ from `whole`, as far as they were generated."""
    return sum(
        told.tokens != list(whole[number])[: None if told.is_whole else len(told.tokens)]
        for number, told in together.items()
    )


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
