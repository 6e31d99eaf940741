"""What the endpoints about the model answer, for the OpenAPI description; nothing here makes an answer."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel


class TokenPiece(BaseModel):
    """A token with its text, or with its bytes where they are part of a character."""

    id: int
    piece: str | list[int]


class TokensAnswer(BaseModel):
    """Of /tokenize."""

    tokens: list[int] | list[TokenPiece]


class ContentAnswer(BaseModel):
    """Of /detokenize."""

    content: str


class PromptAnswer(BaseModel):
    """Of /apply-template."""

    prompt: str


class HealthAnswer(BaseModel):
    """Of /health."""

    status: Literal["ok"]
    model: str


class ModelMeta(BaseModel):
    """A model's limits: tokens and bytes."""

    n_ctx: int
    n_ctx_train: int
    n_vocab: int
    size: int


class ModelStatus(BaseModel):
    """Is it there?"""

    value: Literal["loaded"]


class ModelCard(BaseModel):
    """A model that is served."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    meta: ModelMeta
    status: ModelStatus


class ModelsAnswer(BaseModel):
    """Of /models."""

    object: Literal["list"]
    data: list[ModelCard]


class GenerationSettings(BaseModel):
    """What holds where a request says nothing."""

    n_ctx: int
    params: dict[str, float]


class PropsAnswer(BaseModel):
    """Of /props."""

    default_generation_settings: GenerationSettings
    total_slots: int
    model_alias: str
    model_path: str
    chat_template: str
    chat_template_caps: dict[str, bool]
    build_info: str
