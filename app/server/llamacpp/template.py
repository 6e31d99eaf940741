"""/apply-template: a conversation as the text that the model reads."""

from __future__ import annotations

from pydantic import BaseModel

from app.server.endpoint import query_endpoint
from app.server.fields import RequestModel
from app.server.openai.chat import Messages
from app.server.openai.tools import supports_tools
from app.server.wire import Event
from runtime.engine import Engine


class TemplateRequest(RequestModel):
    """The body of a request to /apply-template."""

    messages: Messages


class TemplateResponse(BaseModel):
    """The body that answers /apply-template."""

    prompt: str


def apply_template(request: TemplateRequest, engine: Engine) -> Event:
    """The body of TemplateResponse. Raises TemplateError."""
    with_tools = supports_tools(engine.template)
    return {"prompt": engine.render([message.message(with_tools) for message in request.messages])}


ENDPOINT = query_endpoint("/apply-template", TemplateRequest, TemplateResponse, apply_template)
