"""What clients ask about the model without asking it to speak: its tokens, its chat template, its limits."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

from pydantic import Field

from app.server.errors import ApiError
from app.server.fields import Fields
from app.server.openai.chat import ChatMessage
from app.server.openai.tools import knows_tools
from runtime.engine import Engine

Event = dict[str, object]


class TokenizeRequest(Fields):
    """The body of /tokenize."""

    content: str
    add_special: bool | None = None
    parse_special: bool | None = None
    with_pieces: bool | None = None

    def answer(self, engine: Engine) -> Event:
        """Ids, with their text if asked."""
        ids = engine.tokenize(self.content, special=self.parse_special is not False, bos=bool(self.add_special))
        return {"tokens": [{"id": token, "piece": piece(engine, token)} for token in ids] if self.with_pieces else ids}


def piece(engine: Engine, token: int) -> str | list[int]:
    """The token's text; its bytes where they are part of a character."""
    try:
        return engine.token_bytes(token).decode("utf8") or engine.token_text(token)
    except UnicodeDecodeError:
        return list(engine.token_bytes(token))


class DetokenizeRequest(Fields):
    """The body of /detokenize."""

    tokens: list[Annotated[int, Field(ge=0)]]

    def answer(self, engine: Engine) -> Event:
        """The text of the tokens. Raises ApiError for one that the vocabulary has not."""
        if any(token >= engine.vocab.n_vocab for token in self.tokens):
            raise ApiError(400, f"tokens: the model has {engine.vocab.n_vocab} tokens. Use ids below that.", "tokens")
        return {"content": b"".join(map(engine.token_bytes, self.tokens)).decode("utf8", "replace")}


class TemplateRequest(Fields):
    """The body of /apply-template."""

    messages: Annotated[list[ChatMessage], Field(min_length=1)]

    def answer(self, engine: Engine) -> Event:
        """The conversation as the model reads it. Raises TemplateError."""
        return {"prompt": engine.render([message.message(knows_tools(engine.template)) for message in self.messages])}


def model_card(engine: Engine, created: int) -> Event:
    """The loaded pair as an entry of /v1/models; Zed reads `meta.n_ctx` and `status.value`."""
    meta = {
        "n_ctx": engine.n_ctx,
        "n_ctx_train": engine.n_ctx_train,
        "n_vocab": engine.vocab.n_vocab,
        "size": engine.n_bytes,
    }
    return {
        "id": engine.pair.name, "object": "model", "created": created, "owned_by": "slipstream",
        "meta": meta, "status": {"value": "loaded"}, "description": engine.pair.description,
    }  # fmt: skip


def models(engine: Engine, created: int) -> Event:
    """The only model that is served."""
    return {"object": "list", "data": [model_card(engine, created)]}


def props(engine: Engine, n_slots: int) -> Event:
    """llama.cpp's /props.

    Tools work with any chat template: one that knows none is told of them in the system prompt.
    """
    pair = engine.pair
    return {
        "default_generation_settings": {"n_ctx": engine.n_ctx, "params": pair.sampling_defaults},
        "total_slots": n_slots,
        "model_alias": pair.name,
        "model_path": pair.target.name,
        "chat_template": engine.template,
        "chat_template_caps": {
            "supports_tools": True,
            "supports_tool_calls": True,
            "supports_system_role": "system" in engine.template,
        },
        "modalities": {"vision": False, "audio": False},
        "can_infill": engine.can_infill,
        "memory": {"level": engine.memory_level, "given_up": engine.given_up or None, "fit": engine.fit or None},
        "build_info": f"slipstream {version('slipstream')}",
    }
