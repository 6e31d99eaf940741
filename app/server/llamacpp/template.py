"""/apply-template: a conversation as the prompt text."""

from __future__ import annotations

from pydantic import BaseModel

from app.server.endpoint import query_endpoint
from app.server.openai.conversation import ConversationRequest
from app.server.wire import Event
from runtime.engine import Engine


class TemplateRequest(ConversationRequest):
    """The body of a request to /apply-template: the fields of a chat that determine the prompt."""


class TemplateResponse(BaseModel):
    """The body that answers /apply-template."""

    prompt: str


def apply_template(request: TemplateRequest, engine: Engine) -> Event:
    """Return the body of TemplateResponse. Raises ApiError and TemplateError."""
    return {"prompt": request.written(engine).text}


ENDPOINT = query_endpoint("/apply-template", TemplateRequest, TemplateResponse, apply_template)
