"""Calls to the model process: about text, while replies continue, and between the steps of replies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.conversation.chat_template import USUAL_FORM, Message, TemplateForm
from runtime.conversation.prompt import Ids, Prompt
from runtime.conversation.quoting import Rendered
from runtime.engine.engine import Engine
from runtime.engine.pooling import ReadText
from runtime.engine.process.answers import value_of
from runtime.engine.process.kept import KeptProcess
from runtime.engine.process.messages import Answered, Call, Failed
from runtime.engine.process.model_process import ProcessLostError
from runtime.speculative.control.explain import Explanation

PART = 2**18  # characters of the texts that are encoded in one call, which has its time


def parts(texts: Sequence[str]) -> Iterator[list[str]]:
    """Yield the texts in order, few enough together for one call."""
    some, n = list[str](), 0
    for text in texts:
        if some and n + len(text) > PART:
            yield some
            some, n = [], 0
        some.append(text)
        n += len(text)
    yield some


class RemoteCalls(Engine):
    """Methods of Engine that the model process answers. Answers about single tokens are cached."""

    def __init__(self, kept: KeptProcess) -> None:
        self.kept, self._words = kept, dict[int, tuple[bytes, str, bool]]()

    def _ask(self, name: str, *args: Any) -> Any:
        """Call a method of the remote engine between two steps, and return its result."""
        return self.kept.call(lambda process: process.ask(Call(name, args)))

    def explain(self) -> Explanation:
        """See Engine."""
        explanation: Explanation = self._ask("explain")
        return explanation

    def is_ready(self, tokens: Sequence[int]) -> bool:
        """See Engine."""
        is_ready: bool = self._ask("is_ready", tokens)
        return is_ready

    def embed(self, inputs: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """See Engine."""
        vectors: NDArray[np.float32] = self._ask("embed", inputs)
        return vectors

    def read_text(self, text: str, sink: Callable[[ReadText | Exception | None], object]) -> bool:
        """See Engine."""

        def pass_on(answer: Future[Answered | Failed]) -> None:
            try:
                sink(value_of(answer.result()))
            except ProcessLostError:
                sink(None)
            except Exception as error:
                sink(error)

        try:
            self.kept.current.push(Call("text_vector", (text,)), pass_on)
        except ProcessLostError:
            return False
        return True

    def close_drafts(self) -> int:
        """See Engine."""
        n_bytes: int = self._ask("close_drafts")
        return n_bytes

    def conversation(self, action: str, number: int, path: str = "") -> tuple[int, int]:
        """See Engine."""
        found: tuple[int, int] = self._ask("conversation", action, number, path)
        return found

    def _ask_text(self, name: str, *args: Any, **named: Any) -> Any:
        """Call a text method of the remote engine while replies continue, and return its result."""
        return self.kept.call(lambda process: process.ask_text(Call(name, args, named)))

    def encode(self, prompt: Prompt) -> list[int]:
        """See Engine."""
        if isinstance(prompt, Ids):  # token ids need no call to the other process
            return prompt.checked(self.facts.n_vocab)
        ids: list[int] = self._ask_text("encode", prompt)
        return ids

    def render(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = (), form: TemplateForm = USUAL_FORM
    ) -> Rendered:
        """See Engine."""
        rendered: Rendered = self._ask_text("render", messages, tools, form)
        return rendered

    def tokenize(self, text: str, *, special: bool = True, bos: bool = False) -> list[int]:
        """See Engine."""
        ids: list[int] = self._ask_text("tokenize", text, special=special, bos=bos)
        return ids

    def texts_to_ids(self, texts: Sequence[str], cuts: bool = False) -> list[list[int]]:
        """See Engine."""
        return [ids for some in parts(texts) for ids in self._ask_text("texts_to_ids", some, cuts)]

    def pairs_to_ids(self, query: str, documents: Sequence[str]) -> list[list[int]]:
        """See Engine."""
        return [ids for some in parts(documents) for ids in self._ask_text("pairs_to_ids", query, some)]

    def token_bytes(self, token: int) -> bytes:
        """See Engine."""
        return self._word(token)[0]

    def token_text(self, token: int) -> str:
        """See Engine."""
        return self._word(token)[1]

    def is_end(self, token: int) -> bool:
        """See Engine."""
        return self._word(token)[2]

    def _word(self, token: int) -> tuple[bytes, str, bool]:
        word = self._words.get(token)
        if word is None:
            word = self._words[token] = self._ask_text("word", token)
        return word

    @cached_property
    def end_tokens(self) -> tuple[int, ...]:
        """See Engine."""
        tokens: tuple[int, ...] = self._ask_text("end_tokens")
        return tokens
