"""Questions about text to the process that has the models, beside replies."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property
from typing import Any

from runtime.conversation.chat_template import USUAL_FORM, Message, TemplateForm
from runtime.conversation.prompt import Ids, Prompt
from runtime.conversation.quoting import Rendered
from runtime.core.errors import TemplateError
from runtime.engine.engine import Engine
from runtime.process.messages import Call
from runtime.process.model_process import TEXT, ModelProcess, OverdueError, ProcessLostError


class RemoteTexts(Engine):
    """What an engine says of text. What it said of a token is kept."""

    def __init__(self) -> None:
        self._words: dict[int, tuple[bytes, str, bool]] = {}

    @abstractmethod
    def living(self) -> ModelProcess:
        """The process, started anew where it was lost. Raises what loading raises."""

    @abstractmethod
    def note_loss(self, lost: ProcessLostError, place: Hashable) -> None:
        """Takes in that the process was lost there. Raises ModelError when that goes on."""

    def _ask_text(self, name: str, *args: Any, **named: Any) -> Any:
        """What the engine there says of text, beside replies."""
        place = object()
        while True:
            try:
                return self.living().ask_text(Call(name, args, named))
            except ProcessLostError as lost:
                self.note_loss(lost, place)
            except OverdueError:
                raise TemplateError(
                    f"Reading the prompt took more than {TEXT:g} s, so it was given up: it is too long, or the model's "
                    "chat template does not come to an end."
                ) from None

    def encode(self, prompt: Prompt) -> list[int]:
        """As Engine says."""
        if isinstance(prompt, Ids):  # no way to another process for what is known here
            return prompt.checked(self.facts.n_vocab)
        ids: list[int] = self._ask_text("encode", prompt)
        return ids

    def render(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = (), form: TemplateForm = USUAL_FORM
    ) -> Rendered:
        """As Engine says."""
        rendered: Rendered = self._ask_text("render", messages, tools, form)
        return rendered

    def tokenize(self, text: str, *, special: bool = True, bos: bool = False) -> list[int]:
        """As Engine says."""
        ids: list[int] = self._ask_text("tokenize", text, special=special, bos=bos)
        return ids

    def token_bytes(self, token: int) -> bytes:
        """As Engine says."""
        return self._word(token)[0]

    def token_text(self, token: int) -> str:
        """As Engine says."""
        return self._word(token)[1]

    def is_end(self, token: int) -> bool:
        """As Engine says."""
        return self._word(token)[2]

    def _word(self, token: int) -> tuple[bytes, str, bool]:
        word = self._words.get(token)
        if word is None:
            word = self._words[token] = self._ask_text("word", token)
        return word

    @cached_property
    def end_tokens(self) -> tuple[int, ...]:
        """As Engine says."""
        tokens: tuple[int, ...] = self._ask_text("end_tokens")
        return tokens
