"""A prompt that ends with the beginning of its reply: the last message of a conversation, which is continued."""

from __future__ import annotations

from dataclasses import dataclass

from app.reasoning import BEGIN, END, opens_reasoning, split_reasoning
from runtime.engine import Rendered

# How a model with channels begins a thought and an answer, and what is between two messages of its reply
ANALYSIS, FINAL, NEXT = "<|channel|>analysis<|message|>", "<|channel|>final<|message|>", "<|end|><|start|>assistant"


@dataclass(frozen=True, slots=True)
class WrittenPrompt:
    """A rendered prompt. `is_thinking`: it ends within the reasoning; `is_answering`: it ends within the answer.

    `changes` lists the changes to the conversation that the template required.
    """

    rendered: Rendered
    is_thinking: bool = False
    is_answering: bool = False
    changes: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The whole prompt as text."""
        return self.rendered.text


@dataclass(frozen=True, slots=True)
class BegunReply:
    """The thought and the text of a reply so far."""

    thought: str
    text: str


def continued(prompt: Rendered, begun: BegunReply, part: str, thinks: bool) -> WrittenPrompt:
    """Return the prompt with the beginning of the reply, whose `part` is continued.

    Parts of its text are paragraphs, as in llama-server.
    """
    is_open, is_ended = opens_reasoning(prompt.text), False
    thought, text = begun.thought, begun.text
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


def continued_in_channel(prompt: Rendered, begun: BegunReply, part: str) -> WrittenPrompt:
    """Return the prompt as `continued` does, for a model that writes thoughts and answers into channels."""
    thought, text = begun.thought, begun.text
    if part == "reasoning_content" or (thought and not text):
        return WrittenPrompt(prompt.plus(ANALYSIS).plus(thought, is_quoted=True), is_thinking=True)
    if not text:
        return WrittenPrompt(prompt)
    before = prompt.plus(ANALYSIS).plus(thought, is_quoted=True).plus(NEXT) if thought else prompt
    return WrittenPrompt(before.plus(FINAL).plus(text, is_quoted=True), is_answering=True)
