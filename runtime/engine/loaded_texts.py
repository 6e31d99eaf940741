"""The text methods of an engine in this process: chat templates and the vocabulary."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as List
from functools import cached_property
from typing import Any

from runtime.backends.vocab import Vocab
from runtime.conversation.chat_template import USUAL_FORM, Message, TemplateForm
from runtime.conversation.prompt import Ids, Prompt, PromptEncoder
from runtime.conversation.quoting import Rendered
from runtime.core.errors import SettingsError
from runtime.engine.engine import Engine
from runtime.engine.pooling import ReadText

NO_RANKS = (
    "This model writes text and scores no documents. Serve a reranking model, or compare the vectors of "
    "`/v1/embeddings`."
)


class LoadedTexts(Engine):
    """Text methods of Engine. They may be called on any thread, also while replies are generated."""

    def __init__(self, vocab: Vocab, encoder: PromptEncoder) -> None:
        self.vocab, self._encoder = vocab, encoder

    def prepare(self) -> None:
        """Prepare the prompt encoder, so that the first prompt does not wait for it."""
        self._encoder.prepare()

    def encode(self, prompt: Prompt) -> list[int]:
        """See Engine."""
        return self._encoder.encode(prompt)

    def render(
        self,
        messages: List[Message],
        tools: List[Mapping[str, Any]] = (),
        form: TemplateForm = USUAL_FORM,
    ) -> Rendered:
        """See Engine."""
        return self._encoder.render(messages, tools, form)

    def unquoted_roles(self) -> list[str]:
        """See PromptEncoder."""
        return self._encoder.unquoted_roles()

    def tokenize(self, text: str, *, special: bool = True, bos: bool = False) -> list[int]:
        """See Engine."""
        if bos:
            self._encoder.check_length(text)
        ids = self.vocab.encode(text, special=special)
        return [self.vocab.bos, *ids] if bos and self.vocab.adds_bos and ids[:1] != [self.vocab.bos] else ids

    def text_vector(self, text: str) -> ReadText:
        """Return the ids of a text and its vector, if it has one."""
        (ids,) = self.texts_to_ids([text])
        return ReadText(ids, self.embed([ids])[0] if 0 < len(ids) <= self.facts.n_ctx else None)

    def texts_to_ids(self, texts: List[str], cuts: bool = False) -> list[list[int]]:
        """See Engine."""
        if not cuts:
            return [self.tokenize(text, special=False, bos=True) for text in texts]
        room = self._encoder.n_ctx
        begun = (text[: room * self.vocab.longest] for text in texts)
        return [self.tokenize(text, special=False, bos=True)[:room] for text in begun]

    def pairs_to_ids(self, query: str, documents: List[str]) -> list[list[int]]:
        """Raise SettingsError: a model that writes text scores no documents."""
        raise SettingsError(NO_RANKS)

    def token_bytes(self, token: int) -> bytes:
        """See Engine."""
        return self.vocab.pieces[token]

    def is_end(self, token: int) -> bool:
        """See Engine."""
        return self.vocab.ends[token]

    @cached_property
    def end_tokens(self) -> tuple[int, ...]:
        """See Engine."""
        return tuple(token for token in range(self.vocab.n_vocab) if self.vocab.ends[token])

    def word(self, token: int) -> tuple[bytes, str, bool]:
        """Return a token's bytes, its text, and whether it ends a turn. Raises SettingsError for an unknown one, which
        would end the process.
        """
        Ids((token,)).checked(self.vocab.n_vocab)
        return self.token_bytes(token), self.token_text(token), self.is_end(token)

    def token_text(self, token: int) -> str:
        """See Engine."""
        return self.vocab.text_or_name(token)
