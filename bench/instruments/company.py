"""Replies that are made together: they come, are given up and end by chance, and what they said is compared."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from runtime.engine import Chunk, Engine, Grammar, Ids, Message, Sampling

Case = tuple[str | Ids, Sampling, Grammar | None]  # prompt, settings, the form of the reply


@dataclass
class Told:
    """What a reply said, and whether it could end."""

    tokens: list[int] = field(default_factory=list)
    is_whole: bool = True
    n_guessed: int = 0  # of its tokens, that were drafted before the target said them


@dataclass
class Live:
    """A reply that is being made."""

    chunks: Iterator[Chunk]
    n_steps: float  # after which it is given up
    told: Told


def begun(engine: Engine, case: Case, max_tokens: int) -> Iterator[Chunk]:
    """A reply in steps."""
    prompt, sampling, grammar = case
    asked = prompt if isinstance(prompt, Ids) else [Message("user", prompt)]
    return engine.reply(asked, sampling, max_tokens, grammar=grammar, pauses=True)


def in_company(engine: Engine, cases: Sequence[Case], max_tokens: int, most: int, seed: int) -> dict[int, Told]:
    """What each case was told, up to `most` at once; one in five is given up on the way.

    Each goes on for one step in its turn, as a server's worker has them do.
    """
    chance, waiting, live = random.Random(seed), list(range(len(cases)))[::-1], list[Live]()
    found: dict[int, Told] = {}
    while waiting or live:
        if waiting and len(live) < most and (not live or chance.random() < 0.2):
            number = waiting.pop()
            n_steps = chance.randint(0, 20) if chance.random() < 0.2 else math.inf
            found[number] = Told()
            live.append(Live(begun(engine, cases[number], max_tokens), n_steps, found[number]))
        for each in list(live):
            engine.share(len(live) - 1)
            if not advance(each):
                live.remove(each)
    return found


def advance(live: Live) -> bool:
    """Has a reply go on for one step; False at its end."""
    chunk = next(live.chunks, None) if live.n_steps else None
    live.n_steps -= 1
    if chunk is not None:
        live.told.tokens += chunk.tokens
        live.told.n_guessed += sum(chunk.drafted)
    elif live.n_steps < math.inf:
        live.told.is_whole = False
        live.chunks.close()  # type: ignore[attr-defined]
    return chunk is not None


def alone(engine: Engine, cases: Sequence[Case], max_tokens: int) -> list[list[int]]:
    """What each case is told by itself."""
    return [[token for chunk in begun(engine, case, max_tokens) for token in chunk.tokens] for case in cases]


def n_different(together: dict[int, Told], whole: Sequence[Sequence[int]]) -> int:
    """How many said anything else, as far as they came."""
    return sum(
        told.tokens != list(whole[number])[: None if told.is_whole else len(told.tokens)]
        for number, told in together.items()
    )
