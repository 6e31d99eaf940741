"""LoRA adapters in requests: by id and scale, as with llama.cpp, or by a name of the model with the adapter's after a
colon, as with vLLM. Must not know an interface.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import BaseModel, Field

from app.server.errors import ApiError
from app.server.fields import Few, RequestModel, Whole
from app.server.known_models import listed, split_name
from app.server.policy import Scales, ServerPolicy
from runtime.engine import Engine
from runtime.models.adapters import titles
from runtime.models.registry import Pair

MAX_ID = 2**31 - 1


class AdapterScale(RequestModel):
    """An adapter by its id, and its scale."""

    id: Annotated[Whole, Field(ge=0, le=MAX_ID)]
    scale: Annotated[float, Field(allow_inf_nan=False)]


AdapterScales = Few[AdapterScale]


class LoadedAdapter(BaseModel):
    """An adapter of a model, and its scale for requests that name none."""

    id: int
    path: str
    scale: float


def scales_of(model: str | None, asked: Sequence[AdapterScale] | None, engine: Engine, policy: ServerPolicy) -> Scales:
    """Return the ids and scales of a request that names this model and these adapters; None: those of the pair.

    Raises ApiError.
    """
    pair = engine.pair
    if asked is not None:
        return checked(asked, pair)
    if (number := named_by(model, pair)) is not None:
        return ((number, pair.lora[number].scale or 1.0),)
    base, title = split_name(model or "")
    if pair.lora and title and base in (each.lower() for each in (pair.name, *policy.aliases)):
        message = f"{pair.name} has no adapter '{title[:100]}'. It has {listed(titles(pair.lora))}."
        raise ApiError(404, message, "model", "model_not_found")
    return policy.lora


def named_by(model: str | None, pair: Pair) -> int | None:
    """Return the id of the adapter that the name of a model ends with; None if it names none."""
    title, known = split_name(model or "")[1], [each.lower() for each in titles(pair.lora)]
    return known.index(title) if title in known else None


def reply_name(model: str | None, asked: Sequence[AdapterScale] | None, pair: Pair) -> str:
    """Return the model's name in the reply to such a request: with the adapter's where the request chose it by name."""
    number = named_by(model, pair) if asked is None else None
    return pair.name if number is None else f"{pair.name}:{titles(pair.lora)[number]}"


def checked(asked: Sequence[AdapterScale], pair: Pair) -> Scales:
    """Return the ids and scales of a list. Raises ApiError for an id that the model does not have."""
    n = len(pair.lora)
    wrong = next((each.id for each in asked if each.id >= n), None)
    if wrong is not None:
        known = f"{pair.name} has those from 0 to {n - 1}" if n else f"{pair.name} was loaded without any (`--lora`)"
        raise ApiError(400, f"There is no adapter {wrong}: {known}.", "lora")
    return tuple((each.id, each.scale) for each in asked)


def listed_adapters(pair: Pair, policy: ServerPolicy) -> list[LoadedAdapter]:
    """Return the adapters of a model with their scales for requests that name none."""
    now = None if policy.lora is None else dict(policy.lora)
    return [
        LoadedAdapter(id=i, path=str(each.path), scale=each.scale if now is None else now.get(i, 0.0))
        for i, each in enumerate(pair.lora)
    ]
