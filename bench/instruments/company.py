"""Replies that are made together: they come, are given up and end by chance, and what they said is compared."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from runtime.engine import Chunk, Engine, Grammar, Ids, Message, Sampling
from runtime.engine.engine import Ask

Case = tuple[str | Ids, Sampling, Grammar | None]  # prompt, settings, the form of the reply


@dataclass
class Told:
    """What a reply said, and whether it could end."""

    tokens: list[int] = field(default_factory=list)
    is_whole: bool = True
    n_guessed: int = 0  # of its tokens, that were drafted before the target said them
    n_pieces: int = 0  # of its prompt, that were told
    last: Chunk | None = None  # with its numbers
    error: Exception | None = None

    @property
    def is_over(self) -> bool:
        """Will nothing more be said?"""
        return self.last is not None or self.error is not None

    def take(self, came: Chunk | Exception) -> None:
        """Takes in what came."""
        if isinstance(came, Exception):
            self.error = came
            return
        self.tokens += came.tokens
        self.n_guessed += sum(came.drafted)
        self.n_pieces += came.made is None and came.finish_reason is None
        self.last = came if came.finish_reason else None


class Together:
    """Replies of one engine, made step by step."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self.told = engine, dict[int, Told]()

    def add(self, case: Case, max_tokens: int) -> Told:
        """Have a reply begin. Return what it will be told."""
        prompt, sampling, grammar = case
        asked = prompt if isinstance(prompt, Ids) else [Message("user", prompt)]
        number = self._engine.add(Ask(asked, sampling, max_tokens, grammar=grammar))
        self.told[number] = Told()
        return self.told[number]

    def step(self) -> None:
        """Make a step."""
        for number, came in self._engine.step():
            if number in self.told:
                self.told[number].take(came)

    def until(self, is_so: Callable[[], object]) -> None:
        """Make steps until that is so."""
        while not is_so():
            self.step()

    @property
    def live(self) -> list[Told]:
        """Those that are not over."""
        return [each for each in self.told.values() if not each.is_over]

    def leave(self, told: Told) -> None:
        """Nobody wants the rest of a reply."""
        number = next(number for number, each in self.told.items() if each is told)
        self._engine.end(number)
        del self.told[number]
        told.is_whole = told.is_over

    def leave_all(self) -> None:
        """Nobody wants any more."""
        for each in self.live:
            self.leave(each)


def in_company(engine: Engine, cases: Sequence[Case], max_tokens: int, most: int, seed: int) -> dict[int, Told]:
    """What each case was told, up to `most` at once; one in five is given up on the way."""
    chance, waiting, together = random.Random(seed), list(range(len(cases)))[::-1], Together(engine)
    found, n_left = dict[int, Told](), dict[int, float]()  # steps after which it is given up
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
    """What each case is told by itself."""
    found = list[list[int]]()
    for case in cases:
        together = Together(engine)
        told = together.add(case, max_tokens)
        together.until(lambda told=told: told.is_over)  # type: ignore[misc]
        if told.error:
            raise told.error
        found.append(told.tokens)
    return found


def n_different(together: dict[int, Told], whole: Sequence[Sequence[int]]) -> int:
    """How many said anything else, as far as they came."""
    return sum(
        told.tokens != list(whole[number])[: None if told.is_whole else len(told.tokens)]
        for number, told in together.items()
    )
