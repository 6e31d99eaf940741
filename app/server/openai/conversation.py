"""Turns a conversation into a prompt: messages, tools, template variables, and a reply to continue.

Knows chat templates by their output; must not know how a reply is generated or sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal
from weakref import WeakSet

from pydantic import AliasChoices, Field

from app.reply_text import BEGIN, END, opens_reasoning, split_reasoning
from app.server.errors import ApiError
from app.server.fields import Few, Object, RequestModel, Whole
from app.server.left_out import NOTED
from app.server.openai.messages import LOST, ChatMessage, Messages, without_lost
from app.server.openai.tools import (
    ToolChoiceInput,
    ToolInput,
    ToolSet,
    allowed_tools,
    form_for,
    with_tools_described,
)
from app.server.pictures import images_of
from runtime.conversation.calls import DESCRIBED, CallForm, is_harmony, past_turns, plain_tools
from runtime.core.errors import TemplateError, TemplateLimitError
from runtime.engine import Engine, Message, Rendered, TemplateForm

# How a model with channels begins a thought and an answer, and what is between two messages of its reply
ANALYSIS, FINAL, NEXT = "<|channel|>analysis<|message|>", "<|channel|>final<|message|>", "<|end|><|start|>assistant"
WANT_PLAIN_TOOLS: WeakSet[Engine] = WeakSet()  # engines whose templates refused tools as clients send them
FILLED_UP = "fields of tools added that the template reads"


@dataclass(frozen=True, slots=True)
class WrittenPrompt:
    """A rendered prompt. `is_thinking`: it ends within the reasoning; `is_answering`: it ends within the answer."""

    rendered: Rendered
    is_thinking: bool = False
    is_answering: bool = False

    @property
    def text(self) -> str:
        """The whole prompt as text."""
        return self.rendered.text


def continued(prompt: Rendered, thought: str, text: str, part: str, thinks: bool) -> WrittenPrompt:
    """Return the prompt with the beginning of the reply, its thought and its text, whose `part` is continued.

    Parts of its text are paragraphs, as in llama-server.
    """
    is_open, is_ended = opens_reasoning(prompt.text), False
    if thinks and not thought:
        text = BEGIN + text if is_open and END in text and not text.lstrip().startswith(BEGIN) else text
        is_ended = text.lstrip().startswith(BEGIN) and END in text
        thought, text = split_reasoning(text)
    opened = (prompt if is_open else prompt.plus(f"{BEGIN}\n")).plus(thought, is_quoted=True)
    if part == "reasoning_content" or (thought and not text and not is_ended):
        return WrittenPrompt(opened, is_thinking=True)
    if not text and not is_ended:
        return WrittenPrompt(prompt, is_open)
    before = opened.plus(f"\n{END}\n\n") if thought or is_open or is_ended else prompt
    return WrittenPrompt(before.plus(text, is_quoted=True), is_answering=True)


def continued_in_channel(prompt: Rendered, thought: str, text: str, part: str) -> WrittenPrompt:
    """Return the prompt as `continued` does, for a model that writes thoughts and answers into channels."""
    if part == "reasoning_content" or (thought and not text):
        return WrittenPrompt(prompt.plus(ANALYSIS).plus(thought, is_quoted=True), is_thinking=True)
    if not text:
        return WrittenPrompt(prompt)
    before = prompt.plus(ANALYSIS).plus(thought, is_quoted=True).plus(NEXT) if thought else prompt
    return WrittenPrompt(before.plus(FINAL).plus(text, is_quoted=True), is_answering=True)


class ConversationRequest(RequestModel):
    """The fields that a chat and /apply-template share."""

    messages: Messages
    tools: Few[ToolInput] | None = None
    tool_choice: ToolChoiceInput | None = None
    parallel_tool_calls: bool | None = None
    documents: Few[Object] | None = None
    enable_thinking: bool | None = None
    reasoning_effort: str | None = None
    reasoning_budget: Whole | None = Field(
        None,
        validation_alias=AliasChoices("reasoning_budget", "reasoning_budget_tokens", "thinking_budget_tokens"),
        ge=-1,
    )  # tokens of reasoning; 0: none; -1: no limit
    chat_template_kwargs: Object | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | Literal["content", "reasoning_content"] | None = None
    _written: WrittenPrompt | None = None

    def tool_set(self) -> ToolSet | None:
        """Return the tools that may be called, or None. Raises ApiError."""
        return allowed_tools(self.tools or (), self.tool_choice, self.parallel_tool_calls is not False)

    @property
    def answers_at_once(self) -> bool:
        """Whether the reply must begin with the requested form, without reasoning."""
        tools = self.tool_set()
        return bool(tools and tools.required)

    @property
    def images(self) -> list[bytes]:
        """The files of all images."""
        return [image for message in self.messages for image in images_of(message.content or ())]

    def written(self, engine: Engine) -> WrittenPrompt:
        """Return the rendered prompt. It is rendered only once. Raises ApiError and TemplateError."""
        if self._written is None:
            written = self.write(engine)
            changes = *self._changes(), *written.rendered.changes
            self._written = replace(written, rendered=replace(written.rendered, changes=changes))
        return self._written

    def followed_by(self, engine: Engine, more: Sequence[object]) -> Rendered:
        """Return the prompt of the same request with more messages. Raises ApiError and TemplateError."""
        messages = [*self.messages, *map(ChatMessage.model_validate, more)]
        return self.model_copy(update={"messages": messages}).write(engine).rendered

    def template(self, engine: Engine) -> str:
        """Return the source of the chat template that the conversation is rendered with. Raises ApiError."""
        return engine.facts.template_with_tools if self.tool_set() else engine.facts.template

    def _changes(self) -> Iterator[str]:
        """Yield the changes to the messages that were made before any template rendered them."""
        if any(NOTED.search(message.text) for message in self.messages):
            yield "a note put in place of parts that are not text"
        if not all(call.has_arguments() for message in self.messages for call in message.tool_calls or ()):
            yield "arguments wrapped in an object"

    def write(self, engine: Engine) -> WrittenPrompt:
        """Render the prompt, every time. Raises ApiError and TemplateError."""
        if not self._continues():
            prompt = self._render(engine, self.messages, self.add_generation_prompt is not False)
            return WrittenPrompt(prompt, opens_reasoning(prompt.text))
        prompt = self._render(engine, self.messages[:-1], True)
        part = "reasoning_content" if self.continue_final_message == "reasoning_content" else "content"
        template, last = self.template(engine), self.messages[-1]
        paragraphs = "\n\n".join(part.text for part in last.content or ())  # as in llama-server
        thought = last.reasoning_content or ""
        if is_harmony(template):
            return continued_in_channel(prompt, thought, paragraphs, part)
        return continued(prompt, thought, paragraphs, part, BEGIN in template)

    def _render(self, engine: Engine, messages: Sequence[ChatMessage], begins_reply: bool) -> Rendered:
        """Return the prompt from the messages and the tools."""
        tools = self.tool_set()
        has_tools = tools or any(message.tool_calls or message.tool_call_id for message in messages)
        form = form_for(engine, bool(tools)) if has_tools else None  # slow to find
        written = TemplateForm(self._variables(engine), begins_reply)

        def as_prompt(messages: Sequence[ChatMessage]) -> Rendered:
            turns = past_turns([message.message() for message in messages], form)
            return rendered(engine, turns, tools, written, form or DESCRIBED)

        prompt = as_prompt(messages)
        if noted := without_lost(messages, prompt.text):
            prompt = changed(as_prompt(noted), LOST)
        prompt = changed(prompt, "calls written as text" * writes_calls_as_text(messages, form))
        # A template that always opens the reasoning: the prompt must close it
        is_open = opens_reasoning(prompt.text) and not written.variables["enable_thinking"]
        return prompt.plus(END) if is_open else prompt

    def _variables(self, engine: Engine) -> dict[str, Any]:
        """Return the variables for the template. Raises ApiError."""
        thinks = engine.pair.thinking if self.enable_thinking is None else self.enable_thinking
        is_off = self.reasoning_effort == "none" or self.reasoning_budget == 0
        found: dict[str, Any] = {"enable_thinking": thinks and not is_off and not self.answers_at_once}
        if self.reasoning_effort and self.reasoning_effort != "none":
            found["reasoning_effort"] = self.reasoning_effort
        if self.documents:
            found["documents"] = self.documents
        found |= self.chat_template_kwargs or {}
        if not isinstance(found["enable_thinking"], bool):
            message = "chat_template_kwargs.enable_thinking must be true or false, without quotes."
            raise ApiError(400, message, "chat_template_kwargs")
        return found

    def _continues(self) -> bool:
        """Return whether the reply continues the last message. Raises ApiError if that contradicts other fields."""
        asked, last = self.continue_final_message, self.messages[-1]
        if asked and self.add_generation_prompt:
            message = "add_generation_prompt and continue_final_message exclude each other. Set one of them to false."
            raise ApiError(400, message, "continue_final_message")
        if asked and (last.role != "assistant" or last.tool_calls):
            message = "continue_final_message needs a last assistant message without tool calls. Leave it out."
            raise ApiError(400, message, "continue_final_message")
        if asked is False or last.role != "assistant" or last.tool_calls:
            return False
        if len(self.messages) > 1 and self.messages[-2].role == "assistant":
            message = "messages ends with two assistant messages, and only one can be continued. Join them."
            raise ApiError(400, message, "messages")
        return True


def writes_calls_as_text(messages: Sequence[ChatMessage], form: CallForm | None) -> bool:
    """Return whether there are earlier calls and the template, which supports tools, renders calls only as text."""
    return form is not None and form.past is None and any(message.tool_calls for message in messages)


def rendered(
    engine: Engine, turns: Sequence[Message], tools: ToolSet | None, written: TemplateForm, form: CallForm
) -> Rendered:
    """Return the prompt with tools in the form of the chat template, or described in words if it does not support them.

    Raises TemplateError.
    """
    if tools is None:
        return engine.render(turns, (), written)
    given = tools.for_template()
    for are_plain in (engine in WANT_PLAIN_TOOLS, True) if "tools" in engine.facts.template_with_tools else ():
        try:
            prompt = engine.render(turns, plain_tools(given) if are_plain else given, written)
        except TemplateLimitError:
            raise
        except TemplateError:
            continue
        if are_plain:
            WANT_PLAIN_TOOLS.add(engine)  # so that it is not tried again
        return changed(prompt, FILLED_UP * are_plain)
    return changed(engine.render(with_tools_described(turns, tools, form), (), written), "tools described in words")


def changed(prompt: Rendered, what: str) -> Rendered:
    """Return the prompt with one more recorded change, unless `what` is empty."""
    return replace(prompt, changes=(*prompt.changes, what)) if what else prompt
