"""Options of /v1/responses, translated to those of a chat: tools, and the form of the text.

Functions are offered to the model. Tools that OpenAI's own server runs are left out: agents offer them along with their
own and work without them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag

from app.server.errors import ApiError
from app.server.fields import Few, Object, RequestModel, Text
from app.server.openai.common import JsonSchema, ResponseFormat
from app.server.openai.tools import (
    AllowedTool,
    AllowedTools,
    FunctionDefinition,
    FunctionName,
    HostedTool,
    ToolChoice,
    ToolDefinition,
    as_choice,
)


class FunctionTool(FunctionDefinition):
    """A function that may be called. Its arguments follow the schema, `strict` or not."""

    type: Literal["function"]
    strict: bool | None = None

    def definition(self) -> ToolDefinition:
        """Return the tool in the terms of chat completions."""
        fields = self.model_dump(include=set(FunctionDefinition.model_fields))
        return ToolDefinition(type="function", function=FunctionDefinition(**fields))


def kind_of(tool: Any) -> str | None:
    """Return the tag of the model that reads this tool. The space in it keeps it out of the field names in errors."""
    if not isinstance(tool, dict | RequestModel):
        return None
    kind = tool.get("type") if isinstance(tool, dict) else getattr(tool, "type", None)
    return "function tool" if kind == "function" else "hosted tool"


ToolInput = Annotated[
    Annotated[FunctionTool, Tag("function tool")] | Annotated[HostedTool, Tag("hosted tool")],
    Discriminator(kind_of, "tool_type", "Input should be an object"),
]


class AllowedFunction(RequestModel):
    """A function that may be called. Tools of other types, which are left out, may have no name."""

    type: str = "function"
    name: str | None = None


class ResponsesToolChoice(RequestModel):
    """Which tool must be called: `type` is none, auto, required, function with its name, or allowed_tools with some."""

    type: Literal["none", "auto", "required", "function", "allowed_tools"]
    name: str | None = None
    mode: Literal["auto", "required"] = "auto"
    tools: Few[AllowedFunction] | None = None

    def for_chat(self) -> ToolChoice:
        """Return the choice in the terms of chat completions."""
        function = FunctionName(name=self.name) if self.name is not None else None
        some = [AllowedTool(function=FunctionName(name=each.name)) for each in self.tools or () if each.name]
        allowed = AllowedTools(mode=self.mode, tools=some) if some else None
        return ToolChoice(type=self.type, function=function, allowed_tools=allowed)


ToolChoiceInput = Annotated[
    ResponsesToolChoice,
    BeforeValidator(as_choice, json_schema_input_type=Literal["none", "auto", "required"] | ResponsesToolChoice),
]


class TextFormat(RequestModel):
    """The required format of the text."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    name: str | None = None
    description: Text | None = None
    json_schema: Object | None = Field(None, alias="schema")
    strict: bool | None = None

    def response_format(self) -> ResponseFormat:
        """Return the format in the terms of chat completions. Raises ApiError."""
        if self.type == "json_schema" and self.json_schema is None:
            raise ApiError(400, "text.format.schema is missing. Give a JSON schema.", "text.format.schema")
        schema = None if self.json_schema is None else JsonSchema(schema=self.json_schema)
        return ResponseFormat(type=self.type, json_schema=schema)


class TextOptions(RequestModel):
    """Options for the text."""

    format: TextFormat | None = None


class ReasoningOptions(RequestModel):
    """How much the model reasons, for templates that ask."""

    effort: str | None = None
