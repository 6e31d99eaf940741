"""A client's tools: their presentation to the model, and the grammar for its calls.

A model whose chat template supports tools gets them in its own form. Any other gets them described in the system
prompt, in Hermes' form. Must not know tokens.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal
from weakref import WeakKeyDictionary

from pydantic import BeforeValidator, Field

from app.server.errors import ApiError
from app.server.fields import RequestModel
from runtime.conversation.calls import (
    DESCRIBED,
    HERMES,
    NO_THOUGHT,
    CallForm,
    Function,
    JsonArguments,
    call_grammar,
    form_of,
)
from runtime.engine import Engine, Grammar, Message

log = logging.getLogger(__name__)
SYSTEM_PROMPT = """You may call these functions, given as JSON schemas:
{functions}
To call one, write nothing but
{call}"""


FunctionNameInput = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_.:-]{1,128}$")]


class FunctionDefinition(RequestModel):
    """A function by its name and the schema of its arguments."""

    name: FunctionNameInput
    description: str | None = None
    parameters: dict[str, Any] | None = None


class ToolDefinition(RequestModel):
    """A tool. Only functions are supported."""

    type: Literal["function"]
    function: FunctionDefinition


class FunctionName(RequestModel):
    """A function by its name only."""

    name: str


class AllowedTool(RequestModel):
    """One of the offered functions."""

    function: FunctionName


class AllowedTools(RequestModel):
    """Some of the offered functions, and whether one must be called."""

    mode: Literal["auto", "required"] = "auto"
    tools: Annotated[list[AllowedTool], Field(min_length=1)]


class ToolChoice(RequestModel):
    """Which tool must be called: `type` is none, auto, required, function with its name, or allowed_tools with some."""

    type: Literal["none", "auto", "required", "function", "allowed_tools"]
    function: FunctionName | None = None
    allowed_tools: AllowedTools | None = None

    def names(self) -> set[str] | None:
        """Return the names of the functions that may be called. None: all."""
        if self.type == "function":
            return {self.function.name} if self.function else set()
        if self.type == "allowed_tools":
            return {each.function.name for each in self.allowed_tools.tools} if self.allowed_tools else set()
        return None

    @property
    def mode(self) -> str:
        """Whether calls are allowed ("auto"), required or forbidden ("none")."""
        if self.type == "allowed_tools":
            return self.allowed_tools.mode if self.allowed_tools else "required"
        return "required" if self.type == "function" else self.type


def as_choice(value: object) -> object:
    """Return a word as an object."""
    return {"type": value} if isinstance(value, str) else value


ToolChoiceInput = Annotated[
    ToolChoice, BeforeValidator(as_choice, json_schema_input_type=Literal["none", "auto", "required"] | ToolChoice)
]


def as_json_text(value: object) -> object:
    """Return a value as JSON text, and null as ""."""
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)


Arguments = Annotated[str, BeforeValidator(as_json_text, json_schema_input_type=Any)]


class CalledFunction(RequestModel):
    """The function that was called, with its arguments as JSON text."""

    name: str
    arguments: Arguments = "{}"


class PastToolCall(RequestModel):
    """A tool call in an earlier message."""

    id: str | None = None
    function: CalledFunction

    def arguments(self) -> dict[str, Any]:
        """Return the arguments as an object, as templates require. An empty text gives {}; any other text that is no
        object is wrapped in one.
        """
        text = self.function.arguments
        found = self._object()
        return found if found is not None else {} if text.strip() in ("", "null") else {"arguments": text}

    def has_arguments(self) -> bool:
        """Return whether the arguments are an object."""
        return self._object() is not None

    def _object(self) -> dict[str, Any] | None:
        try:
            found = json.loads(self.function.arguments)
        except (ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None

    def for_template(self) -> dict[str, Any]:
        """Return the call for a chat template that supports tools."""
        function = {"name": self.function.name, "arguments": self.arguments()}
        return ({"id": self.id} if self.id else {}) | {"type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class ToolSet:
    """The functions that may be called. `required`: one must be; `parallel`: several may be in one reply."""

    functions: tuple[FunctionDefinition, ...]
    required: bool
    parallel: bool

    def for_template(self) -> list[dict[str, Any]]:
        """Return the functions for a chat template that supports tools."""
        return [{"type": "function", "function": function.model_dump(exclude_none=True)} for function in self.functions]

    def system_prompt(self, form: CallForm) -> str:
        """Return a text that describes the tools and the form of a call, for a model whose chat template does not
        support tools.
        """
        functions = "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in self.for_template())
        call = f"{form.opening.lstrip()}NAME{form.head}OBJECT{form.closing}".replace('"NAME"', "NAME")
        return SYSTEM_PROMPT.format(functions=functions, call=call)

    def called(self) -> list[Function]:
        """Return the functions in the form that the parser and the grammar use."""
        return [Function(function.name, function.parameters) for function in self.functions]

    def grammar(self, answer: Grammar | None = None, form: CallForm = HERMES, thoughts: str = NO_THOUGHT) -> Grammar:
        """Return the grammar of calls, of text that may end in calls, or of an answer or calls.

        Raises SettingsError.
        """
        return call_grammar(
            form, self.called(), required=self.required, parallel=self.parallel, answer=answer, thoughts=thoughts
        )


def allowed_tools(tools: Sequence[ToolDefinition], choice: ToolChoice | None, parallel: bool) -> ToolSet | None:
    """Return the tools that may be called, or None. Raises ApiError for a choice that is not offered."""
    mode, names = (choice.mode, choice.names()) if choice else ("auto", None)
    functions = tuple(tool.function for tool in tools if names is None or tool.function.name in names)
    known = {function.name for function in functions}
    if (names is not None and not (names and names <= known)) or (mode == "required" and not functions):
        raise ApiError(400, "tool_choice asks for a function that tools does not have. Add it to tools.", "tool_choice")
    if mode == "none" or not functions:
        return None
    return ToolSet(functions, mode == "required", parallel and not (choice and choice.type == "function"))


FORMS: WeakKeyDictionary[Engine, CallForm | None] = WeakKeyDictionary()


def form_for(engine: Engine) -> CallForm | None:
    """Return the form of an engine's tool calls, or None if its chat template has no calls."""
    if engine not in FORMS:
        found = HERMES if engine.facts.upstream else form_of(engine.facts.template)
        if found is None and "tools" in engine.facts.template:
            log.warning("The form of tool calls cannot be found in the chat template; tools are described in words.")
        FORMS[engine] = found.ending_early(lambda mark: is_end(mark, engine)) if found else None
    return FORMS[engine]


def is_end(mark: str, engine: Engine) -> bool:
    """Return whether a marker is a single end-of-turn token."""
    tokens = [] if engine.facts.upstream else engine.tokenize(mark)
    return len(tokens) == 1 and engine.is_end(tokens[0])


def with_tools_described(messages: Sequence[Message], tools: ToolSet, form: CallForm) -> list[Message]:
    """Return the conversation with the tools described in its system prompt."""
    words = tools.system_prompt(form if isinstance(form.arguments, JsonArguments) else DESCRIBED)
    if not messages or messages[0].role != "system":
        return [Message("system", words), *messages]
    return [Message("system", f"{messages[0].content}\n\n{words}"), *messages[1:]]
