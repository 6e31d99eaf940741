"""The `context` of /api/generate: a conversation as token ids, returned with a reply and continued by a question."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from app.server.bounds import Many
from app.server.generation import PromptIds
from app.server.ollama.reply import OllamaFormatter
from app.server.openai.begun_reply import WrittenPrompt
from app.server.openai.chat import ChatRequest
from app.server.openai.conversation import ChatMessage
from app.server.openai.reply_reader import ReplyReader
from app.server.prompts import text_of_ids
from app.server.wire import Event
from runtime.engine import Chunk, Engine, Ids, Prompt, Rendered

PLACEHOLDER = "Known before."  # in place of a question and a reply that are known as ids only


class ContinuedChat(ChatRequest):
    """A chat whose earlier turns are token ids. Its messages are the new ones."""

    context: Many[int]

    def write(self, engine: Engine) -> WrittenPrompt:
        """Return the prompt after the context: the end of the last turn, and the new ones."""
        messages, known = self._new_messages(engine), [placeholder("user"), placeholder("assistant")]
        whole = ChatRequest.model_copy(self, update={"messages": [*known, *messages], "_written": None})
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

    def _prompt(self, engine: Engine) -> Prompt:
        new, begin = engine.encode(self.written(engine).rendered), engine.tokenize("", bos=True)
        new = new[len(begin) :] if new[: len(begin)] == begin else new
        is_ended = bool(self.context and new) and engine.is_end(self.context[-1]) and engine.is_end(new[0])
        return Ids((*self.context[: len(self.context) - is_ended], *new))


def placeholder(role: str) -> ChatMessage:
    """Return a message in place of one that is known as ids only."""
    return ChatMessage.model_validate({"role": role, "content": PLACEHOLDER})


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
        return {"context": [*self._prompt, *reply]}
