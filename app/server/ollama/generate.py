"""/api/generate of Ollama: a question, the gap between two texts, or a text to continue.

A reply has its conversation as token ids, the `context`, which the next question continues.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from app.server.endpoint import require_tokens
from app.server.errors import ApiError
from app.server.fields import Many, Text, Whole
from app.server.generation import text_of_ids
from app.server.ollama.chat import OllamaRequest, text_endpoint, with_text
from app.server.ollama.reply import OllamaFormatter
from app.server.openai.chat import ChatRequest
from app.server.openai.completions import CompletionRequest
from app.server.openai.conversation import WrittenPrompt
from app.server.openai.messages import ChatMessage, chat_message
from app.server.openai.reply_reader import ReplyReader
from app.server.task import PromptIds, encoded
from app.server.wire import Event
from runtime.engine import Chunk, Engine, Ids, Pictured, Rendered, with_images

PLACEHOLDER = "Known before."  # in place of a question and a reply that are known as ids only


class ContinuedChat(ChatRequest):
    """A chat whose earlier turns are token ids. Its messages are the new ones."""

    context: Many[int]

    def write(self, engine: Engine) -> WrittenPrompt:
        """Return the prompt after the context: the end of the last turn, and the new ones."""
        Ids(tuple(self.context)).checked(engine.facts.n_vocab, "context")
        known = [chat_message(role, PLACEHOLDER) for role in ("user", "assistant")]
        messages = [*known, *self._new_messages(engine)]
        whole = ChatRequest.model_copy(self, update={"messages": messages, "_written": None})
        prompt = ChatRequest.write(whole, engine)
        at = prompt.text.find(PLACEHOLDER, prompt.text.find(PLACEHOLDER) + 1)
        return replace(prompt, rendered=after(prompt.rendered, at + len(PLACEHOLDER)) if at >= 0 else prompt.rendered)

    def _new_messages(self, engine: Engine) -> list[ChatMessage]:
        """Return the messages without a system prompt that the context already has."""
        first, *rest = self.messages
        has_it = first.role == "system" and first.text in text_of_ids(self.context, engine)
        return rest if has_it and rest else self.messages

    def following(self, engine: Engine, reply: str) -> None:
        """Return None: the next request brings token ids again, which are cached as they are."""

    def _prompt(self, engine: Engine) -> Ids | Pictured:
        prompt = with_images(self.written(engine).rendered, self.images)
        new, begin = engine.encode(prompt), engine.tokenize("", bos=True)
        new = new[len(begin) :] if new[: len(begin)] == begin else new
        is_ended = bool(self.context and new) and engine.is_end(self.context[-1]) and engine.is_end(new[0])
        ids = Ids((*self.context[: len(self.context) - is_ended], *new))
        return encoded(with_images(ids, self.images), engine)


def after(prompt: Rendered, at: int) -> Rendered:
    """Return a prompt's text from that place on."""
    quoted = tuple((start - at, end - at) for start, end in prompt.quoted if start >= at)
    return replace(prompt, text=prompt.text[at:], quoted=quoted)


class ContextFormatter(OllamaFormatter):
    """Writes the lines of a reply, whose last one has the conversation as token ids."""

    asks_at_end = True

    def __init__(self, model: str, reply: ReplyReader, prompt: PromptIds, engine: Engine) -> None:
        super().__init__(model, reply, is_chat=False)
        self._prompt, self._engine = prompt, engine
        self._text, self._tokens = "", list[int]()

    def chunk_events(self, chunk: Chunk) -> Iterator[Event]:
        """Yield the lines of a chunk, and note its text and tokens."""
        self._note(chunk)
        yield from super().chunk_events(chunk)

    def last_events(self, last: Chunk) -> Iterator[Event]:
        """Yield the last line."""
        for event in super().last_events(last):
            yield event | self._context(last)

    def body(self, chunks: Sequence[Chunk]) -> Event:
        """Return the whole reply as one line."""
        for chunk in chunks:
            self._note(chunk)
        return super().body(chunks) | self._context(chunks[-1])

    def _note(self, chunk: Chunk) -> None:
        self._text += chunk.text
        self._tokens += chunk.tokens

    def _context(self, last: Chunk) -> Event:
        """Return the ids of the prompt and the reply. Those of a stop string are no part of it."""
        reply = self._engine.tokenize(self._text, special=False) if last.stop else self._tokens
        return {"context": [token for token in (*self._prompt, *reply) if token >= 0]}  # without those of images


class GenerateRequest(OllamaRequest):
    """The body of a request to /api/generate; without a prompt, the model is only to be loaded."""

    is_chat = False
    prompt: Text | None = None
    suffix: Text | None = None
    system: Text | None = None
    template: Text | None = None
    raw: bool | None = None
    context: Many[Whole] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there is no text."""
        return not self.prompt and not self.suffix and not self.images

    def asked(self, engine: Engine) -> ChatRequest | CompletionRequest:
        """Return the request as an OpenAI request. The chat template is not applied to raw text or a gap in one.

        Raises ApiError.
        """
        if self.context:
            require_tokens(engine)
        if self.template:
            message = "template cannot be changed here. Leave it out, or send the whole prompt with raw."
            raise ApiError(400, message, "template")
        prompt = self.prompt or ""
        if self.raw or self.suffix:
            if self.context:
                message = "context excludes raw and suffix. Send the whole text as the prompt, or leave it out."
                raise ApiError(400, message, "context")
            if self.images:
                message = "images need the chat template, so they exclude raw and suffix. Leave one of them out."
                raise ApiError(400, message, "images")
            return CompletionRequest(prompt=[prompt], suffix=self.suffix, **self.settings())
        turns = [("system", self.system), ("user", prompt)]
        messages = [chat_message(role, text) for role, text in turns if text]
        if self.images:
            messages[bool(self.system) :] = [chat_message("user", with_text(self.images, prompt))]
        shared = self.settings() | self.thoughts()
        if self.context:
            return ContinuedChat(messages=messages, context=self.context, **shared)
        return ChatRequest(messages=messages, **shared)

    def formatter(
        self, model: str, asked: ChatRequest | CompletionRequest, engine: Engine, prompts: Sequence[PromptIds]
    ) -> OllamaFormatter:
        """Return the formatter for the reply, which has a context where there is a chat and its tokens are known."""
        if isinstance(asked, ChatRequest) and not engine.facts.upstream:
            return ContextFormatter(model, asked.reply_reader(engine), prompts[0], engine)
        return super().formatter(model, asked, engine, prompts)


ENDPOINT = text_endpoint("/api/generate", GenerateRequest)
