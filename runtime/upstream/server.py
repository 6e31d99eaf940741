"""What another server is: which program, which model, how much context, and which settings it takes.

Asks it when it is opened, and waits for one that is still loading its model.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from runtime.core.errors import SlipstreamError
from runtime.upstream.connection import Connection, UpstreamError, first_line

# Programs by what they call themselves in their lists of models. Others are only asked what OpenAI's interface has.
PROGRAMS = {"slipstream": "Slipstream", "llamacpp": "llama.cpp's server", "vllm": "vLLM", "sglang": "SGLang"}
OURS, LLAMA_CPP, VLLM, SGLANG = PROGRAMS
MOST_NAMED = 8
PAUSE, LOOK = 1.0, 0.1  # seconds between two questions to a server that loads its model; between two looks meanwhile


@dataclass(frozen=True, slots=True)
class Server:
    """One that answers, and the model that is meant."""

    program: str  # out of PROGRAMS; "" for any other
    model: str
    n_ctx: int  # 0: it does not say
    has_metrics: bool

    @property
    def takes_more(self) -> bool:
        """Does it take settings that OpenAI's interface has not?"""
        return bool(self.program)

    @property
    def is_llama_cpp_like(self) -> bool:
        """Does it take what llama.cpp's server takes?"""
        return self.program in (OURS, LLAMA_CPP)


def look_when_loaded(connection: Connection, model: str, goes_on: Callable[[], bool]) -> Server:
    """The same as `look_at`, once that server's model is loaded. Raises KeyboardInterrupt when it shall not go on."""
    while True:
        try:
            return look_at(connection, model)
        except UpstreamError as error:
            if not error.is_loading:
                raise
        for _ in range(round(PAUSE / LOOK)):
            if not goes_on():
                raise KeyboardInterrupt
            time.sleep(LOOK)


def look_at(connection: Connection, model: str) -> Server:
    """Which program answers there, and with which model. Raises UpstreamError."""
    cards = model_cards(connection, model)
    name = model or only_model(connection, [str(card["id"]) for card in cards])
    card = next((card for card in cards if card["id"] == name), cards[0] if len(cards) == 1 else {})
    owner = str(card.get("owned_by", ""))
    program = owner if owner in PROGRAMS else ""
    n_ctx = context_of(card) or (slot_context(connection) if program == LLAMA_CPP else 0)
    return Server(program, first_line(name), n_ctx, bool(program) and answers(connection, "/metrics"))


def model_cards(connection: Connection, model: str) -> list[dict[str, Any]]:
    """The models that it lists; none where it has no list and a model was named. Raises UpstreamError."""
    try:
        found = connection.get_json(f"{connection.base}/models").get("data")
    except UpstreamError as error:
        if model and error.status in (404, 405, 501):
            return []
        raise
    cards = (
        [card for card in found if isinstance(card, dict) and isinstance(card.get("id"), str)]
        if isinstance(found, list)
        else []
    )
    if not cards and not model:
        raise connection.nonsense()
    return cards


def only_model(connection: Connection, names: list[str]) -> str:
    """The one model. Raises UpstreamError where there are several."""
    if len(names) == 1:
        return names[0]
    shown = ", ".join(map(first_line, names[:MOST_NAMED])) + ", ..." * (len(names) > MOST_NAMED)
    raise UpstreamError(
        f"The server at {connection.base} has {len(names)} models: {shown}. Name one, as `upstream_model` of the pair "
        "or behind a # at the end of the address."
    )


def context_of(card: dict[str, Any]) -> int:
    """Tokens of context by a card of the list: vLLM's and SGLang's name for it, or ours; 0 where it does not say."""
    meta = card.get("meta")
    found = [card.get("max_model_len"), meta.get("n_ctx") if isinstance(meta, dict) else None]
    return next((n for n in found if isinstance(n, int) and n > 0), 0)


def slot_context(connection: Connection) -> int:
    """Tokens of context of a conversation with llama.cpp's server; 0 where it does not say."""
    try:
        settings = connection.get_json(f"{connection.root}/props").get("default_generation_settings")
    except SlipstreamError:
        return 0
    n_ctx = settings.get("n_ctx") if isinstance(settings, dict) else 0
    return n_ctx if isinstance(n_ctx, int) and n_ctx > 0 else 0


def answers(connection: Connection, path: str) -> bool:
    """Is there anything at that path beside the interface?"""
    try:
        connection.get(connection.root + path)
    except SlipstreamError:
        return False
    return True
