"""Tools that a client offers: how the model is told about them, and the grammar that its calls must follow.

Calls are written as Hermes and Qwen models learned it: <tool_call>, a JSON object with name and arguments,
</tool_call>. A template that writes them so is given the tools; for any other model they are described in the system
prompt, in the same words. Knows no tokens.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from app.server.errors import ApiError
from app.server.fields import Fields
from runtime.engine import Grammar, Message

BEGIN, END = "<tool_call>", "</tool_call>"
LENIENT = {
    "x-guidance": {"lenient": True, "whitespace_flexible": False}
}  # what of a schema is not understood is left to the model
DESCRIPTION = f"""You may call these functions, given as JSON schemas:
%s
To call one, write nothing but
{BEGIN}
{{"name": NAME, "arguments": OBJECT}}
{END}"""


class FunctionFields(Fields):
    """A function by its name and the schema of its arguments."""

    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_.:-]{1,128}$")]
    description: str | None = None
    parameters: dict[str, Any] | None = None


class ToolFields(Fields):
    """A tool; only functions are known."""

    type: Literal["function"]
    function: FunctionFields


class NameFields(Fields):
    """A function by its name alone."""

    name: str


class ChoiceFields(Fields):
    """Which tool must be called: `type` is none, auto, required, or function with its name."""

    type: Literal["none", "auto", "required", "function"]
    function: NameFields | None = None


def as_choice(value: object) -> object:
    """A word as an object."""
    return {"type": value} if isinstance(value, str) else value


Choice = Annotated[
    ChoiceFields, BeforeValidator(as_choice, json_schema_input_type=Literal["none", "auto", "required"] | ChoiceFields)
]


class CallFunctionFields(Fields):
    """What was called, with the arguments as JSON text."""

    name: str
    arguments: str = "{}"


class CallFields(Fields):
    """A call in an earlier message."""

    id: str | None = None
    function: CallFunctionFields

    def arguments(self) -> Any:
        """As a value, which templates want; the text where it is no JSON."""
        try:
            return json.loads(self.function.arguments)
        except ValueError:
            return self.function.arguments

    def text(self) -> str:
        """As the model wrote it."""
        call = {"name": self.function.name, "arguments": self.arguments()}
        return f"{BEGIN}\n{json.dumps(call, ensure_ascii=False)}\n{END}"

    def value(self) -> dict[str, Any]:
        """For a template that knows tools."""
        return {
            "id": self.id,
            "type": "function",
            "function": {"name": self.function.name, "arguments": self.arguments()},
        }


@dataclass(frozen=True, slots=True)
class Tools:
    """The functions that may be called; `required`: one must be."""

    functions: tuple[FunctionFields, ...]
    required: bool
    several: bool

    def as_given(self) -> list[dict[str, Any]]:
        """For a template that knows tools."""
        return [{"type": "function", "function": function.model_dump(exclude_none=True)} for function in self.functions]

    def description(self) -> str:
        """For a model whose template knows none."""
        return DESCRIPTION % "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in self.as_given())

    def grammar(self) -> Grammar:
        """Text without a call or ending in calls; a call's arguments follow their schema."""
        rules = []
        for i, function in enumerate(self.functions):
            head = json.dumps(f'\n{{"name": {json.dumps(function.name)}, "arguments": ')
            schema = json.dumps((function.parameters or {"type": "object"}) | LENIENT)
            rules.append(f'call_{i}: {head} %json {schema} "}}\\n{END}"')
        body = f"({' | '.join(f'call_{i}' for i in range(len(rules)))})"
        calls = body + (f' ("\\n{BEGIN}" {body})*' if self.several else "")
        if self.required:
            return Grammar("lark", "\n".join([f'start: "{BEGIN}" {calls}', *rules]))
        free = rf"FREE: /(.|\n)*/ & ~/(.|\n)*{BEGIN}(.|\n)*/"
        return Grammar("lark", "\n".join([f"start: FREE | BEFORE {calls}", free, f'BEFORE: FREE "{BEGIN}"', *rules]))


def chosen(tools: Sequence[ToolFields], choice: ChoiceFields | None, parallel: bool) -> Tools | None:
    """What may be called, if anything. Raises ApiError for a choice that is not offered."""
    kind, functions = choice.type if choice else "auto", tuple(tool.function for tool in tools)
    if kind == "function":
        name = choice.function.name if choice and choice.function else ""
        functions = tuple(function for function in functions if function.name == name)
    if kind in ("function", "required") and not functions:
        raise ApiError(400, "tool_choice asks for a function that tools does not have. Add it to tools.", "tool_choice")
    if kind == "none" or not functions:
        return None
    return Tools(functions, kind in ("function", "required"), parallel and kind != "function")


def knows_tools(template: str) -> bool:
    """Does the chat template write tools and calls in the way above?"""
    return "tools" in template and BEGIN in template and "<function=" not in template


def described(messages: Sequence[Message], tools: Tools) -> list[Message]:
    """The conversation with the tools in its system prompt."""
    own, rest = ("", messages) if messages[0].role != "system" else (messages[0].content + "\n\n", messages[1:])
    return [Message("system", own + tools.description()), *rest]
