"""Tools that a client offers: how the model is told about them, and the grammar that its calls must follow.

Calls are written as Hermes and Qwen models learned it: <tool_call>, a JSON object with name and arguments,
</tool_call>. A template that writes them so is given the tools; for any other model they are described in the system
prompt, in the same words. Must not know tokens.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from app.server.errors import ApiError
from app.server.fields import RequestModel
from app.server.openai.tool_schema import arguments_rule
from runtime.engine import Grammar, Message, check_schema, closed

BEGIN, END = "<tool_call>", "</tool_call>"
COMPACT = {"x-guidance": {"whitespace_flexible": False}}
SYSTEM_PROMPT = f"""You may call these functions, given as JSON schemas:
%s
To call one, write nothing but
{BEGIN}
{{"name": NAME, "arguments": OBJECT}}
{END}"""


FunctionNameInput = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_.:-]{1,128}$")]


class FunctionDefinition(RequestModel):
    """A function by its name and the schema of its arguments."""

    name: FunctionNameInput
    description: str | None = None
    parameters: dict[str, Any] | None = None


class ToolDefinition(RequestModel):
    """A tool; only functions are known."""

    type: Literal["function"]
    function: FunctionDefinition


class FunctionName(RequestModel):
    """A function by its name alone."""

    name: str


class ToolChoice(RequestModel):
    """Which tool must be called: `type` is none, auto, required, or function with its name."""

    type: Literal["none", "auto", "required", "function"]
    function: FunctionName | None = None


def as_choice(value: object) -> object:
    """A word as an object."""
    return {"type": value} if isinstance(value, str) else value


ToolChoiceInput = Annotated[
    ToolChoice, BeforeValidator(as_choice, json_schema_input_type=Literal["none", "auto", "required"] | ToolChoice)
]


def as_json_text(value: object) -> object:
    """A value as JSON text; null as none."""
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)


Arguments = Annotated[str, BeforeValidator(as_json_text, json_schema_input_type=str | dict[str, Any] | None)]


class CalledFunction(RequestModel):
    """The function that was called, with its arguments as JSON text."""

    name: str
    arguments: Arguments = "{}"


class PastToolCall(RequestModel):
    """A tool call in an earlier message."""

    id: str | None = None
    function: CalledFunction

    def arguments(self) -> dict[str, Any]:
        """As an object, which templates want: none for an empty text, and one with the text where it is no object."""
        text = self.function.arguments
        found = self._object()
        return found if found is not None else {} if text.strip() in ("", "null") else {"arguments": text}

    def has_arguments(self) -> bool:
        """Are the arguments an object?"""
        return self._object() is not None

    def _object(self) -> dict[str, Any] | None:
        try:
            found = json.loads(self.function.arguments)
        except (ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None

    def text(self) -> str:
        """As the model wrote it."""
        call = {"name": self.function.name, "arguments": self.arguments()}
        return f"{BEGIN}\n{json.dumps(call, ensure_ascii=False)}\n{END}"

    def for_template(self) -> dict[str, Any]:
        """For a chat template that supports tools."""
        function = {"name": self.function.name, "arguments": self.arguments()}
        return ({"id": self.id} if self.id else {}) | {"type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class ToolSet:
    """The functions that may be called: one must be if `required`, several at once may be if `parallel`."""

    functions: tuple[FunctionDefinition, ...]
    required: bool
    parallel: bool

    def for_template(self) -> list[dict[str, Any]]:
        """For a chat template that supports tools."""
        return [{"type": "function", "function": function.model_dump(exclude_none=True)} for function in self.functions]

    def system_prompt(self) -> str:
        """For a model whose chat template does not support tools."""
        return SYSTEM_PROMPT % "\n".join(
            json.dumps(tool["function"], ensure_ascii=False) for tool in self.for_template()
        )

    def grammar(self, answer: Grammar | None = None) -> Grammar:
        """Text without a call or ending in calls; with `answer`, JSON that follows it or calls.

        A call's arguments follow their schema. Raises SettingsError for an answer that cannot be bound to its own.
        """
        rules = []
        for i, function in enumerate(self.functions):
            head = json.dumps(f'\n{{"name": {json.dumps(function.name)}, "arguments": ')
            schema = arguments_rule(function.name, json.dumps(function.parameters or {"type": "object"}))
            rules.append(f'call_{i}: {head} %json {schema} "}}\\n{END}"')
        body = f"({' | '.join(f'call_{i}' for i in range(len(rules)))})"
        calls = body + (f' ("\\n{BEGIN}" {body})*' if self.parallel else "")
        if self.required:
            return Grammar("lark", "\n".join([f'start: "{BEGIN}" {calls}', *rules]), "required")
        if answer:
            schema = json.dumps(answer_schema(answer) | COMPACT)
            lines = [f'start: answer | "{BEGIN}" {calls}', f"answer: %json {schema}", *rules]
            return Grammar("lark", "\n".join(lines), "either")
        free = rf"FREE: /(.|\n)*/ & ~/(.|\n)*{BEGIN}(.|\n)*/"
        lines = [f"start: FREE | BEFORE {calls}", free, f'BEFORE: FREE "{BEGIN}"', *rules]
        return Grammar("lark", "\n".join(lines), "auto")


def answer_schema(answer: Grammar) -> dict[str, Any]:
    """The schema that an answer follows. Raises SettingsError where it cannot."""
    schema: dict[str, Any] = json.loads(answer.text or '{"type": "object"}')
    check_schema(schema)
    return closed(schema)


def allowed_tools(tools: Sequence[ToolDefinition], choice: ToolChoice | None, parallel: bool) -> ToolSet | None:
    """The tools that may be called, if any. Raises ApiError for a choice that is not offered."""
    kind, functions = choice.type if choice else "auto", tuple(tool.function for tool in tools)
    if kind == "function":
        name = choice.function.name if choice and choice.function else ""
        functions = tuple(function for function in functions if function.name == name)
    if kind in ("function", "required") and not functions:
        raise ApiError(400, "tool_choice asks for a function that tools does not have. Add it to tools.", "tool_choice")
    if kind == "none" or not functions:
        return None
    return ToolSet(functions, kind in ("function", "required"), parallel and kind != "function")


def supports_tools(template: str) -> bool:
    """Does the chat template write tools and calls in the way above?"""
    return "tools" in template and BEGIN in template and "<function=" not in template


def with_tools_described(messages: Sequence[Message], tools: ToolSet) -> list[Message]:
    """The conversation with the tools in its system prompt."""
    if not messages or messages[0].role != "system":
        return [Message("system", tools.system_prompt()), *messages]
    return [Message("system", f"{messages[0].content}\n\n{tools.system_prompt()}"), *messages[1:]]
