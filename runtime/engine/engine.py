"""The engine interface, for models in this process or in another: the only one used by the command line, the chat and
the server. Plain data in, plain data out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.conversation.chat_template import USUAL_FORM, Message, TemplateForm
from runtime.conversation.prompt import Prompt
from runtime.conversation.quoting import Rendered
from runtime.core.errors import SettingsError
from runtime.core.limits import UNLIMITED, Limits
from runtime.engine.facts import EngineFacts
from runtime.engine.output import Chunk, Sink, Status
from runtime.engine.pooling import ReadText
from runtime.models.registry import Pair
from runtime.sampling.grammar import Grammar
from runtime.sampling.settings import Sampling
from runtime.sampling.thoughts import ThoughtBudget
from runtime.speculative.control.explain import Explanation, Pass


@dataclass(frozen=True, slots=True)
class Ask:
    """A request for a reply. An interrupted reply resumes with its `reply_tokens` and `passes` so far."""

    prompt: Prompt
    sampling: Sampling
    max_tokens: int | None = None  # 0: only prefill the prompt
    stops: tuple[str, ...] = ()
    grammar: Grammar | None = None
    thoughts: ThoughtBudget | None = None
    n_logprobs: int | None = None  # number of likeliest alternatives that come with each token
    after_sampling: bool = False  # whether these are by the distribution after sampling settings, not the model's
    when_full: str = "stop"  # one of POLICIES
    prediction: str = ""  # text that the reply is expected to repeat mostly, for the prediction drafter
    reply_tokens: tuple[int, ...] = ()
    passes: tuple[Pass, ...] = ()
    surprise_limit: float | None = None  # of an interrupted reply with mirostat
    is_short: bool = False  # whether it has priority where replies take turns
    is_admitted: bool = False  # whether it is not refused and goes before what is new, such as work that ran before
    n_indent: int = 0  # minimum spaces or tabs before each line after the first; the reply ends at another line
    is_traced: bool = False  # whether its passes record their reasons
    is_ahead: bool = False  # whether its prompt is only expected: it is read until any other request comes
    lora: tuple[tuple[int, float], ...] | None = None  # ids and scales of LoRA adapters; None: the pair's own scales


class Answering(ABC):
    """What answers requests with replies in chunks."""

    @abstractmethod
    def answer(self, ask: Ask, cancel: Callable[[], bool], on_prefill: Callable[[int, int], None]) -> Iterator[Chunk]:
        """Return the reply in chunks.

        Raises ContextError when the prompt does not fit, SettingsError, TemplateError, ModelError.
        """

    def reply(
        self,
        prompt: Prompt,
        sampling: Sampling,
        max_tokens: int | None = None,
        stops: Sequence[str] = (),
        cancel: Callable[[], bool] = lambda: False,
        on_prefill: Callable[[int, int], None] = lambda done, total: None,
        **more: Any,
    ) -> Iterator[Chunk]:
        """Return the reply to a request with these fields and `more` of Ask; see `answer`."""
        return self.answer(Ask(prompt, sampling, max_tokens, tuple(stops), **more), cancel, on_prefill)


class Engine(Answering):
    """A loaded pair. The outputs of replies are pushed to sinks; text methods work on any thread."""

    pair: Pair
    facts: EngineFacts
    limits: Limits = UNLIMITED  # replies that run and wait

    @abstractmethod
    def encode(self, prompt: Prompt) -> list[int]:
        """Return the token ids of a prompt; a conversation is rendered with the model's chat template.

        Raises TemplateError, SettingsError.
        """

    @abstractmethod
    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] = (),
        form: TemplateForm = USUAL_FORM,
    ) -> Rendered:
        """Return the conversation as prompt text, and the parts of it that are not marks of the template.

        Raises TemplateError.
        """

    @abstractmethod
    def tokenize(self, text: str, *, special: bool = True, bos: bool = False) -> list[int]:
        """Return the token ids of `text`.

        With `special`, names of control tokens in it become these tokens; with `bos`, the model's BOS token comes first
        if it expects one. Raises ContextError for a prompt that cannot fit.
        """

    @abstractmethod
    def token_bytes(self, token: int) -> bytes:
        """Return the bytes that the token adds to the text; b"" for a control token."""

    @abstractmethod
    def is_end(self, token: int) -> bool:
        """Return whether this token ends the model's turn."""

    @property
    @abstractmethod
    def end_tokens(self) -> tuple[int, ...]:
        """All tokens that end the model's turn."""

    @abstractmethod
    def token_text(self, token: int) -> str:
        """Return the token as text; control tokens by their names."""

    @abstractmethod
    def add(self, ask: Ask, sink: Sink) -> int:
        """Begin a reply and return its number. `sink` gets its outputs, on a thread of the engine: the first one when
        it runs, and last a chunk with a finish reason or the error that ended it.

        Raises what `reply` raises, and BusyError if too many replies wait, unless the sink gets the error.
        """

    @abstractmethod
    def cancel(self, number: int) -> None:
        """Cancel a reply, on any thread; it ends soon, with the finish reason "cancelled"."""

    @abstractmethod
    def end(self, number: int) -> None:
        """End a reply without further outputs."""

    @abstractmethod
    def passes(self, first: int = 0) -> tuple[Pass, ...]:
        """Return the target passes of the last reply, finished or not, from index `first` on."""

    @abstractmethod
    def explain(self) -> Explanation:
        """Return the controller's estimates and decision, at the current length of the last reply."""

    @abstractmethod
    def texts_to_ids(self, texts: Sequence[str], cuts: bool = False) -> list[list[int]]:
        """Return the token ids of texts to embed, with those that the model expects around a text; none for an empty
        text. With `cuts`, no more than fit. Raises ContextError for a text that cannot fit.
        """

    @abstractmethod
    def pairs_to_ids(self, query: str, documents: Sequence[str]) -> list[list[int]]:
        """Return the token ids of a query with each document, as a reranking model reads them.

        Raises SettingsError if it is none, and ContextError.
        """

    def is_ready(self, tokens: Sequence[int]) -> bool:
        """Return whether the images of a text to embed are encoded; that begins now or at a later call. Raises
        ModelError.
        """
        return True

    @abstractmethod
    def embed(self, inputs: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """Return the embeddings of texts [n, width], vectors of norm 1, or a reranking model's scores [n, 1], from the
        token ids of each. They are the texts of one of `facts.pooling`'s passes. Raises ContextError, ModelError.
        """

    def read_text(self, text: str, sink: Callable[[ReadText | Exception | None], object]) -> bool:
        """Begin to make a short text's vector, and push it; None or False: it has to be made by two other calls."""
        return False

    def close_drafts(self) -> int:
        """Close the draft model or head until a reply finds room for it, if none is running. Return the bytes that it
        took.
        """
        return 0

    def conversation(self, action: str, number: int, path: str = "") -> tuple[int, int]:
        """Apply an action to a cached conversation: `save` it to a file, `restore` it from one, or `erase` it.

        Number 0 is the conversation used last. Returns its number of tokens and the file size in bytes. Raises
        SettingsError.
        """
        raise SettingsError("No conversation is cached here: another server has the model.")

    def watch(self, on_lost: Callable[[Exception], None]) -> None:
        """Set what is called, on a thread of the engine, if a fault of its own ends all replies for good."""

    def pending_bytes(self, files: Sequence[Path] = ()) -> int:
        """Return the bytes of the machine's memory that the models take and that still count as free, such as weights
        that are mapped from files; 0 where that is unknown. Of `files` that another engine is going to map too, what
        is mapped is left out, because it is in memory once.
        """
        return 0

    @abstractmethod
    def close(self) -> None:
        """Free the models."""

    @property
    @abstractmethod
    def status(self) -> Status:
        """The present state."""
