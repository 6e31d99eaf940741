"""Encodes every kind of prompt as token ids: text, a conversation, ids, and a place in a file to fill in.

Knows a vocabulary and a chat template; knows no model and no editor.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from runtime.conversation.chat_template import USUAL_FORM, ChatTemplate, Message, TemplateForm
from runtime.conversation.fitting import Fitted, Fitting
from runtime.conversation.infill import Infill, infill_ids
from runtime.conversation.marks import QuotedEncoder
from runtime.conversation.pictured import NO_EYES, Pictured, Place, SeenImages, mark_of
from runtime.conversation.quoting import QuotingTemplate, Rendered, dangerous
from runtime.core.errors import ContextError, SettingsError, TemplateError

if TYPE_CHECKING:  # importing it loads the model library, which not every caller needs
    from runtime.backends.vocab import Vocab

USUAL_LONGEST = 16  # bytes per token; the vocabulary's longest token is looked up only for text above this
MAX_COUNTED = 4096  # messages whose token counts are cached, at most


@dataclass(frozen=True, slots=True)
class Ids:
    """A prompt that is already token ids."""

    tokens: tuple[int, ...]

    def checked(self, n_vocab: int, field: str = "prompt", known: Collection[int] = ()) -> list[int]:
        """Return the ids. Raises SettingsError, which names the field, for one that is not below `n_vocab`, and not
        among the `known` ones of images.
        """
        wrong = (token for token in self.tokens if not 0 <= token < n_vocab and token not in known)
        if (unknown := next(wrong, None)) is not None:
            raise SettingsError(
                f"{field} holds token {unknown}, but the model has {n_vocab} tokens. Use ids below that."
            )
        return list(self.tokens)


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """A conversation whose next reply continues the text `begun`.

    If `plain` is set, a model without a chat template gets each turn after the name of its role, by PLAIN_TURNS.
    """

    messages: tuple[Message, ...]
    begun: str = ""
    plain: bool = False


@dataclass(frozen=True, slots=True)
class Beginning:
    """The tokens with which two prompts begin alike, such as those of a conversation with two different questions."""

    first: Prompt
    second: Prompt


# Raw text, a conversation, a rendered one, token ids, a place to fill in, what two of these share, or one with images
Prompt = str | Sequence[Message] | ChatPrompt | Rendered | Ids | Infill | Beginning | Pictured

# For models without a chat template; a reply ends where the next question would begin
PLAIN_TURNS = (
    "{% for m in messages %}{% if m.role != 'system' %}{{ m.role | capitalize }}: {% endif %}{{ m.content }}\n\n"
    "{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}"
)
PLAIN_STOPS = ("\nUser:", "\nAssistant:")


class PromptEncoder:
    """Encodes prompts as token ids for the model `name`, with its vocabulary and the sources of its chat templates: the
    usual one, and the one for conversations with tools if there are two.
    """

    def __init__(self, vocab: Vocab, template: str, name: str, n_ctx: int, tool_template: str = "") -> None:
        self._vocab, self._source, self._tool_source = vocab, template, tool_template
        self._name, self.n_ctx = name, n_ctx
        self.place: Place | None = None  # returns the ids of an image; None for a model without a vision encoder
        self.why_blind = ""  # why it has none although there is one, as a sentence
        self.images = SeenImages({})
        self._counted: dict[str, int] = {}
        self._fittings: dict[tuple[QuotingTemplate, bool], Fitting] = {}

    def prepare(self) -> None:
        """Compile the model's template ahead of the first conversation."""
        with suppress(Exception):  # an error in the template is raised when it is used
            _ = self._template, self._quoted, self._tool_template

    def encode(self, prompt: Prompt, may_overflow: bool = False) -> list[int]:
        """Return the ids of a prompt.

        Raises TemplateError, SettingsError, and ContextError for text that cannot fit however it is tokenized, unless
        `may_overflow`.
        """
        if isinstance(prompt, Pictured):
            return self.seeing(prompt.images).encode(prompt.prompt, may_overflow)
        return self._encode(prompt, may_overflow)

    def _encode(self, prompt: Prompt, may_overflow: bool) -> list[int]:
        """Return the ids of a prompt in which all marks of images are known."""
        if not may_overflow and isinstance(prompt, str):
            self.check_length(prompt)
        if isinstance(prompt, Ids):
            return prompt.checked(self._vocab.n_vocab, known=self.images.known)
        if isinstance(prompt, str):
            return self._begun(self.images.encode(Rendered(prompt), self._unmarked), opens=False)
        if isinstance(prompt, Infill):
            return self._begun(infill_ids(prompt, self._vocab, self._vocab.fim, self.n_ctx), opens=False)
        if isinstance(prompt, Beginning):
            pairs = zip(self.encode(prompt.first, may_overflow), self.encode(prompt.second, may_overflow), strict=False)
            return [token for token, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)]
        if isinstance(prompt, Rendered):
            return self._encode_rendered(prompt, self._quoted, may_overflow)
        assert not isinstance(prompt, Pictured)
        talk = prompt if isinstance(prompt, ChatPrompt) else ChatPrompt(tuple(prompt))
        return [*self._encode_chat(talk, may_overflow), *self.begun(talk)]

    def begun(self, talk: ChatPrompt) -> list[int]:
        """Return the ids of the text that the next reply starts with."""
        return self._vocab.encode(talk.begun, special=False)

    def n_tokens(self, message: Message) -> int:
        """Return the number of tokens of a message's content, without the template's text around it. Cached."""
        n = self._counted.get(message.content)
        if n is None:
            if len(self._counted) >= MAX_COUNTED:
                self._counted.clear()
            n = self._counted[message.content] = len(self._vocab.encode(message.content, special=False))
        return n + self.images.n_positions(message.content)

    def seeing(self, images: Iterable[bytes]) -> PromptEncoder:
        """Return an encoder of prompts with these images, from the bytes of their files. Raises PictureError, and
        SettingsError if the model has no vision encoder.
        """
        if self.place is None:
            raise SettingsError(self.why_blind or NO_EYES.format(name=self._name))
        found = copy(self)
        found.images = SeenImages({mark_of(image): self.place(image) for image in images})
        return found

    def _unmarked(self, rendered: Rendered) -> list[int]:
        """Return the ids of a raw text."""
        return self._vocab.encode(rendered.text, special=False)

    def _encode_chat(self, talk: ChatPrompt, may_overflow: bool) -> list[int]:
        template, encoder = (
            (self._plain, self._quoted_plainly) if talk.plain and not self._source else (self._template, self._quoted)
        )
        fitted = self._fitted(template, talk.messages)
        return self._encode_rendered(template.render(fitted.messages), encoder, may_overflow)

    def _encode_rendered(self, rendered: Rendered, encoder: QuotedEncoder, may_overflow: bool) -> list[int]:
        if not may_overflow:
            self.check_length(rendered.text)
        ids = self.images.encode(rendered, encoder.encode)
        return self._begun(ids, opens=bool(ids) and ids[0] == self._vocab.bos)

    def check_length(self, text: str) -> None:
        """Raise ContextError for text longer than the context could hold if every token were the longest one."""
        n = len(text)
        if n > self.n_ctx * USUAL_LONGEST and n > self.n_ctx * self._vocab.longest:
            least = n // self._vocab.longest
            raise ContextError(
                f"The prompt has at least {least} tokens, but the context holds {self.n_ctx}. Shorten it, or raise "
                "`--context`.",
                least,
                self.n_ctx,
            )

    def _begun(self, ids: list[int], *, opens: bool) -> list[int]:
        """Return the ids after the BOS token if the model requires one, unless the text `opens` with it."""
        return [self._vocab.bos, *ids] if self._vocab.adds_bos and not opens else ids

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] = (),
        form: TemplateForm = USUAL_FORM,
    ) -> Rendered:
        """Return the conversation as the text that the model reads, with tools if its template supports them.

        Raises TemplateError.
        """
        template = self._tool_template if tools else self._template
        fitted = self._fitted(template, messages, bool(tools))
        return replace(template.render(fitted.messages, tools, form), changes=fitted.changes)

    def _fitted(self, template: QuotingTemplate, messages: Sequence[Message], has_tools: bool = False) -> Fitted:
        """Return the conversation in a form that the template accepts; the Fitting is kept for each template."""
        key = template, has_tools
        if key not in self._fittings:
            self._fittings[key] = Fitting(template.template, has_tools)
        return self._fittings[key].fit(messages)

    def unquoted_roles(self) -> list[str]:
        """Return the roles in whose messages names of control tokens cannot be told from the template's own."""
        with suppress(TemplateError):
            return self._template.unquoted_roles()
        return []

    @cached_property
    def _template(self) -> QuotingTemplate:
        if not self._source:
            raise TemplateError(f"{self._name} has no chat template. Use `--raw` to send the prompt as it is.")
        return self._own(self._source)

    @cached_property
    def _tool_template(self) -> QuotingTemplate:
        return self._own(self._tool_source) if self._tool_source else self._template

    def _own(self, source: str) -> QuotingTemplate:
        """Return one of the model's templates."""
        return self._quoting(source, *map(self._vocab.special_text, (self._vocab.bos, self._vocab.eos)))

    @cached_property
    def _plain(self) -> QuotingTemplate:
        return self._quoting(PLAIN_TURNS)

    def _quoting(self, source: str, bos: str = "", eos: str = "") -> QuotingTemplate:
        controls = [mark.text for mark in self._vocab.marks if mark.is_control]
        own = [mark.text for mark in self._vocab.marks if not mark.is_control]
        return QuotingTemplate(
            ChatTemplate(source, bos, eos), source, dangerous(source + self._tool_source, controls, own)
        )

    @cached_property
    def _quoted(self) -> QuotedEncoder:
        return QuotedEncoder(self._vocab, self._template.names)

    @cached_property
    def _quoted_plainly(self) -> QuotedEncoder:
        return QuotedEncoder(self._vocab, self._plain.names)
