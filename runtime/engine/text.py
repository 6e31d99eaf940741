"""Converts the bytes of tokens to text that can be shown: whole UTF-8 characters, without a possible beginning of a
stop string. And the text methods of an engine in this process: chat templates and the vocabulary.
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
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

FENCE = "```"
NO_RANKS = (
    "This model writes text and scores no documents. Serve a reranking model, or compare the vectors of "
    "`/v1/embeddings`."
)


class TextStream:
    """Converts bytes piece by piece and returns text as soon as it is certain.

    `stop` is the stop string once one has appeared. `is_code` is true between a Markdown fence and the next. From the
    second line on, each line must begin with `n_indent` spaces or tabs; `is_outdented` is set at one that does not.
    """

    def __init__(self, stops: Sequence[str] = (), n_indent: int = 0) -> None:
        self._stops, self._n_indent = [stop for stop in stops if stop], n_indent
        self._indent: int | None = None  # indentation of a line without other characters so far
        self.is_outdented = False
        self._decoder = codecs.getincrementaldecoder("utf8")("replace")
        self._held, self._fence, self.stop = "", "", ""
        self.is_code = False

    @property
    def stopped(self) -> bool:
        """Whether a stop string or an insufficiently indented line has appeared."""
        return bool(self.stop) or self.is_outdented

    def feed(self, piece: bytes) -> str:
        """Return the text that became certain with these bytes; never the stop string or text after it."""
        text = self._indented(self._release(self._decoder.decode(piece), final=False))
        *fences, self._fence = (self._fence + text).split(FENCE)
        self.is_code ^= len(fences) % 2 == 1
        self._fence = self._fence[1 - len(FENCE) :]
        return text

    def finish(self) -> str:
        """Return the remaining text at the end of the reply."""
        return self._indented(self._release(self._decoder.decode(b"", True), final=True))

    def _indented(self, text: str) -> str:
        """Return the text up to the first insufficiently indented line, including that line's indentation."""
        for at, character in enumerate(text if self._n_indent else ""):
            if self._indent is not None and character in " \t":
                self._indent += 1
                continue
            if self._indent is not None and self._indent < self._n_indent:
                self.is_outdented = True
                return text[:at]
            self._indent = 0 if character == "\n" else None
        return text

    def _release(self, new: str, *, final: bool) -> str:
        if self.stopped:
            return ""
        text = self._held + new
        at, self.stop = min(((i, stop) for stop in self._stops if (i := text.find(stop)) >= 0), default=(-1, ""))
        if self.stop:
            self._held = ""
            return text[:at]
        cut = len(text) if final else len(text) - max((overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[cut:]
        return text[:cut]


def overlap(text: str, stop: str) -> int:
    """Return the length of the longest suffix of `text` that is a proper prefix of `stop`."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)


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

    def texts_to_ids(self, texts: List[str], cuts: bool = False) -> list[list[int]]:
        """See Engine."""
        if not cuts:
            return [self.tokenize(text, special=False, bos=True) for text in texts]
        room = self._encoder.n_ctx
        begun = (text[: room * self.vocab.longest] for text in texts)
        return [self.tokenize(text, special=False, bos=True)[:room] for text in begun]

    def text_vector(self, text: str) -> ReadText:
        """Return the ids of a text and its vector, if it has one."""
        (ids,) = self.texts_to_ids([text])
        return ReadText(ids, self.embed([ids])[0] if 0 < len(ids) <= self.facts.n_ctx else None)

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
