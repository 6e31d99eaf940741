"""What a reply over the toy library says alone: the oracle of every test of replies that are made together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from runtime.sampling.sampler import Sampler
from runtime.sampling.settings import Sampling
from tests.support.toy_engine import N_CTX, PIECES
from tests.support.toy_library import END, ToyModel, adapted


@dataclass(frozen=True)
class Request:
    """What a reply is to be."""

    prompt: tuple[int, ...]
    sampling: Sampling
    max_tokens: int | None
    stops: tuple[str, ...] = ()
    is_short: bool = False
    lora: tuple[tuple[int, float], ...] | None = None

    @property
    def is_predictable(self) -> bool:
        return self.sampling.temperature == 0 or self.sampling.seed is not None


@dataclass
class Said:
    """A reply, as far as it has come."""

    tokens: list[int] = field(default_factory=list)
    text: str = ""
    reason: str | None = None


def alone(request: Request) -> Said:
    """What a plain loop says, one token after the other, with nobody beside it."""
    model, sampler = ToyModel(), Sampler(request.sampling)

    def choose(tokens: list[int]) -> int:
        context = [*request.prompt, *tokens]
        sampler.begin(np.array(context, dtype=np.int32), len(tokens))
        return sampler.choose(model.logits(context, adapted(request.lora)))

    return told(request, choose)


def told(request: Request, choose: Callable[[list[int]], int]) -> Said:
    """A reply whose tokens are chosen so, to where it has to end."""
    said = Said(reason="length" if request.max_tokens == 0 else None)
    while said.reason is None:
        token = choose(said.tokens)
        said.tokens.append(token)
        said.text += PIECES[token].decode()
        found = [at for stop in request.stops if (at := said.text.find(stop)) >= 0]
        if found:
            said.text = said.text[: min(found)]
        if found or token == END:
            said.reason = "stop"
        elif len(said.tokens) == request.max_tokens or len(request.prompt) + len(said.tokens) == N_CTX:
            said.reason = "length"
    return said
