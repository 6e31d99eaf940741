"""Replies that are made together: they come, are given up and end by chance, and what they said is compared."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from runtime.engine import Chunk, Engine, Grammar, Message, Sampling

Case = tuple[str, Sampling, Grammar | None]  # prompt, settings, the form of the reply


@dataclass
class Live:
    """A reply that is being made."""

    number: int
    chunks: Iterator[Chunk]
    n_steps: int  # after which it is given up
    tokens: list[int] = field(default_factory=list)


def begun(engine: Engine, case: Case, max_tokens: int) -> Iterator[Chunk]:
    """A reply in steps."""
    prompt, sampling, grammar = case
    return engine.reply([Message("user", prompt)], sampling, max_tokens, grammar=grammar, pauses=True)


def in_company(engine: Engine, cases: Sequence[Case], max_tokens: int, most: int, seed: int) -> dict[int, list[int]]:
    """What each case was told, up to `most` at once; one in five is given up on the way and so has less.

    Each goes on for one step in its turn, as a server's worker has them do.
    """
    chance, waiting, live = random.Random(seed), list(range(len(cases)))[::-1], list[Live]()
    found: dict[int, list[int]] = {}
    while waiting or live:
        if waiting and len(live) < most and (not live or chance.random() < 0.2):
            number = waiting.pop()
            n_steps = chance.randint(0, 20) if chance.random() < 0.2 else 10 * max_tokens
            live.append(Live(number, begun(engine, cases[number], max_tokens), n_steps))
        for each in list(live):
            engine.share(len(live) - 1)
            chunk = next(each.chunks, None) if each.n_steps else None
            each.n_steps -= 1
            if chunk is None:
                each.chunks.close()  # type: ignore[attr-defined]
                live.remove(each)
                found[each.number] = each.tokens
            else:
                each.tokens += chunk.tokens
    return found


def alone(engine: Engine, cases: Sequence[Case], max_tokens: int) -> list[list[int]]:
    """What each case is told by itself."""
    return [[token for chunk in begun(engine, case, max_tokens) for token in chunk.tokens] for case in cases]


def n_different(together: dict[int, list[int]], whole: Sequence[list[int]]) -> int:
    """How many said anything else, as far as they came."""
    return sum(tokens != whole[number][: len(tokens)] for number, tokens in together.items())
