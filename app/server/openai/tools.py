"""A client's tools: their presentation to the model, and the grammar for its calls.

A model whose chat template supports tools gets them in its own form. Any other gets them described in the system
prompt, in Hermes' form. Must not know tokens.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar
from weakref import WeakKeyDictionary

from pydantic import BeforeValidator, Discriminator, Field, Tag, WithJsonSchema

from app.server.errors import ApiError
from app.server.fields import Few, Object, RequestModel, Text
from app.server.left_out import log_left_out
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
MOST_NAMED = 8  # functions that an error names
SYSTEM_PROMPT = """You may call these functions, given as JSON schemas:
{functions}
To call one, write nothing but
{call}"""


FunctionNameInput = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_.:-]{1,128}$")]


class FunctionDefinition(RequestModel):
    """A function by its name and the schema of its arguments."""

    name: FunctionNameInput
    description: Text | None = None
    parameters: Object | None = None


class ToolDefinition(RequestModel):
    """A function that may be called."""

    type: Literal["function"] = "function"
    function: FunctionDefinition


class HostedTool(RequestModel):
    """A tool of another type. It is left out."""

    type: Annotated[str, WithJsonSchema({"type": "string", "not": {"const": "function"}})]


def kind_of(tool: Any) -> str | None:
    """Return the tag of the model that reads this tool. The space in it keeps it out of the field names in errors."""
    if isinstance(tool, dict):
        return "function tool" if tool.get("type") in (None, "function") or "function" in tool else "hosted tool"
    if isinstance(tool, ToolDefinition):
        return "function tool"
    return "hosted tool" if isinstance(tool, HostedTool) else None


ToolInput = Annotated[
    Annotated[ToolDefinition, Tag("function tool")] | Annotated[HostedTool, Tag("hosted tool")],
    Discriminator(kind_of, "tool_type", "Input should be an object"),
]


Tool = TypeVar("Tool", bound=RequestModel)


class FunctionName(RequestModel):
    """A function by its name only."""

    name: str


class AllowedTool(RequestModel):
    """One of the offered functions. A tool of another type, which is left out, has none."""

    function: FunctionName | None = None


class AllowedTools(RequestModel):
    """Some of the offered functions, and whether one must be called."""

    mode: Literal["auto", "required"] = "auto"
    tools: Annotated[Few[AllowedTool], Field(min_length=1)]


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
            some = self.allowed_tools.tools if self.allowed_tools else []
            return {each.function.name for each in some if each.function}
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


def offered(tools: Iterable[Tool | HostedTool] | None, kind: type[Tool]) -> list[Tool]:
    """Return the tools that the model can call. The others are left out, which is logged."""
    found = list[Tool]()
    for tool in tools or ():
        if isinstance(tool, kind):
            found.append(tool)
        elif isinstance(tool, HostedTool):
            log_left_out("tools", tool.type)
    return found


def allowed_tools(tools: Sequence[ToolInput], choice: ToolChoice | None, parallel: bool) -> ToolSet | None:
    """Return the tools that may be called, or None. Raises ApiError for a choice that is not offered."""
    mode, names = (choice.mode, choice.names()) if choice else ("auto", None)
    functions = [tool.function for tool in offered(tools, ToolDefinition)]
    allowed = tuple(function for function in functions if names is None or function.name in names)
    known = {function.name for function in allowed}
    if (names is not None and not (names and names <= known)) or (mode == "required" and not allowed):
        some = ", ".join(f"'{function.name}'" for function in functions[:MOST_NAMED]) or "no function"
        raise ApiError(
            400,
            f"tool_choice asks for none of the functions in tools ({some}), and this server has no tools of its own. "
            "Name one of these functions, or choose auto.",
            "tool_choice",
        )
    if mode == "none" or not allowed:
        return None
    return ToolSet(allowed, mode == "required", parallel and not (choice and choice.type == "function"))


FORMS: WeakKeyDictionary[Engine, dict[str, CallForm | None]] = WeakKeyDictionary()  # by template


def form_for(engine: Engine, has_tools: bool) -> CallForm | None:
    """Return the form of an engine's tool calls, or None if its chat template, that for tools or the usual one, has no
    calls.
    """
    template = engine.facts.template_with_tools if has_tools else engine.facts.template
    known = FORMS.setdefault(engine, {})
    if template not in known:
        found = HERMES if engine.facts.upstream else form_of(template)
        if found is None and "tools" in template:
            log.warning("The form of tool calls cannot be found in the chat template; tools are described in words.")
        known[template] = found.ending_early(lambda mark: is_end(mark, engine)) if found else None
    return known[template]


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
